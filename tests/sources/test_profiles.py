"""The sources of the shipped profiles: pinned, and with the file names that the readers expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
import yaml

from pathfinder.benchmarks.readers import ANSWER_KEYS, read_search
from pathfinder.core.params import Download, Params, SearchSet, Source, Upstream
from pathfinder.planning import profiles
from pathfinder.sources.catalogue import fetch_source
from tests.support.hub_server import HubServer, hub_server

NOT_PINNED = {
    "evaluate-published": ["models/math-shepherd", "models/rlhflow-mistral", "models/skywork", "models/llemma"],
}
"""No public page shows a full commit id of these."""


def sources(root: Path, profile: str) -> list[Source]:
    return Params.model_validate(yaml.safe_load(profiles.render(root, profile))).download.sources


@pytest.mark.parametrize("profile", ["paper", "paper-official", "one-gpu-80", "one-gpu-24", "evaluate-published"])
def test_branches_that_can_move_are_known(root: Path, profile: str) -> None:
    """Sources of the Hub were named by ``main``, while the README called them pinned."""
    found = [source.name for source in sources(root, profile) if not source.is_pinned]
    assert found == NOT_PINNED.get(profile, [])


@pytest.mark.parametrize("profile", ["paper", "evaluate-published"])
def test_the_six_search_sets_arrive_under_the_names_of_the_reader(root: Path, tmp_path: Path, profile: str) -> None:
    """The source was a mirror that nobody has; and the names upstream are not the names that the reader expects."""
    entry = next(source for source in sources(root, profile) if source.name == "search")
    upstream = tmp_path / "upstream"
    for name in get_args(SearchSet):
        path = upstream / str(entry.revision) / entry.path_of(f"{name}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": 0, "problem": name, ANSWER_KEYS.get(name, "answer"): "1"}) + "\n")
    hub = HubServer()
    hub.add_raw("declare-lab/PathFinder-PRM", upstream)
    with hub_server(hub) as url:
        files = {name: Upstream(path=entry.path_of(name), sha256=None) for name in entry.files}
        served = entry.model_copy(update={"location": f"{url}/declare-lab/PathFinder-PRM", "files": files})
        settings = Download(world="data", retries=0, timeout_s=5.0, sources=[served])
        fetch_source(served, tmp_path / "search", settings)
    read = read_search(tmp_path / "search", get_args(SearchSet)).items
    assert {problem.set: problem.problem for problem in read} == {name: name for name in get_args(SearchSet)}


def test_olympiadbench_and_college_math_have_the_published_200_problems(root: Path) -> None:
    entry = next(source for source in sources(root, "paper") if source.name == "search")
    assert entry.path_of("olympiadbench.jsonl").endswith("/olympiadbench_200.jsonl")
    assert entry.path_of("college_math.jsonl").endswith("/college_math_200.jsonl")
