"""Temporary files of a test run are in memory where there is room, and nothing of them stays."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support import scratch


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", "")  # restores the variable afterwards
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)
    monkeypatch.setattr(scratch, "_FREE_BYTES", 1)
    return tmp_path


def test_temporary_files_go_into_a_folder_of_the_run(memory: Path) -> None:
    folder = scratch.use_memory()
    assert folder == memory / f"{scratch._NAME}{os.getpid()}"
    assert Path(tempfile.mkdtemp()).parent == folder
    assert scratch.use_memory() is None, "TMPDIR is set"


def test_folders_of_killed_runs_are_deleted(memory: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    names = [f"{scratch._NAME}{ended.pid}", f"{scratch._NAME}{os.getppid()}", "other"]
    for name in names:
        (memory / name).mkdir()
    scratch.use_memory()
    assert [(memory / name).exists() for name in names] == [False, True, True]


@pytest.mark.parametrize("missing", ["folder", "memory"])
def test_a_machine_without_room_in_memory_uses_its_disk(
    memory: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "folder":
        monkeypatch.setattr(scratch, "_MEMORY", memory / "none")
    else:
        monkeypatch.setattr(scratch, "_available", lambda: 0)
    assert scratch.use_memory() is None
    assert "TMPDIR" not in os.environ
