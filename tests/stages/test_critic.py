"""The critic stage: a profile lists the judges, DVC's matrix runs them, and the report's tables show them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from evidence.dvc.pipeline import read_pipeline
from ground.io import DataError, read_json
from pathfinder.benchmarks.metrics import Evaluated
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.reporting.names import PRMBENCH
from pathfinder.reporting.results import load_results
from stages import critic
from tests.support.evaluation_inputs import ROOT, evaluation_project
from tests.support.servers import JudgeServer, judge_server


def reply(prompt: str, seed: int) -> str:
    steps = len(re.findall(r"^.*Step \d+: ", prompt, re.MULTILINE)) or 1
    return (
        "\\boxed{-1}"
        if "<paragraph_0>" in prompt
        else json.dumps({"validity": [1] * steps, "redundancy": [-1] * steps})
    )


@pytest.fixture
def project(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    evaluation_project(tmp_path, world, processbench={"limit": 3}, prmbench={"limit": 1})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_the_profile_to_the_results(project: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    assert not [name for name in read_pipeline(project) if name.startswith("critic")]
    params = yaml.safe_load(Path("params.yaml").read_text())
    with judge_server(JudgeServer(reply, model="gpt-4o")) as server:
        params["critics"] = ["critic-gpt-4o"]
        params["critic"]["base_urls"] = [server.url]
        Path("params.yaml").write_text(yaml.safe_dump(params))
        stages = read_pipeline(project)
        commands = sorted(stages[name].cmd for name in stages if name.startswith("critic"))
        assert commands == [f"python -m stages.critic critic-gpt-4o {b}" for b in ("prmbench", "processbench")]
        Path("dvc.yaml").unlink()  # its stages run in a folder with the code
        for command in commands:
            critic.main(command.split()[3:])
    assert (
        read_json(Path("metrics/processbench/critic-gpt-4o.json"))["mean_f1"] == 0.0
    )  # this judge never finds an error
    found = load_results(Path("metrics"), parse_runs(["full"]), load_params().critics)
    assert found.titles("critic-gpt-4o")[0] == "GPT-4o"
    evaluated = found.published[PRMBENCH]["critic-gpt-4o"]
    assert isinstance(evaluated, Evaluated)
    assert evaluated.asked["items_unread"] == 0


def test_an_unknown_judge_is_refused(project: Path) -> None:
    with pytest.raises(DataError, match="no such judge"):
        critic.main(["critic-nobody", "prmbench"])
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["critics"] = ["critic-x; rm -r y"]
    Path("params.yaml").write_text(yaml.safe_dump(params))
    with pytest.raises(DataError, match=r"critics\.0: String should match pattern"):
        load_params()
