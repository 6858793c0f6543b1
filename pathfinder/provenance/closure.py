"""The project files that a module runs: its import closure, found by reading the source, without importing anything.

Imports inside functions count too, so the closure names everything that can take part in a stage's result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pathfinder.core.io import DataError

PACKAGES = ("pathfinder", "stages", "flows", "infra")
_COMMAND = re.compile(r"python -m ([a-z0-9_.]+)(?: |$)")


def module_of(cmd: str) -> str | None:
    """``stages.train`` for ``python -m stages.train full``; ``None`` for any other command."""
    match = _COMMAND.match(cmd)
    return match[1] if match else None


def import_closure(module: str, root: Path = Path(".")) -> tuple[str, ...]:
    """Every project file that importing ``module`` can run, packages' ``__init__.py`` included, sorted.

    Raises ``DataError`` when the module is not below ``root`` or a file of the closure cannot be parsed.
    """
    open_files = _files_of(module, root)
    stem = module.replace(".", "/")
    if not {f"{stem}.py", f"{stem}/__init__.py"} & set(open_files):
        raise DataError(f"{module}: no such module below {root.resolve().name}/; correct the stage's cmd in dvc.yaml")
    found = set(open_files)
    while open_files:
        path = open_files.pop()
        for name in imported_names(root / path, root):
            fresh = [file for file in _files_of(name, root) if file not in found]
            found.update(fresh)
            open_files += fresh
    return tuple(sorted(found))


def imported_names(path: Path, root: Path = Path(".")) -> Iterator[str]:
    """Dotted names that a source file imports; for ``from a import b`` both ``a`` and ``a.b``."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise DataError(f"{path}: cannot be parsed ({error}); mend it first") from error
    package = path.relative_to(root).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _files_of(module: str, root: Path) -> list[str]:
    """The module's own file and every package above it; empty where the project has no such module."""
    parts = module.split(".")
    if parts[0] not in PACKAGES:
        return []
    below = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    candidates = [*(f"{name}/__init__.py" for name in below), f"{below[-1]}.py"]
    return [name for name in candidates if (root / name).is_file()]
