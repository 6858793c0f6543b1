"""Keep the code dependencies of both pipelines complete: each stage's module's import closure, and the lock files.

Run     python -m infra.deps           shows what is missing or too much; exit status 1 if anything is
        python -m infra.deps --write   mends them, keeping their order and comments
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from stages.core.io import atomic_file
from stages.lineage.closure import import_closure, module_of
from stages.lineage.pipeline import PIPELINES
from stages.lineage.record import LOCK_FILES


def wanted_deps(stage: dict[str, Any]) -> list[str]:
    """The deps that a stage of dvc.yaml should have: its data in the order given, then code, then locks."""
    module = module_of(stage["cmd"])
    code = import_closure(module) if module else ()
    data = [dep for dep in stage.get("deps", []) if not dep.endswith(".py") and dep not in LOCK_FILES]
    return [*data, *code, *LOCK_FILES]


def differences(stages: dict[str, Any]) -> list[str]:
    """One line for every dependency that is missing or too much."""
    lines = []
    for name, stage in stages.items():
        stated, wanted = set(stage.get("deps", [])), set(wanted_deps(stage))
        lines += [f"{name}: missing {dep}" for dep in sorted(wanted - stated)]
        lines += [f"{name}: too much {dep}" for dep in sorted(stated - wanted)]
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    """Show or mend."""
    parser = argparse.ArgumentParser(prog="python -m infra.deps", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="mend them")
    write = parser.parse_args(argv).write
    wrong = [path for path in PIPELINES if _differs(path, write)]
    if wrong and not write:
        sys.exit("Run `python -m infra.deps --write`.")


def _differs(path: Path, write: bool) -> bool:
    """Show, and with ``write`` mend, one pipeline; true where something was missing or too much."""
    yaml = YAML()  # the round-trip loader: comments stay, and no tag makes an object
    yaml.width = 200
    yaml.preserve_quotes = True
    content = yaml.load(path)
    lines = differences(content["stages"])
    print("\n".join(lines) or f"{path} lists every module that its stages import")
    if write and lines:
        for stage in content["stages"].values():
            stage["deps"] = wanted_deps(stage)
        with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as handle:
            yaml.dump(content, handle)
    return bool(lines)


if __name__ == "__main__":
    main()
