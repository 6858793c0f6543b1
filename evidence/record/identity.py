"""The code that determines a stage's result, as listed in dvc.yaml: one definition for DVC and for saved progress.

Unfinished work is stored under the digest of this code, so an interrupted run never resumes with different code.
The import closure of a module is found by reading the source, not by importing it. Imports inside functions count, so
it contains every file that can affect a stage's result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

from evidence.dvc.pipeline import read_pipelines
from evidence.settings import SETTINGS
from ground.hashing import digest_path
from ground.io import DataError, digest_of

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = SETTINGS.locks
"""The folder of the hash-locked packages."""


def is_code(path: str) -> bool:
    """True if a dependency in dvc.yaml is code or a lock file rather than data."""
    return path == LOCKS or PurePosixPath(path).parts[0] in SETTINGS.code


@cache
def code_digest(stage: str, root: Path = PROJECT) -> str:
    """sha256 of the code that ``dvc.yaml`` lists for a stage, named with or without its variant (``train``).

    Raises ``DataError`` if ``root`` has no such stage or a listed file does not exist.
    """
    stages = read_pipelines(root).values()
    found = next((entry for entry in stages if stage in (entry.name, entry.name.partition("@")[0])), None)
    if found is None:
        raise DataError(f"{root / 'dvc.yaml'}: no stage {stage}; change to a clone of the project")
    try:
        return digest_of({path: digest_path(root / path).sha256 for path in found.deps if is_code(path)})
    except FileNotFoundError as error:
        raise DataError(
            f"dvc.yaml: {stage} lists {error.filename}, which does not exist; {SETTINGS.remedies.deps}"
        ) from error


_COMMAND = re.compile(r"python -m ([a-z0-9_.]+)(?: |$)")
WRAPPER = "python -m evidence record -- "
"""The beginning of a stage's command that records any other command."""


def module_of(cmd: str) -> str | None:
    """``stages.train`` for ``python -m stages.train full``; ``None`` for a command that runs no module."""
    match = _COMMAND.match(cmd.removeprefix(WRAPPER))
    return match[1] if match else None


def code_of(cmd: str) -> tuple[str, ...]:
    """The import closure of the project's module that a command runs; empty for any other command.

    Raises ``DataError`` if a file of the closure cannot be parsed.
    """
    module = module_of(cmd)
    return import_closure(module) if module and _is_here(module, Path()) else ()


def import_closure(module: str, root: Path = Path(".")) -> tuple[str, ...]:
    """Every project file that importing ``module`` can run, including each package's ``__init__.py``, sorted.

    The project's packages are those in its settings and the package of ``module``: a file that takes the place of an
    installed package is none of them.

    Raises ``DataError`` if ``root`` does not contain the module or a file of the closure cannot be parsed.
    """
    tops = {module.partition(".")[0], *SETTINGS.packages}
    waiting = _files_of(module, root, tops)
    if not _is_here(module, root):
        raise DataError(f"{module}: no such module below {root.resolve().name}/; correct the stage's cmd in dvc.yaml")
    found = set(waiting)
    while waiting:
        path = waiting.pop()
        for name in imported_names(root / path, root):
            new = [file for file in _files_of(name, root, tops) if file not in found]
            found.update(new)
            waiting += new
    return tuple(sorted(found))


def _is_here(module: str, root: Path) -> bool:
    stem = root / module.replace(".", "/")
    return stem.with_suffix(".py").is_file() or (stem / "__init__.py").is_file()


def imported_names(path: Path, root: Path = Path(".")) -> tuple[str, ...]:
    """Dotted names that a source file imports; for ``from a import b`` both ``a`` and ``a.b``.

    Raises ``DataError`` if the file cannot be parsed.
    """
    try:
        return _names(path.read_bytes(), path.relative_to(root).parent.parts)
    except SyntaxError as error:
        raise DataError(f"{path}: line {error.lineno} cannot be parsed ({error.msg}); fix the syntax error") from error


@cache
def _names(source: bytes, package: tuple[str, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement below ``tree``; expressions, which are most nodes of a file, cannot hold one."""
    for blocks in ("body", "handlers", "cases", "orelse", "finalbody"):
        inner = getattr(tree, blocks, ())
        for node in inner if isinstance(inner, list) else ():
            yield node
            yield from _statements(node)


def _files_of(module: str, root: Path, tops: set[str]) -> list[str]:
    """The module's own file and the packages above it; empty for a module that is not below one of ``tops``."""
    parts = module.split(".")
    if parts[0] not in tops:
        return []
    levels = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    candidates = [*(f"{name}/__init__.py" for name in levels), f"{levels[-1]}.py"]
    return [name for name in candidates if (root / name).is_file()]
