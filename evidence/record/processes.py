"""Materials of the processes of a stage, for the stage's record: journals, modules and packages.

Each process calls ``report_as`` when it starts. It writes a line for each journal and module as soon as it opens or
loads it, so a process that is killed has reported, too. The lines are in a folder that the recorder makes and reads.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import IO, Any

from evidence.record.environment import installed_packages
from evidence.record.materials import Journals, foreign_modules, is_foreign, labelled, unlocked_packages
from evidence.settings import PREFIX
from ground.io import sha256_file

REPORTS = f"_{PREFIX}REPORTS"
"""The folder for reports, while a stage is recorded. Its underscore keeps it out of the record's environment."""
REPORT_AS = f"{__name__}:report_as"
"""The function that ``ground.recording`` calls in a process that a recorded stage starts."""
_reporter: _Reporter | None = None


def add_reports(folder: Path, record: dict[str, Any], journals: Journals, locks: Path) -> None:
    """Add the processes to a record, and the modules, packages and journals that only they used.

    A module of the stage's code counts if its content differs from the record.
    """
    root, counts, own = Path.cwd(), Counter[str](), set(record["unlisted_modules"])
    for process, line in _lines(folder):
        if "module" in line:
            label, path = labelled(line["module"], Path(line["path"]), root), os.path.relpath(line["path"], root)
            listed = record["code"].get(path, {}).get("sha256")
            if listed != line["sha256"] and label not in own:
                record["unlisted_modules"][f"{label} in {process}"] = line["sha256"]
        elif "packages" in line:
            counts[process] += 1
            for name, versions in unlocked_packages(line["packages"], locks).items():
                if record["unlocked_packages"].get(name) != versions:
                    record["unlocked_packages"][f"{name} in {process}"] = versions
        else:
            journals.lines.append(line)
    record["processes"] = dict(sorted(counts.items()))


def _lines(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):  # a process can be killed while it writes
                yield path.name.partition("-")[0], json.loads(line)


def report_as(name: str) -> None:
    """Report this process under ``name`` to the stage that started it, if that stage is recorded; once per process.

    ``name`` has no hyphen.
    """
    global _reporter
    folder = os.environ.get(REPORTS)
    if folder is not None and _reporter is None and Path(folder).is_dir():
        _reporter = _Reporter(Path(folder) / f"{name}-{os.getpid()}.jsonl")


class _Reporter:
    """Reports the process, the modules that it has loaded, and from now on each further one and each journal."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a", encoding="utf-8", buffering=1)
        self._known: set[Path] = set()
        self._write({"packages": installed_packages()})
        for name, path in foreign_modules().items():
            self._module(name, path)
        sys.addaudithook(self._on_event)
        Journals(report=self._write).__enter__()  # never left

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python runs a module's code with ``exec``, and imports compiled modules by their file."""
        if event == "exec" and isinstance(code := arguments[0], CodeType) and code.co_name == "<module>":
            self._loaded(code.co_filename)
        elif event == "import" and arguments[1]:
            self._loaded(os.fsdecode(arguments[1]))

    def _loaded(self, name: str) -> None:
        path = Path(name)
        if path.is_absolute() and path not in self._known and is_foreign(path) and path.is_file():
            self._module(path.stem, path.resolve())
            self._known.add(path)

    def _module(self, name: str, path: Path) -> None:
        if path not in self._known:
            self._known.add(path)
            self._write({"module": name, "path": str(path), "sha256": sha256_file(path)})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
