"""Inputs that dvc.yaml does not list: journals, modules from other places, packages that the lock does not pin."""

from __future__ import annotations

import hashlib
import importlib
import os
import py_compile
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from evidence.record.materials import Journals, entries_of, state_of, unlisted_modules, unlocked_packages
from ground import hashing
from ground.recording import joined
from pathfinder.engines.journal import Journal

TIMES = PycInvalidationMode.TIMESTAMP


def test_a_journal_has_its_state_before_and_after_the_run(tmp_path: Path) -> None:
    path = tmp_path / ".pathfinder/label/0/journal.jsonl"
    with Journal(path) as journal:
        journal.append({"one": 1})
    before, first = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "other.jsonl").touch()
    with Journals(tmp_path) as journals:
        for _ in range(2):
            with Journal(path) as journal:
                journal.append({str(len(journal)): 2})
        with Journal(path.with_name("new.jsonl")) as journal:
            journal.append({"one": 1})
        (tmp_path / "other.jsonl").open().close()
    states = journals.states()
    path.open().close()
    assert list(states) == [".pathfinder/label/0/journal.jsonl", ".pathfinder/label/0/new.jsonl"]
    assert states[".pathfinder/label/0/journal.jsonl"]["before"] == {"size": before, "sha256": first}
    assert states[".pathfinder/label/0/journal.jsonl"]["after"] == state_of(path)
    assert state_of(path, before) == {"size": before, "sha256": first}
    assert state_of(path, path.stat().st_size + 1) is None
    assert (states[".pathfinder/label/0/new.jsonl"]["before"] or {"size": 0})["size"] == 0


def test_exactly_the_entries_that_a_run_used_are_digested(tmp_path: Path) -> None:
    path = tmp_path / ".pathfinder/label/0/journal.jsonl"
    with Journal(path) as journal:
        journal.append({str(number): "answer" * number for number in range(6)})
    lines = path.read_bytes().splitlines(keepends=True)
    with Journals(tmp_path) as journals:
        with Journal(path) as journal:
            assert ("0" in journal, journal["1"], journal["4"]) == (True, "answer", "answer" * 4)
        with Journal(path) as journal:
            assert journal["2"]
            journal.append({"new": 1})
    new = path.read_bytes().splitlines(keepends=True)[-1]
    used = journals.states()[".pathfinder/label/0/journal.jsonl"]["used"]
    chosen = b"".join([lines[1], lines[2], lines[4], new])
    assert (used["entries"], used["sha256"]) == (4, hashlib.sha256(chosen).hexdigest())
    starts = [sum(map(len, lines[:number])) for number in (1, 3, 4, 5, 6)]
    assert used["ranges"] == [[starts[0], starts[1]], [starts[2], starts[3]], [starts[4], path.stat().st_size]]
    assert entries_of(path, used["ranges"]) == used
    path.write_bytes(b"".join(lines[:5]))
    assert entries_of(path, used["ranges"]) is None
    assert joined([(5, 7), (0, 2), (2, 4), (6, 9)]) == [[0, 4], [5, 9]]


def test_modules_from_other_places_are_named_and_installed_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_module.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("planted_module")
    digest = hashlib.sha256(b"x = 1\n").hexdigest()
    try:
        inside = unlisted_modules([], tmp_path)
        assert inside["planted_module (planted_module.py)"] == digest
        assert unlisted_modules([], tmp_path / "elsewhere")["planted_module"] == digest
        assert "planted_module (planted_module.py)" not in unlisted_modules(["planted_module.py"], tmp_path)
    finally:
        del sys.modules["planted_module"]
    assert hashing.__name__ in inside  # this project's own code is outside of that folder
    assert not {"pytest", "polars", "hashlib", "json"} & inside.keys()


def test_a_compiled_module_that_is_not_of_its_source_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "compiled_module.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for before, mode in ((1, TIMES), (2, TIMES), (2, PycInvalidationMode.UNCHECKED_HASH)):
        source.write_text(f"x = {before}\n")
        os.utime(source, (1, 1))
        compiled = Path(py_compile.compile(str(source), invalidation_mode=mode) or "")
        source.write_text("x = 1\n")
        os.utime(source, (1, 1))
        module = importlib.import_module("compiled_module")
        names = [name for name in unlisted_modules([source.name], tmp_path) if name.startswith("compiled_module")]
        found.append((module.x, names))
        compiled.write_bytes(compiled.read_bytes()[:20])
        assert not any(name.startswith("compiled_module") for name in unlisted_modules([source.name], tmp_path))
        del sys.modules["compiled_module"]
    other = [f"compiled_module (__pycache__/{compiled.name})"]
    assert found == [(1, []), (2, other), (2, other)]


def test_installed_packages_are_compared_with_the_nearest_lock(tmp_path: Path) -> None:
    (tmp_path / "cpu.lock").write_text(
        "One==1.0 \\\n    --hash=sha256:00\ntwo[extra]==2.0 ; python_version > '3'\nfour==4\n"
    )
    (tmp_path / "cuda.lock").write_text("one==9\ntwo==9\nthree==9\nfour==9\n")
    installed = {"one": "1.0", "two": "2.1", "tool": "5"}
    assert unlocked_packages(installed, tmp_path) == {"two": ["2.1", "2.0"], "four": [None, "4"]}
    assert unlocked_packages(installed, tmp_path / "none") == {}
