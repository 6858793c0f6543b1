"""The difference between a run's lock and the committed one.

The lock describes the results in the workspace, so a run rewrites it. On another kind of processor the same inputs
can give different bytes (``pathfinder.core.kernels``). Then the run says where, and how its figures compare.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from lzma import LZMAError
from pathlib import Path

from evidence.audit.findings import listed
from evidence.dvc.history import MAIN_LOCK, Locked, producers, read_stages, stages_in
from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import git
from evidence.record.reading import read_records
from ground.io import write_text
from ground.show import counted

EVIDENCE = Path("docs/evidence")
"""Has PROFILE.tar.xz, the evidence of the committed results."""
KEPT = Path(".pathfinder", MAIN_LOCK)
"""This run's lock, where ``--keep-lock`` puts the committed one back."""
_NAMED = 4
_OF_STAGE = re.compile(r"records/[^/]+/[0-9a-f]{64}\.json")


def explain(root: Path, keep: bool = False) -> Iterator[str]:
    """Say how the lock differs from the committed one after a run; nothing if it is equal, or if git has no lock.

    With ``keep``, put the committed lock and metrics back. Raises ``DataError`` if a lock is not valid.
    """
    committed = git("show", f"HEAD:./{MAIN_LOCK}", root=root)
    if committed is None or committed == (own := (root / MAIN_LOCK).read_text(encoding="utf-8")):
        return
    before, now = stages_in(committed, f"HEAD:{MAIN_LOCK}"), read_stages(root / MAIN_LOCK, MAIN_LOCK)
    changed = _changed(before, now)
    differ = [name for name in now if name not in changed and now[name].outs != before[name].outs]
    if changed:
        stages = counted(len(changed), "stage")
        yield f"{stages} had different code, parameters or inputs from the committed {MAIN_LOCK}"
    if differ:
        first = listed([name for name in differ if now[name].deps == before[name].deps], _NAMED)
        yield (
            f"{counted(len(differ), 'stage')} of {len(now.keys() & before.keys())} gave different bytes from the "
            f"committed run's for the same inputs, first {first}; "
            "docs/audit.md says on which processors bytes are equal"
        )
        from pathfinder.reporting.finished import agreement  # imports NumPy

        yield from agreement(root)
    if keep:
        write_text(root / KEPT, own)
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


def _changed(before: dict[str, Locked], now: dict[str, Locked]) -> set[str]:
    """The stages whose definition, parameters or source files changed, and the stages that depend on their outs."""
    changed = now.keys() - before.keys()

    def is_changed(old: Locked, new: Locked) -> bool:
        if old.cmd != new.cmd or old.params != new.params or old.deps.keys() != new.deps.keys():
            return True
        inputs = [path for path, md5 in new.deps.items() if old.deps[path] != md5]
        makers = [{maker.name for maker in producers(now, path)} for path in inputs]
        return any(not names or names & changed for names in makers)

    while grown := {name for name in now if name not in changed and is_changed(before[name], now[name])}:
        changed |= grown
    return changed


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
