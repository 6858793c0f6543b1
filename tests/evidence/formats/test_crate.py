"""The run crate: roc-validator's required and recommended checks, and the competency questions."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evidence.formats import exported
from evidence.formats.crate import crate
from evidence.formats.lineage import Lineage
from tests.evidence.formats.conftest import IMAGE
from tests.evidence.formats.questions import QUESTIONS
from tests.support.isolated import run_isolated
from tests.support.miniature import ROOT

LOCK = ROOT / "infra/requirements-crate.lock"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def published(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A copy of the study, and the address of a server that publishes it."""
    folder = Path(shutil.copytree(study, tmp_path_factory.mktemp("crate") / "study"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def report(published: tuple[Path, str], lineage: Lineage) -> dict[str, Any]:
    """The verdict of the validator, and the answers."""
    folder, address = published
    (folder / "ro-crate-metadata.json").write_text(exported(lineage, "crate", address), encoding="utf-8")
    script = Path(__file__).with_name("crate_checks.py")
    done = run_isolated(LOCK, ["python", str(script), str(folder)])
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.campaign
def test_every_required_and_recommended_check_passes(report: dict[str, Any]) -> None:
    assert report["issues"] == []
    assert report["passed"]
    assert report["checks"] == 189


def test_every_competency_question_has_the_right_answer(report: dict[str, Any], lineage: Lineage) -> None:
    answers = report["answers"]
    stages = [run.name for run in lineage.runs]
    registry, _, rest = IMAGE.partition("/")
    name, _, digest = rest.partition("@sha256:")
    pinned = [registry, *name.rpartition(":")[::2], digest]
    assert list(answers) == list(QUESTIONS)
    assert len(answers) == 11
    assert answers["CQ1 container images"] == [[stage, *pinned] for stage in ("export", "report")]
    measured = {(stage, what) for stage, what, _, _ in answers["CQ2 resources"]}
    assert measured == {(stage, what) for stage in stages for what in ("wall time", "peak memory", "processors")}
    assert answers["CQ3 configuration files"] == [[f"train@{name}", "params.yaml"] for name in ("full", "plain")]
    locks = [[stage, "infra/locks/cpu.lock", "text/plain"] for stage in sorted(stages)]
    assert answers["CQ4 environment files"] == locks
    times = sorted([run.name, run.start, run.end] for run in lineage.runs)
    assert answers["CQ5 time of a component"] == times
    assert answers["CQ6 time of the workflow"] == [[lineage.start, lineage.end]]
    done = "http://schema.org/CompletedActionStatus"
    assert answers["CQ7 success"] == [[stage, done] for stage in sorted(stages)]
    ends = [["in", "data"], ["in", "train"], ["out", "artifacts/export"]]
    ends += [["out", f"models/{name}"] for name in ("full", "plain")]
    ends += [["out", f"reports/{name}"] for name in ("cards", "tables.json")]
    assert answers["CQ8 inputs and outputs"] == ends
    versions = dict(answers["CQ9 versions of components"])
    assert versions.keys() == set(stages)
    assert versions["train@full"] == versions["train@plain"] != versions["download"]
    python = lineage.runs[0].content["environment"]["python"]
    wrapped = [[run.name, f"{run.name}: {run.stage.cmd}", "Python", python] for run in lineage.runs]
    assert answers["CQ10 wrappers"] == sorted(wrapped)
    keys = {(key, stage) for key, _, stage in answers["CQ11 parameters of the workflow in its tools"]}
    assert keys == {("train", "train@full"), ("train", "train@plain")}
    given = answers["CQ11 parameters of the workflow in its tools"][0][1]
    assert json.loads(given) == {"rate": 0.5, "note": "Ünïcode <+>"}


def test_files_have_the_digests_of_the_bytes(study: Path, lineage: Lineage) -> None:
    """``sha256sum`` is enough to compare the crate with the folder."""
    files = {each["@id"]: each for each in crate(lineage)["@graph"] if "sha256" in each and each["@type"] == "File"}
    assert len(files) > 20
    listed = "".join(f"{entity['sha256']}  {name}\n" for name, entity in files.items() if "%" not in name)
    done = subprocess.run(["sha256sum", "--check", "--quiet"], cwd=study, input=listed, text=True, check=False)
    assert done.returncode == 0


def test_the_record_and_its_signed_statement_belong_to_the_crate(lineage: Lineage) -> None:
    graph = {each["@id"]: each for each in crate(lineage, "https://example.org/p")["@graph"]}
    assert "https://example.org/p/dvc.yaml" in graph
    for run in lineage.runs:
        assert run.statement is not None
        for file in (run.file, run.statement):
            name = file.path.replace("@", "%40")
            assert graph[name]["about"] == {"@id": f"#run/{run.name.replace('@', '%40')}"}
