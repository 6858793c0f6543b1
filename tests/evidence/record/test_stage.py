"""``@stage``: the command line, errors without a traceback, and the record of the run."""

from __future__ import annotations

import gc
import re
import shutil
from pathlib import Path
from typing import Annotated, Literal

import pytest

from evidence.record.reading import read_records
from evidence.record.stage import stage
from ground.io import DataError, TransientError
from tests.support.miniature import run_in

calls: list[tuple[object, ...]] = []


@stage
def work(
    system: Annotated[str, "the system to evaluate"],
    benchmark: Annotated[Literal["processbench", "prmbench"], "the benchmark to run"],
    level: str = "small",
) -> None:
    """Evaluate one system."""
    calls.append((system, benchmark, level))
    if system == "broken":
        raise DataError("broken: no such system")


@stage
def in_parts(*, part: Annotated[str, "only this part"] = "") -> None:
    """Work that can be divided."""
    calls.append((part,))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls.clear()


def test_arguments_reach_the_work_in_order_and_defaults_apply() -> None:
    work(["one", "prmbench"])
    work(["one", "prmbench", "large"])
    assert calls == [("one", "prmbench", "small"), ("one", "prmbench", "large")]
    assert work.__doc__ == "Evaluate one system."


def test_keyword_only_parameters_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    in_parts()
    in_parts(["--part", "2/3"])
    assert calls == [("",), ("2/3",)]
    for words in (["2/3"], ["--part"]):
        with pytest.raises(SystemExit):
            in_parts(words)
    assert len(calls) == 2


@pytest.mark.parametrize("words", [[], ["one"], ["one", "mathbench"], ["one", "prmbench", "large", "more"]])
def test_missing_surplus_and_unknown_arguments_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        work(words)
    assert stop.value.code == 2
    assert "usage: python -m tests.evidence.record.test_stage system {processbench,prmbench} [level]" in (
        " ".join(capsys.readouterr().err.split()).replace("[-h] ", "")
    )
    assert calls == []


def test_the_garbage_collector_runs_as_soon_as_a_stage_is_imported() -> None:
    gc.disable()  # as the package ``stages`` does
    stage(lambda: None)
    assert gc.isenabled()


def test_from_python_the_error_is_raised_and_the_command_line_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no such system"):
        work(["broken", "prmbench"])
    monkeypatch.setattr("sys.argv", ["pytest", "one", "prmbench"])
    with pytest.raises(SystemExit):
        work()


def test_a_run_is_recorded_under_the_stage_of_its_command(project: Path) -> None:
    before = {record.digest for record in read_records(project, "train@plain")}
    done = run_in(project, "-m", "stages.train", "plain")
    assert (done.returncode, done.stderr) == (0, "")
    (new,) = [record for record in read_records(project, "train@plain") if record.digest not in before]
    assert new.is_intact
    assert new.content["cmd"] == "python -m stages.train plain"
    assert len(list(read_records(project, "train@full"))) == 1


def test_a_data_error_is_printed_without_a_traceback_and_leaves_no_record(project: Path) -> None:
    (project / "params.yaml").write_text("train: {rate: 2, note: x}\n")
    done = run_in(project, "-m", "stages.train", "full")
    assert done.returncode == DataError.exit_status == 1
    assert done.stderr == "error: params.yaml: rate is 2; expected at most 1\n"
    assert len(list(read_records(project, "train@full"))) == 1


def test_a_transient_error_has_the_status_that_the_flow_retries(project: Path) -> None:
    path = project / "stages/train.py"
    path.write_text(re.sub("DataError", "TransientError", path.read_text()))
    (project / "params.yaml").write_text("train: {rate: 2, note: x}\n")
    assert run_in(project, "-m", "stages.train", "full").returncode == TransientError.exit_status == 75


def test_help_shows_the_module_docstring_and_the_arguments(project: Path) -> None:
    text = run_in(project, "-m", "stages.train", "--help").stdout
    assert "usage: python -m stages.train" in text
    assert "Train one variant." in text
    assert "a variant of the model" in text


def test_the_recorder_does_not_change_results(project: Path) -> None:
    """Where dvc.yaml does not list the command, the stage runs without a record and writes the same bytes."""
    outs = ["models/full/weights.txt", "metrics/train/full.json"]
    recorded = {out: (project / out).read_bytes() for out in outs}
    assert all(recorded.values())
    for folder in ("models", "metrics", ".pathfinder"):
        shutil.rmtree(project / folder)
    listed = (project / "dvc.yaml").read_text()
    (project / "dvc.yaml").write_text(listed.replace("stages.train", "stages.other"))
    done = run_in(project, "-m", "stages.train", "full")
    assert done.returncode == 0, done.stderr
    assert "no lineage record is written" in done.stderr
    assert not (project / ".pathfinder").exists()
    assert {out: (project / out).read_bytes() for out in outs} == recorded
