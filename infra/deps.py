"""Check that both dvc.yaml files list the code that their stages import.

Run     python -m infra.deps           list missing and superfluous dependencies; exit status 1 if there are any
        python -m infra.deps --write   correct the lists; comments and the order of the data are kept
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from pathfinder.core.commented_yaml import dump_commented, load_commented
from pathfinder.core.io import write_text
from pathfinder.core.text import errors_without_traceback
from pathfinder.provenance.identity import code_deps, is_code
from pathfinder.provenance.pipeline import PIPELINES

_WIDTH = 118


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


def main(argv: Sequence[str] | None = None) -> None:
    """List the differences, or correct them."""
    parser = argparse.ArgumentParser(prog="python -m infra.deps", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="correct the lists")
    write = parser.parse_args(argv).write
    wrong = []
    for path in PIPELINES:
        content = load_commented(path)
        lines = differences(content["stages"])
        print("\n".join(lines) or f"{path} lists the code that its stages import")
        if write and lines:
            for stage in content["stages"].values():
                stage["deps"][:] = wanted_deps(stage)
            write_text(path, dump_commented(content, _WIDTH))
        wrong += lines
    if wrong and not write:
        sys.exit("Run `python -m infra.deps --write`.")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
