"""Check that both dvc.yaml files list the code that their stages import.

A stage depends on its own module, on the rooms of ``pathfinder`` that it imports and on the locked packages, and a
stage of ``stages/`` on the two packages that Python runs before all stages. Only the recorder is left out: it reads
inputs and outputs, and cannot change a result.

Run     python -m infra.deps           list missing and superfluous dependencies; exit status 1 if there are any
        python -m infra.deps --write   correct the lists; every other line and the order of the data are kept
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from evidence.dvc.pipeline import PIPELINES
from evidence.record.identity import LOCKS, import_closure, is_code, module_of
from ground.io import DataError, write_text
from ground.settings import read_yaml
from ground.text import errors_without_traceback

_WIDTH = 128
_PACKAGES = ("stages/__init__.py", "pathfinder/__init__.py")
"""They run before each stage. Older code made the shipped data once, so its stages do not list them."""


def code_deps(cmd: str, root: Path = Path(".")) -> list[str]:
    """The code dependencies that a stage with this command must list: its module, packages, rooms, and the locks.

    Raises ``DataError`` if ``root`` does not contain the module of the command.
    """
    module = module_of(cmd)
    if module is None:
        raise DataError(f"{cmd!r} runs no module of the project; write `python -m stages.NAME`")
    own = f"{module.replace('.', '/')}.py"
    closure = import_closure(module, root)
    rooms = sorted({room for file in closure if (room := _room(file))})
    packages = [file for file in _PACKAGES if file in closure and own.startswith("stages/")]
    return [*([] if any(own.startswith(f"{room}/") for room in rooms) else [own]), *packages, *rooms, LOCKS]


def _room(file: str) -> str:
    """The folder that a stage lists for a file: a room of ``pathfinder``, or a wing; empty for other files."""
    top, *below = PurePosixPath(file).parts
    return f"{top}/{below[0]}" if top == "pathfinder" and len(below) > 1 else top if top in ("ground", "world") else ""


def wanted_deps(stage: dict[str, Any]) -> list[str]:
    """The dependencies that a stage of dvc.yaml should list: its data in the given order, then code, then locks."""
    return [*(dep for dep in stage.get("deps", []) if not is_code(dep)), *code_deps(stage["cmd"])]


def differences(stages: dict[str, Any]) -> list[str]:
    """One line per missing or superfluous dependency."""
    lines = []
    for name, stage in stages.items():
        stated, wanted = set(stage.get("deps", [])), set(wanted_deps(stage))
        lines += [f"{name}: missing {dep}" for dep in sorted(wanted - stated)]
        lines += [f"{name}: superfluous {dep}" for dep in sorted(stated - wanted)]
    return lines


def corrected(text: str, stages: dict[str, Any], path: Path) -> str:
    """The text of a dvc.yaml with the right lists; raises ``DataError`` for a wrong list that is not in brackets."""
    for name, stage in stages.items():
        wanted = wanted_deps(stage)
        if set(stage.get("deps", [])) == set(wanted):
            continue
        listed = re.compile(rf"^  {re.escape(name)}:.*\n(?:(?:    .*)?\n)*?    deps: \[([^]]*)\]", re.MULTILINE)
        if (found := listed.search(text)) is None:
            raise DataError(f"{path}: the list of stage {name} cannot be corrected; write it as `deps: [a, b]`")
        words = (word.strip() for word in found[1].split(","))
        data = [word for word in words if word.strip("\"'") in wanted and not is_code(word.strip("\"'"))]
        code = [dep for dep in wanted if is_code(dep)]
        lines = textwrap.wrap(
            ", ".join([*data, *code]) + "]",
            _WIDTH,
            initial_indent="    deps: [",
            subsequent_indent=" " * len("    deps: ["),
            break_long_words=False,
            break_on_hyphens=False,
        )
        start = text.rindex("    deps: [", 0, found.start(1))
        text = text[:start] + "\n".join(lines) + text[found.end() :]
    return text


def main(argv: Sequence[str] | None = None) -> None:
    """List the differences, or correct them."""
    parser = argparse.ArgumentParser(prog="python -m infra.deps", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="correct the lists")
    write = parser.parse_args(argv).write
    wrong = []
    for path in PIPELINES:
        stages = read_yaml(path)["stages"]
        lines = differences(stages)
        print("\n".join(lines) or f"{path} lists the code that its stages import")
        if write and lines:
            write_text(path, corrected(path.read_text(encoding="utf-8"), stages, path))
        wrong += lines
    if wrong and not write:
        sys.exit("Run `python -m infra.deps --write`.")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
