"""The published repositories at their pinned commits, and how their functions are run as they are.

``checkout`` takes the text files of the four repositories out of git. A ``Source`` imports a file by its path, or the
named definitions of a script that runs on import, and records what a function answers to inputs of our own.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

PINS = {
    "declare-lab/PathFinder-PRM": "2f80ed4c30b4d3a0433502acd585513de3aed77e",
    "ssmisya/PRMBench": "a1ae4eab803e14c4c6316bf89d1679b0486faa8c",
    "QwenLM/ProcessBench": "e8024636bcabdf8bd514440551b531d3f90dd18b",
    "huggingface/search-and-learn": "6f81cac8b1ca4c4be9fabefc27a856c928f3ae7f",
}
_READ = (".py", ".yaml", ".txt")


class _Absent(ModuleType):
    """A package that an import names and the function under test does not use. Calls of its names do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


@contextmanager
def absent(*names: str, **given: Mapping[str, Any]) -> Iterator[None]:
    """Importable placeholders for the packages ``names``, and modules with the ``given`` contents, inside the block."""
    before = {name: sys.modules.get(name) for name in (*names, *given)}
    for name in before:
        sys.modules[name] = _Absent(name)
        vars(sys.modules[name]).update(given.get(name, {}))
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


@dataclass(frozen=True, slots=True)
class Differs:
    """An input that the project answers differently on purpose; ``why`` names the page that says so."""

    given: Any
    why: str


@dataclass(frozen=True, slots=True)
class Source:
    """A published repository, checked out in ``folder``."""

    repository: str
    folder: Path

    def module(self, file: str) -> Any:
        """The file as a module, run as it is."""
        spec = importlib.util.spec_from_file_location(Path(file).stem.replace("-", "_"), self.folder / file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with _quiet():
            spec.loader.exec_module(module)
        return module

    def package(self, root: str, name: str) -> Any:
        """The module ``name`` of a package in the folder ``root``, imported with its relatives."""
        sys.path.insert(0, str(self.folder / root))
        try:
            for loaded in [key for key in sys.modules if key.partition(".")[0] == name.partition(".")[0]]:
                sys.modules.pop(loaded)
            with _quiet():
                return importlib.import_module(name)
        finally:
            sys.path.pop(0)

    def parts(self, file: str, names: Iterable[str], **given: Any) -> Any:
        """The named functions and constants of a script that runs on import, and nothing else of it.

        ``given`` are the names that the parts use and the script imports.
        """
        wanted, tree = set(names), ast.parse(self._text(file))
        body = [node for node in tree.body if not wanted.isdisjoint(_defined(node))]
        found = ModuleType(Path(file).stem)
        vars(found).update(given)
        code = compile(ast.Module(body, type_ignores=[]), str(self.folder / file), "exec")
        exec(code, vars(found))  # noqa: S102  # the published code, as it is
        return found

    def recorded(
        self,
        file: str,
        function: str,
        run: Callable[[Any], Any],
        inputs: Iterable[Any],
        slots: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The answers of a file's function to each of ``inputs``, as ``cases/`` keeps it.

        An input in ``Differs`` is a deliberate difference. ``function`` is a name, or ``outer.inner`` for one inside a
        class or function, or empty for the whole script. ``run`` takes an input and calls the published function; an
        exception is kept by its name. ``slots`` are published texts by the names of their places, which replace them
        in the outputs.
        """
        cases = []
        for each in inputs:
            given, why = (each.given, {"differs": each.why}) if isinstance(each, Differs) else (each, {})
            kept = json.loads(json.dumps(given))  # a function may change its argument
            with _quiet():
                try:
                    output = run(given)
                except Exception as error:
                    output = {"raises": type(error).__name__}
            cases.append(
                {"input": kept, **why, "output": _slotted(json.loads(json.dumps(output, sort_keys=True)), slots or {})}
            )
        return {
            "repository": self.repository,
            "commit": PINS[self.repository],
            "file": file,
            "lines": self._lines(file, function),
            "function": function,
            "cases": cases,
        }

    def _text(self, file: str) -> str:
        return (self.folder / file).read_text(encoding="utf-8")

    def _lines(self, file: str, function: str) -> str:
        if not function:
            return f"1-{len(self._text(file).splitlines())}"
        node: ast.AST = ast.parse(self._text(file))
        for name in function.split("."):
            node = next(inner for inner in ast.walk(node) if name == getattr(inner, "name", None))
        assert isinstance(node, ast.FunctionDef | ast.ClassDef)
        return f"{node.lineno}-{node.end_lineno}"


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


@contextmanager
def _quiet() -> Iterator[None]:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def slot(name: str) -> str:
    """The text that replaces the published constant ``name``."""
    return f"⟦{name}⟧"


def _slotted(value: Any, slots: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, text in slots.items():
            value = value.replace(text, slot(name))
        return value
    if isinstance(value, list):
        return [_slotted(item, slots) for item in value]
    return {key: _slotted(item, slots) for key, item in value.items()} if isinstance(value, dict) else value


def checkout(clones: Path, folder: Path) -> dict[str, Source]:
    """The sources by repository, checked out under ``folder`` from clones or git directories under ``clones``.

    Raises ``SystemExit`` if no repository there holds a pinned commit.
    """
    found = {}
    for repository, commit in PINS.items():
        git = next((path for path in _git_dirs(clones) if _holds(path, commit)), None)
        if git is None:
            raise SystemExit(f"{clones}: no repository with {repository} at {commit}; clone it there")
        target = folder / repository.replace("/", "-")
        names = _git(git, "ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0")
        for name in names:
            if name.endswith(_READ):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(_git(git, "show", f"{commit}:{name}"))
        found[repository] = Source(repository, target)
    return found


def _git_dirs(clones: Path) -> list[Path]:
    heads = [path for depth in ("", "*/", "*/*/", "*/*/*/") for path in clones.glob(f"{depth}HEAD")]
    return sorted(path.parent for path in heads if (path.parent / "objects").is_dir())


def _holds(git: Path, commit: str) -> bool:
    command = ["git", f"--git-dir={git}", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _git(git: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", f"--git-dir={git}", *arguments], capture_output=True, check=True).stdout
