"""The record of a run: its content, and when it is written."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from evidence.dvc.history import read_lock
from evidence.record.identity import PROJECT
from evidence.record.reading import read_records
from evidence.record.record import record_command, recorded
from ground.io import DataError
from ground.recording import note


def only_record(project: Path, stage: str) -> dict[str, object]:
    (record,) = read_records(project, stage)
    assert record.is_intact
    return record.content


def test_every_stage_leaves_one_record_whose_digests_are_those_of_dvc_lock(made: Path) -> None:
    lock = yaml.safe_load((made / "dvc.lock").read_text())["stages"]
    assert sorted(lock) == ["download", "train@full", "train@plain"]
    for name, stage in read_lock(made).items():
        if name == "data.dvc":
            continue
        (record,) = read_records(made, name)
        assert record.made(stage)


def test_record_names_files_code_parameters_and_environment(made: Path) -> None:
    record = only_record(made, "train@full")
    corpus = record["inputs"]["artifacts/raw/corpus"]  # type: ignore[index]
    assert sorted(corpus["files"]) == ["b-side.txt", "b/two.txt", "one.txt"]
    assert corpus["files"]["one.txt"]["sha256"] == hashlib.sha256(b"one\n").hexdigest()
    code = record["code"]
    assert isinstance(code, dict)
    assert {
        "stages/train.py",
        "pathfinder/mixing/mix.py",
        "ground/io.py",
        "evidence/record/record.py",
    } <= set(code)
    assert "evidence/verbs/check.py" not in code
    assert record["params"] == {"train": {"rate": 0.5, "note": "Ünïcode <+>"}}
    assert record["git"]["dirty"] is False  # type: ignore[index]
    assert record["environment"]["packages"]["dvc"]  # type: ignore[index]
    assert list(record["tree"]["changed"]) == ["dvc.lock"]  # type: ignore[index]
    assert [record[key] for key in ("journals", "unlisted_modules", "unlocked_packages")] == [{}, {}, {}]
    assert set(record["times"]) == {"start", "end", "seconds", "peak_rss_bytes"}  # type: ignore[call-overload]


def test_records_hold_no_secret_and_no_path_of_the_machine(made: Path) -> None:
    texts = [path.read_text() for path in (made / ".pathfinder" / "lineage").rglob("*.json")]
    assert len(texts) == 3
    for text in texts:
        assert str(made) not in text
        assert json.loads(text)["actor"]["host"] == os.uname().nodename


def test_failed_work_leaves_no_record(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    before = len(list(read_records(project, "train@full")))
    with pytest.raises(ZeroDivisionError), recorded("python -m stages.train full"):
        raise ZeroDivisionError
    assert len(list(read_records(project, "train@full"))) == before == 1


@pytest.mark.parametrize("value", ["2024-01-01", ".inf", "{1: a, b: c}"])
def test_a_parameter_that_no_record_can_have_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages: {a: {cmd: python -m evidence record -- touch made, params: [p]}}")
    (tmp_path / "params.yaml").write_text(f"p: {value}")
    with pytest.raises(DataError, match=r"^params\.yaml: p: cannot be in a record .*; put it in quotes$"):
        record_command(["touch", "made"])
    assert not (tmp_path / "made").exists()


def test_out_that_was_not_written_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    with (
        pytest.raises(DataError, match=r"metrics/train/full\.json does not exist"),
        recorded("python -m stages.train full"),
    ):
        (project / "metrics/train/full.json").unlink()


def test_stage_is_found_by_its_command_when_its_name_differs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    text = (project / "dvc.yaml").read_text()
    control = "  control:\n    cmd: python -m stages.train random\n    outs: [models/full]\n"
    (project / "dvc.yaml").write_text(text + control)
    with recorded("python -m stages.train random"):
        pass
    assert only_record(project, "control")["cmd"] == "python -m stages.train random"


def test_a_comment_with_an_apostrophe_hides_no_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text('stages: {a: {cmd: "make  # it\'s a comment"}}')
    record_command(["true"])
    assert "not listed in a dvc.yaml here" in capsys.readouterr().err


def test_a_process_of_the_stage_adds_notes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    work = "from ground.recording import note; note('throughput', {'tokens': 3})"
    before = {record.content["times"]["start"] for record in read_records(project, "train@full")}
    with recorded("python -m stages.train full"):
        subprocess.run([sys.executable, "-c", work], check=True, env={**os.environ, "PYTHONPATH": str(PROJECT)})
    notes = [record.content["notes"] for record in read_records(project, "train@full")]
    assert {} in notes
    assert {"throughput": {"tokens": 3}} in notes
    assert len(notes) == len(before) + 1
    note("ignored", 1)


@pytest.mark.parametrize("variable", ["RANK", "NODE_RANK"])
def test_only_the_first_process_of_the_first_machine_records(
    project: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.chdir(project)
    before = len(list(read_records(project, "train@full")))
    monkeypatch.setenv(variable, "1")
    with recorded("python -m stages.train full"):
        pass
    assert len(list(read_records(project, "train@full"))) == before


def test_a_module_run_elsewhere_notes_that_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with recorded("python -m stages.train full"):
        pass
    assert "no lineage record is written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.benchmarks
def test_cost_of_a_record(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    start = time.perf_counter()
    with recorded("python -m stages.train full"):
        pass
    print(json.dumps({"seconds_of_one_record": round(time.perf_counter() - start, 3)}))
