"""The stage graph, compared with DVC's own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from flows.local.graph import Graph, load_graph
from ground.io import DataError
from tests.flows.conftest import Project

EXPANDED = """\
stages:
  first: {cmd: make, outs: [a/b/one.txt, {two.txt: {cache: false}}]}
  grid:
    matrix: {size: [1, 2], rule: [x, {name: y}]}
    cmd: make ${item.size} ${key}
    deps: [a]
    outs: ["grid_${key}.txt"]
  each:
    foreach: {left: {path: two.txt}, right: {path: grid_1-x.txt}}
    do:
      cmd: [one, two]
      deps: ["${item.path}"]
      outs: ["each_${key}.txt"]
      metrics: [{"m_${key}.json": {cache: false}}]
  listed:
    foreach: [true, 7]
    do: {cmd: "make ${item}", deps: [a/b/one.txt], outs: ["listed_${item}.txt"]}
  numbered:
    foreach: [{name: y}, {name: z}]
    do: {cmd: make, deps: [a/b/one.txt], outs: ["numbered_${item.name}.txt"]}
"""


def graph_of(tmp_path: Path, text: str) -> Graph:
    (tmp_path / "dvc.yaml").write_text(text)
    return load_graph(tmp_path)


@pytest.mark.parametrize("which", ["real", "made"])
def test_edges_are_those_of_dvc(project: Project, root: Path, which: str) -> None:
    text = (root / "dvc.yaml").read_text() if which == "real" else EXPANDED
    (project.root / "dvc.yaml").write_text(text)
    shutil.copy(root / "params.yaml", project.root)
    dot = project.run("-m", "dvc", "dag", "--dot")
    theirs = set(re.findall(r'"([^"]+)" -> "([^"]+)"', dot))
    names = set(re.findall(r'^"([^"]+)";', dot, re.MULTILINE)) | {name for edge in theirs for name in edge}
    graph = load_graph(project.root)
    assert theirs
    assert set(graph.stages) == names
    assert {(other, name) for name, needed in graph.upstream.items() for other in needed} == theirs


def test_selection_takes_what_a_target_needs(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, EXPANDED)
    assert graph.select(["each@right"]) == {"each@right", "grid@1-x", "first"}
    assert graph.select(["two.txt"]) == {"first"}
    assert graph.select(["listed"]) == {"first", "listed@true", "listed@7"}
    assert graph.select([]) == set(graph.stages)
    with pytest.raises(DataError, match="nothing: no stage or output"):
        graph.select(["nothing"])


def test_longest_chain_first_and_order(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, EXPANDED)
    ranks = graph.ranks()
    assert (ranks["first"], ranks["grid@1-x"], ranks["each@left"]) == (2, 1, 0)
    place = {name: number for number, name in enumerate(graph.ordered())}
    assert all(place[other] < place[name] for name, needed in graph.upstream.items() for other in needed)
    assert graph.descendants(["grid@1-x"]) == {"grid@1-x", "each@right"}


def test_a_cycle_is_named(tmp_path: Path) -> None:
    text = "stages: {a: {cmd: x, deps: [b], outs: [a]}, b: {cmd: x, deps: [a], outs: [b]}}"
    with pytest.raises(DataError, match="depend on each other: a, b"):
        graph_of(tmp_path, text).ordered()


def test_the_targets_of_the_profile_hold_if_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("targets: [two.txt]\n")
    graph = graph_of(tmp_path, EXPANDED)
    assert graph.select([]) == {"first"}
    assert graph.select(["each@right"]) == {"each@right", "grid@1-x", "first"}


def test_a_parameter_of_the_report_stales_no_scoring_and_no_training(root: Path) -> None:
    graph = load_graph(root)
    readers = [
        name for name, stage in graph.stages.items() if any(key.split(".")[0] == "report" for key in stage.params)
    ]
    stale = {name.partition("@")[0] for name in graph.descendants(readers)}
    assert "report" in stale
    assert not stale & {"train", "processbench", "prmbench", "search", "sample", "label", "build", "baseline", "critic"}
