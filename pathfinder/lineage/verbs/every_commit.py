"""``lineage check --all-commits``: the lock of every commit against its dvc.yaml, itself and the records here.

Old outs are not read again. A commit is as old as its lock: commits that did not change it are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError
from pathfinder.lineage import expected, history
from pathfinder.lineage.evidence import entered_records
from pathfinder.lineage.findings import Finding, merged
from pathfinder.lineage.history import Locked, Record
from pathfinder.lineage.verbs.revision import at
from pathfinder.provenance.environment import git
from pathfinder.provenance.pipeline import read_pipelines

_LOCKS = ("dvc.lock", "infra/pretraining/dvc.lock")


@dataclass(frozen=True, slots=True)
class CheckedCommit:
    """A commit, its date, the stages in its lock, those with a record here, and what was found."""

    commit: str
    date: str
    stages: int
    attested: int
    findings: list[Finding]

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "commit": self.commit,
            "date": self.date,
            "stages": self.stages,
            "attested": self.attested,
            "findings": [str(finding) for finding in self.findings],
        }


def check_all_commits(root: Path) -> list[CheckedCommit]:
    """Check the locks of every commit that changed one, newest first; empty outside a repository."""
    log = git("log", "--format=%H %cs", "--", *_LOCKS, root=root) or ""
    records = cache(lambda stage: entered_records(root, stage))
    return [_checked(root, line, records) for line in log.splitlines()]


def _checked(root: Path, line: str, records: Callable[[str], list[Record]]) -> CheckedCommit:
    commit, date = line.split()
    try:
        with at(root, commit[:12]) as folder:
            locked, pipeline = history.read_lock(folder), read_pipelines(folder)
    except DataError as error:
        where, _, message = str(error).partition(": ")
        return CheckedCommit(commit, date, 0, 0, [Finding(where, message)])
    known = expected.with_missing(locked, pipeline)
    never_ran = (replace(finding, level="note") for finding in expected.missing(known, locked, pipeline))
    findings = [*never_ran, *_between(locked)]
    attested, stages = 0, [stage for stage in locked.values() if stage.file == history.MAIN_LOCK]
    for stage in stages:
        found = records(stage.name)
        attested += any(record.made(stage) for record in found)
        findings += _contradictions(stage, found)
    return CheckedCommit(commit, date, len(stages), attested, merged(findings))


def _between(locked: dict[str, Locked]) -> Iterator[Finding]:
    """Digests on which two stages of a lock differ."""
    for stage in (stage for stage in locked.values() if stage.cmd):
        for path, md5 in stage.deps.items():
            for maker in locked.values():
                if maker.outs.get(path, md5) != md5:
                    yield Finding(
                        stage.file, f"{stage.name} read {path} as {md5}, {maker.name} made {maker.outs[path]}"
                    )


def _contradictions(stage: Locked, records: list[Record]) -> Iterator[Finding]:
    """Records of a run with the same inputs that made other outs, if none made those of the lock."""
    same = [record for record in records if record.has_inputs_of(stage)]
    if same and not any(record.made(stage) for record in same):
        differ = [path for path, md5 in stage.outs.items() if same[0].outputs.get(path) != md5]
        message = f"record {same[0].digest[:12]} has the same inputs, but made other {', '.join(differ)}"
        yield Finding(stage.file, message, stages=(stage.name,))
