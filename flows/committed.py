"""``dvc.lock`` around a run: drop stages that are not in the cache, sort the others, and explain what differs from git.

``dvc.lock`` describes the results in the workspace, so a run rewrites it. On another kind of processor the same inputs
can give other bytes (``pathfinder.core.kernels``). Then the run says where, and whether the figures still agree with
those of README.md, which are the committed run's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK, Locked, overlap, read_stages, stages_in
from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import git
from ground.io import read_json, write_text
from ground.show import counted
from pathfinder.reporting.names import TABLES
from pathfinder.reporting.results import printed_rows

KEPT = Path(".pathfinder/dvc.lock")
"""This run's dvc.lock, where ``--keep-lock`` puts the committed one back."""
_FIGURE = re.compile(r"(-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]")
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """How this run's dvc.lock differs from the committed one; stage names in the order of dvc.lock.

    ``other_inputs``: another command, code, parameter or source than committed, or an input made by such a stage.
    ``other_bytes``: other outs than committed, although no such change explains them; ``origins`` are those of
    them whose inputs have the same bytes. ``stages`` is the number of stages in both.
    """

    stages: int
    other_inputs: list[str]
    other_bytes: list[str]
    origins: list[str]


def committed_lock(root: Path) -> str | None:
    """The committed dvc.lock; ``None`` outside a repository and before the first commit of the file."""
    return git("show", f"HEAD:./{MAIN_LOCK}", root=root)


def difference(root: Path, committed: str) -> Difference:
    """Compare dvc.lock with the text of the committed one. Raises ``DataError`` if one is not valid."""
    before = stages_in(committed, f"HEAD:{MAIN_LOCK}")
    now = read_stages(root / MAIN_LOCK, MAIN_LOCK)
    both = [name for name in now if name in before]
    made = {path: name for name in now for path in now[name].outs}
    other: set[str] = {name for name in now if name not in before}
    while grown := {name for name in both if name not in other and _changed(before[name], now[name], made, other)}:
        other |= grown
    bytes_ = [name for name in both if name not in other and now[name].outs != before[name].outs]
    origins = [name for name in bytes_ if now[name].deps == before[name].deps]
    return Difference(len(both), [name for name in now if name in other], bytes_, origins)


def _changed(before: Locked, now: Locked, made: Mapping[str, str], other: set[str]) -> bool:
    """Whether a stage ran with something that was changed on purpose, itself or through a stage of ``other``."""
    if before.cmd != now.cmd or before.params != now.params or before.deps.keys() != now.deps.keys():
        return True
    for path in (path for path, md5 in now.deps.items() if before.deps[path] != md5):
        makers = {maker for out, maker in made.items() if overlap(out, path)}
        if not makers or makers & other:
            return True
    return False


def figures_outside(readme: str, tables: Mapping[str, object]) -> tuple[int, list[str]]:
    """The number of figures in both the README's results and ``tables``, and those outside the README's intervals."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in readme.splitlines() if "[" in line]
    known = {cells[0]: cells[1:] for cells in rows[::-1]}  # the main table is the first
    count, outside = 0, []
    (_, *columns), *lines = printed_rows(tables)
    for label, *cells in lines:
        for column, cell, committed in zip(columns, cells, known.get(label, ()), strict=False):
            found, expected = _FIGURE.match(cell), _FIGURE.match(committed)
            if found and expected:
                count += 1
                value, low, high = float(found[1]), float(expected[2]), float(expected[3])
                if not low <= value <= high:
                    outside.append(f"{label}, {column}: {found[1]}, committed {committed}")
    return count, outside


def explain(root: Path, keep: bool = False) -> Iterator[str]:
    """Say how dvc.lock differs from the committed one after a run; nothing if it does not.

    With ``keep``, put the committed one and the committed metrics back. Raises ``DataError`` as ``difference`` does.
    """
    committed = committed_lock(root)
    if committed is None or committed == (root / MAIN_LOCK).read_text(encoding="utf-8"):
        return
    found = difference(root, committed)
    if found.other_inputs:
        yield f"{_count(found.other_inputs)} had other code, parameters or inputs than in the committed dvc.lock"
    if found.other_bytes:
        yield (
            f"{_count(found.other_bytes)} of {found.stages} gave other bytes than the committed run from the same "
            f"inputs, first {_names(found.origins)}; docs/audit.md says on which processors bytes are equal"
        )
        yield from _agreement(root)
    if keep:
        write_text(root / KEPT, (root / MAIN_LOCK).read_text(encoding="utf-8"))
        write_text(root / MAIN_LOCK, committed)
        for path in {path for stage in read_pipeline(root).values() for path in stage.metrics}:
            if (summary := git("show", f"HEAD:./{path}", root=root)) is not None:
                write_text(root / path, summary)
        yield f"the committed dvc.lock is back; that of this run is {KEPT}"
    else:
        yield (
            "dvc.lock now describes the results here; commit it only if they replace the committed ones. "
            "`pathfinder run --keep-lock` puts the committed one back"
        )


def _agreement(root: Path) -> Iterator[str]:
    if not (root / TABLES).exists() or not (root / "README.md").exists():
        return
    count, outside = figures_outside((root / "README.md").read_text(encoding="utf-8"), read_json(root / TABLES))
    if outside:
        yield f"{len(outside)} of {count} figures are outside the 95 % intervals of README.md: {_names(outside, '; ')}"
    elif count:
        yield f"the figures agree: all {count} are inside the 95 % intervals of README.md"


def _count(names: list[str]) -> str:
    return counted(len(names), "stage")


def _names(names: list[str], between: str = ", ") -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return between.join(names[:_NAMED]) + more
