"""The difference between a run's lock and the committed one.

The lock describes the results in the workspace, so a run rewrites it. On another kind of processor the same inputs
can give different bytes (``pathfinder.core.kernels``). Then the run says where, and how its figures compare.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path

from evidence.audit.findings import listed
from evidence.dvc.history import MAIN_LOCK, Locked, overlap, read_stages, stages_in
from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import git
from evidence.record.reading import read_records
from ground.io import write_text
from ground.show import counted
from pathfinder.reporting.finished import agreement

EVIDENCE = Path("docs/evidence")
"""Has PROFILE.tar.xz, the evidence of the committed results."""
KEPT = Path(".pathfinder", MAIN_LOCK)
"""This run's lock, where ``--keep-lock`` puts the committed one back."""
_NAMED = 4
_OF_STAGE = re.compile(r"records/[^/]+/[0-9a-f]{64}\.json")


@dataclass(frozen=True, slots=True)
class Difference:
    """How this run's lock differs from the committed one; stage names in the order of the lock.

    ``other_inputs``: the command, code, a parameter or a source differs, or such a stage made an input.
    ``other_bytes``: the outs differ although no such change explains it; ``origins`` are the stages among them whose
    inputs have the same bytes. ``stages`` is the number of stages in both.
    """

    stages: int
    other_inputs: list[str]
    other_bytes: list[str]
    origins: list[str]


def committed_lock(root: Path) -> str | None:
    """The committed lock; ``None`` outside a repository and before the first commit of the file."""
    return git("show", f"HEAD:./{MAIN_LOCK}", root=root)


def difference(root: Path, committed: str) -> Difference:
    """Compare the lock with the text of the committed one. Raises ``DataError`` if one is not valid."""
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
    """Return whether a stage ran with something that was changed on purpose, itself or by a stage of ``other``."""
    if before.cmd != now.cmd or before.params != now.params or before.deps.keys() != now.deps.keys():
        return True
    for path in (path for path, md5 in now.deps.items() if before.deps[path] != md5):
        makers = {maker for out, maker in made.items() if overlap(out, path)}
        if not makers or makers & other:
            return True
    return False


def explain(root: Path, keep: bool = False) -> Iterator[str]:
    """Say how the lock differs from the committed one after a run; nothing if it does not.

    With ``keep``, put the committed one and the committed metrics back. Raises ``DataError`` as ``difference`` does.
    """
    committed = committed_lock(root)
    if committed is None or committed == (root / MAIN_LOCK).read_text(encoding="utf-8"):
        return
    found = difference(root, committed)
    stages = [counted(len(names), "stage") for names in (found.other_inputs, found.other_bytes)]
    if found.other_inputs:
        yield f"{stages[0]} had different code, parameters or inputs from the committed {MAIN_LOCK}"
    if found.other_bytes:
        yield (
            f"{stages[1]} of {found.stages} gave different bytes from the committed run's for the same inputs, first "
            f"{listed(found.origins, _NAMED)}; docs/audit.md says on which processors bytes are equal"
        )
        yield from agreement(root)
    if keep:
        write_text(root / KEPT, (root / MAIN_LOCK).read_text(encoding="utf-8"))
        write_text(root / MAIN_LOCK, committed)
        for path in summary_files(root):
            if (summary := git("show", f"HEAD:./{path}", root=root)) is not None:
                write_text(root / path, summary)
        yield f"the committed {MAIN_LOCK} is back; the one of this run is {KEPT}"
    else:
        yield (
            f"{MAIN_LOCK} now describes the results here; commit it only if they replace the committed ones. "
            "`pathfinder run --keep-lock` puts the committed one back"
        )


def summary_files(root: Path) -> list[str]:
    """The metrics files of dvc.yaml, which git holds and ``dvc metrics`` shows."""
    return sorted({path for stage in read_pipeline(root).values() for path in stage.metrics})


def earlier_seconds(root: Path, profile: str, names: Iterable[str]) -> dict[str, float]:
    """The seconds of each stage in its newest record here or, if none has one, in the committed evidence if sound."""
    newest = {name: records[0].content for name in names if (records := read_records(root, name))}
    bundle = root / EVIDENCE / f"{profile}.tar.xz"
    if not newest and bundle.is_file():
        with suppress(tarfile.TarError, LZMAError, EOFError), tarfile.open(bundle) as archive:
            texts = [archive.extractfile(one) for one in archive if _OF_STAGE.fullmatch(one.name)]
            newest = {content["stage"]: content for content in map(json.load, filter(None, texts))}
    return {name: float(content["times"]["seconds"]) for name, content in newest.items() if "times" in content}
