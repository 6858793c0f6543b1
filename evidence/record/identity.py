"""The code that determines a stage's result, as listed in dvc.yaml: one definition for DVC and for saved progress.

Unfinished work is stored under the digest of this code, so an interrupted run never resumes with different code.
The import closure of a module is found by reading the source, not by importing it. Imports inside functions count, so
it contains every file that can affect a stage's result.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from functools import cache
from modulefinder import ModuleFinder
from pathlib import Path
from types import CodeType
from typing import Any

from evidence.dvc.pipeline import read_pipelines
from evidence.settings import SETTINGS
from ground.hashing import digest_path
from ground.io import DataError, digest_of

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = SETTINGS.locks
"""The folder of the hash-locked packages."""


def is_code(path: str) -> bool:
    """True if a dependency in dvc.yaml is code or a lock file rather than data."""
    return path == LOCKS or path.partition("/")[0] in SETTINGS.code


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


_FINDER, _IMPORT = ModuleFinder(), dis.opmap["IMPORT_NAME"]
_COMMAND = re.compile(r"python -m ([a-z0-9_.]+)(?: |$)")
WRAPPER = "python -m evidence record -- "
"""The beginning of a stage's command that records any other command."""
PARSED: dict[bytes, tuple[CodeType, list[tuple[Any, ...]]]] = {}
"""Compiled code and imports of source files, by their bytes. A forked stage gets its parent's (flows.local.forks)."""


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

    The project's packages are the packages in its settings and the package of ``module``: a file that takes the place
    of an installed package is not one of them.

    Raises ``DataError`` if ``root`` does not contain the module or a file of the closure cannot be parsed.
    """
    tops = {module.partition(".")[0], *SETTINGS.packages}
    waiting = _files_of(module, root, tops)
    if not _is_here(module, root):
        raise DataError(f"{module}: no such module below {root.resolve().name}/; correct the stage's cmd in dvc.yaml")
    found, names = set(waiting), set[str]()
    while waiting:
        for name in {*imported_names(root / waiting.pop(), root)} - names:
            names.add(name)
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
        imports = _parsed(path.read_bytes())[1]
    except SyntaxError as error:
        raise DataError(f"{path}: line {error.lineno} cannot be parsed ({error.msg}); fix the syntax error") from error
    package, names = path.relative_to(root).parent.parts, list[str]()
    for *level, parts, module in imports:
        above = package[: len(package) - level[0] + 1] if level else ()
        base = ".".join([*above, *([module] if module else [])])
        names += [base, *(f"{base}.{part}" for part in parts or ())]
    return tuple(names)


def compiled_code(source: bytes) -> CodeType:
    """The code of a source file; raises ``SyntaxError`` if it cannot be parsed."""
    return _parsed(source)[0]


def _parsed(source: bytes) -> tuple[CodeType, list[tuple[Any, ...]]]:
    if source not in PARSED:
        code = compile(source, "<source>", "exec", dont_inherit=True)
        PARSED[source] = code, [*_imports(code)]
    return PARSED[source]


def _imports(code: CodeType) -> Iterator[tuple[Any, ...]]:
    """Each import in a file and in its functions: the level if it is relative, the imported names, the module."""
    if _IMPORT in code.co_code:
        yield from (found for kind, found in _FINDER.scan_opcodes(code) if kind != "store")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _imports(inner)


def _files_of(module: str, root: Path, tops: set[str]) -> list[str]:
    """The module's own file and the packages above it; empty for a module that is not below one of ``tops``."""
    parts = module.split(".")
    if parts[0] not in tops:
        return []
    levels = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    candidates = [*(f"{name}/__init__.py" for name in levels), f"{levels[-1]}.py"]
    return [name for name in candidates if (root / name).is_file()]
