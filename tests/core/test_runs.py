from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evidence.dvc.pipeline import read_pipeline
from ground.io import DataError
from pathfinder.core.params import RunName
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.runs import parse_run, parse_runs, systems


@given(
    variant=st.sampled_from(sorted(VARIANTS)),
    mix=st.sampled_from(["400k", "prm800k", "550k", "0k"]),
    seed=st.integers(1, 99),
)
def test_every_run_has_one_name_that_says_what_it_is(variant: str, mix: str, seed: int) -> None:
    long = f"{variant}-{mix}-s{seed}"
    short = long.replace("-400k", "")
    short = short.removesuffix("-s1") if seed == 1 else short
    run = parse_run(short)
    assert (run.variant, run.mix, run.seed, run.name) == (variant, mix, seed, short)
    assert run.system == short.removesuffix(f"-s{seed}")
    assert re.search(get_args(RunName)[1].metadata[0].pattern, short)
    if long != short:
        with pytest.raises(DataError, match=f"the name of this run is '{short}'"):
            parse_run(long)


@pytest.mark.parametrize(
    "name", ["", "fuller", "full-", "full-s", "full-s02", "full-s0", "full; ls", "../full", "full\n"]
)
def test_what_is_no_run_is_refused_by_name(name: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"run {name!r}: ")):
        parse_run(name)


@pytest.mark.parametrize(("name", "known"), [("fulll", "full"), ("no_subtask-s2", "no_subtasks-s2"), ("full-", "full")])
def test_the_name_that_was_meant_is_offered(name: str, known: str) -> None:
    with pytest.raises(DataError, match=f"^run '{name}': did you mean {known}\\? expected VARIANT(?!.*params.yaml)"):
        parse_run(name)


def test_seeds_of_one_system_stand_together() -> None:
    runs = parse_runs(["full-s2", "no_subtasks", "full", "full-550k"])
    grouped = {system: [run.name for run in members] for system, members in systems(runs).items()}
    assert grouped == {"full": ["full", "full-s2"], "no_subtasks": ["no_subtasks"], "full-550k": ["full-550k"]}


DVC_YAML = """
stages:
  train:
    matrix: {run: "${runs}"}
    cmd: python -m stages.train ${item.run}
    outs: ["models/${item.run}"]
"""


def test_the_graph_has_one_stage_per_run(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"runs": ["full", "full-550k-s2"]}))
    stages = read_pipeline(tmp_path)
    assert list(stages) == ["train@full", "train@full-550k-s2"]
    assert stages["train@full-550k-s2"].outs == ("models/full-550k-s2",)


def test_an_axis_may_name_a_list_within_a_section(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text(DVC_YAML.replace("${runs}", "${critics.systems}"))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"critics": {"systems": ["critic-a"]}}))
    assert list(read_pipeline(tmp_path)) == ["train@critic-a"]
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"critics": ["critic-a"]}))
    with pytest.raises(DataError, match=r"list `critics\.systems`"):
        read_pipeline(tmp_path)


@pytest.mark.parametrize("runs", [["full; rm -rf x"], ["$(ls)"], ["a b"], [{"a": 1}], None, "full"])
def test_a_value_that_a_shell_would_read_is_no_run(tmp_path: Path, runs: object) -> None:
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"runs": runs}))
    with pytest.raises(DataError, match=r"params\.yaml"):
        read_pipeline(tmp_path)
