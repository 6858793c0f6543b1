"""``check --all-commits``: compare the lock of every commit with its dvc.yaml, itself and the known records.

Old outs are not read again. Commits that did not change a lock are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from evidence.audit import expected
from evidence.audit.findings import Finding, Level, merged
from evidence.audit.records import entered_records, signers_of
from evidence.audit.trust import Keys, RefusedKeyError, trusted_keys
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import read_pipelines
from evidence.record.environment import git
from evidence.record.ledger import RECORDS
from evidence.record.reading import Record
from evidence.verbs.check import UNSIGNED, disagreement
from evidence.verbs.targets import at
from ground.io import DataError


@dataclass(frozen=True, slots=True)
class CheckedCommit:
    """A commit and its date, the numbers of its stages: in the lock, recorded, and signed; and the findings."""

    commit: str
    date: str
    stages: int
    recorded: int
    attested: int
    findings: list[Finding]

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self) | {"findings": [str(finding) for finding in self.findings]}


def check_all_commits(root: Path, keys: Iterable[Path] = (), roots: Iterable[Path] = ()) -> list[CheckedCommit]:
    """Check the locks of every commit that changed one, newest first; raises ``DataError`` if git cannot list them.

    A stage is attested if a key of ``trusted_keys`` signed a record of its run, and was valid then.
    """
    trusted = trusted_keys(root, keys, roots)
    log = git("log", "--full-history", "--format=%H %cs", "--", *map(str, history.LOCK_FILES), root=root)
    if log is None:
        raise DataError(f"{root.absolute()}: `git log` fails, so the history is unknown; correct what it names")
    records = cache(lambda stage: [(record, _fault(record, trusted)) for record in entered_records(root, stage)])
    found = [_checked(root, line, records) for line in log.splitlines()]
    if found and (git("rev-parse", "--is-shallow-repository", root=root) or "").strip() == "true":
        what = "cuts the history off here; `git fetch --unshallow` gets the rest"
        found[-1].findings.append(Finding(".git/shallow", what, "note"))
    return found


def _fault(record: Record, keys: Keys) -> str:
    """The reason why a record attests nothing; empty if a trusted key signed it."""
    try:
        return "" if signers_of(record, keys) else UNSIGNED
    except RefusedKeyError as error:
        return error.why
    except DataError as error:
        return str(error)


def _checked(root: Path, line: str, records: Callable[[str], list[tuple[Record, str]]]) -> CheckedCommit:
    commit, date = line.split()
    try:
        with at(root, commit[:12]) as folder:
            locked, pipeline = history.read_lock(folder), read_pipelines(folder)
    except DataError as error:
        return CheckedCommit(commit, date, 0, 0, 0, [Finding.of(error)])
    known = expected.with_missing(locked, pipeline)
    ran = [stage for stage in locked.values() if stage.cmd]
    findings = [replace(finding, level="note") for finding in expected.missing(known, locked, pipeline)]
    findings += [disagreement(s, path, maker) for s in ran for path, maker in history.other_makers(s, locked)]
    recorded, attested, stages = 0, 0, [stage for stage in locked.values() if stage.file == history.MAIN_LOCK]
    for stage in stages:
        found = records(stage.name)
        faults = [fault for record, fault in found if record.made(stage)]
        recorded, attested = recorded + bool(faults), attested + ("" in faults)
        findings += _contradictions(stage, [record for record, _ in found])
        if faults and "" not in faults:
            level: Level = "note" if faults[0] == UNSIGNED else "error"
            findings.append(Finding(RECORDS.as_posix(), faults[0], level, (stage.name,)))
    return CheckedCommit(commit, date, len(stages), recorded, attested, merged(findings))


def _contradictions(stage: Locked, records: list[Record]) -> Iterator[Finding]:
    """Records with the inputs in the lock but different outs, if no record has the outs in the lock."""
    same = [record for record in records if record.has_inputs_of(stage)]
    if same and not any(record.made(stage) for record in same):
        differ = [path for path, md5 in stage.outs.items() if same[0].outputs.get(path) != md5]
        message = f"record {same[0].digest[:12]} has the same inputs, but made different {', '.join(differ)}"
        yield Finding(stage.file, message, stages=(stage.name,))
