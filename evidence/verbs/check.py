"""Re-hash every file behind a result and report each difference. Time stamps and caches are not trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evidence.audit import expected, sources
from evidence.audit.claims import Claims
from evidence.audit.findings import Finding, Level, listed, merged
from evidence.audit.objects import Objects
from evidence.audit.records import (
    around,
    entered_records,
    signers_of,
    tampered_journals,
    tampered_records,
    unreproducible,
    witness,
)
from evidence.audit.trust import Keys, RefusedKeyError, planted_keys, trusted_keys, why_trusted
from evidence.audit.workspace import Workspace, links_in, refuse_pipes
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import MAIN, read_pipelines
from evidence.dvc.stores import EVIDENCE, FOLDER, Store, stores
from evidence.record.ledger import RECORDS
from evidence.record.reading import Record
from evidence.remote import mirror
from evidence.remote.published import SEEN, SENT, Published, without_store
from evidence.remote.reading import FarObjects, Remote
from evidence.remote.stamp import certificates
from evidence.remote.witness import compared
from evidence.settings import SETTINGS, STATE
from ground.io import DataError
from ground.progress import Progress
from ground.show import counted

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_MISSING_NAMED = 5
Verdict = Literal["SOUND", "ALTERED", "UNREADABLE", "UNSIGNED"]
UNSIGNED = "the record is not signed by a trusted key"
EXIT: dict[Verdict, int] = {"SOUND": 0, "ALTERED": 1, "UNREADABLE": 2, "UNSIGNED": 3}


@dataclass(frozen=True, slots=True)
class Report:
    """The findings and their coverage: stages of dvc.yaml and stages with a record, places read and not read.

    ``signers`` are the trusted keys that signed the record of each attested stage, and ``names`` says why each key is
    trusted. ``unreadable`` says why no verdict about the outs is possible; it is empty if one is.
    """

    findings: list[Finding] = field(default_factory=list)
    stages: int = 0
    recorded: int = 0
    signers: list[list[str]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    commit: str = ""
    unreadable: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def attested(self) -> int:
        """The number of stages whose record a trusted key signed."""
        return len(self.signers)

    @property
    def verdict(self) -> Verdict:
        """``SOUND`` only if nothing differs and a trusted key signed a record of every stage."""
        if self.unreadable:
            return "UNREADABLE"
        return "ALTERED" if self.errors else "UNSIGNED" if self.attested < self.stages else "SOUND"

    @property
    def errors(self) -> list[Finding]:
        """The findings that are not notes."""
        return [finding for finding in self.findings if finding.level == "error"]

    def as_json(self) -> dict[str, Any]:
        """A JSON value with the findings and the summary."""
        return {
            "verdict": self.verdict,
            "findings": [
                {"level": f.level, "where": f.where, "message": f.message, "stages": list(f.stages)}
                for f in self.findings
            ],
            "stages": self.stages,
            "attested": self.attested,
            "keys": self._keys(),
            "read": self.read,
            "not read": self.not_read,
            "state": self.commit,
            "summary": self.summary(),
        }

    def lines(self) -> list[str]:
        """The findings in words and the summary; many missing outs, as in a new clone, are one line."""
        missing = [finding for finding in self.findings if finding.cause == "missing"]
        if len(missing) <= _MISSING_NAMED and not self.unreadable:
            return [*map(str, self.findings), self.summary()]
        paths = listed(finding.where for finding in missing)
        first = [] if self.unreadable else [f"error: {paths} are missing; {SETTINGS.remedies.missing}"]
        others = [str(finding) for finding in self.findings if finding.cause != "missing"]
        return [*first, *others, self.summary()]

    def summary(self) -> str:
        """The verdict, and one line about the coverage."""
        if self.unreadable:
            return f"{self.verdict}: {self.unreadable}"
        by = ", ".join(self.names.get(key, f"key {key[:12]}") for key in self._keys())
        more = self.recorded - self.attested
        stages = f"{self.attested} of {self.stages} stages attested{f' by {by}' if by else ''}"
        stages += f" ({more} recorded, but not signed by a trusted key)" if more else ""
        parts = [
            counted(len(self.errors), "difference") if self.errors else "",
            stages if self.stages else "no stage was asked for, only files whose digests git has",
            f"{', '.join(self.read)} read",
            f"not read: {', '.join(self.not_read)}" if self.not_read else "",
            self.commit,
        ]
        return f"{self.verdict}: {'; '.join(filter(None, parts))}"

    def _keys(self) -> list[str]:
        return sorted({key for keys in self.signers for key in keys})


def check(
    path: str | Path | None = None,
    root: Path = Path("."),
    strict: bool = False,
    keys: Iterable[Path] = (),
    remote: Remote = "no",
    testimony: str = "",
    roots: Iterable[Path] = (),
    tsas: Sequence[Path] = (),
) -> Report:
    """Check ``path`` and everything it depends on, or every stage of dvc.yaml and every ``.dvc`` file.

    ``keys`` adds files to the trusted keys. With ``strict``, a stage without a record that a trusted key signed is an
    error; without it, an unsigned record is an error only if a trusted key signed the record of another stage.
    ``remote`` says how to read remotes on other machines: not, by their listing, or every byte. ``testimony`` is the
    place with the notes of a witness, with which the ledger and the logs are compared; ``tsas`` are files with the
    certificates of the authorities that stamp its notes. With ``roots``, only the list of keys that one of them signed
    counts, and ``keys``. Raises ``DataError`` if a file that defines the history or trust is missing or broken, or does
    not contain ``path``, and ``TransientError`` if a remote does not answer.
    """
    refuse_pipes([root / name for name in (RECORDS, SETTINGS.keys, SETTINGS.locks, ".dvc")])
    refuse_pipes(path for folder in (root, root / STATE) for path in folder.glob("*") if not path.is_dir())
    authorities = certificates(tsas)
    checker = _Checker(path, root, strict, trusted_keys(root, keys, roots), remote)
    chosen, pipeline = checker.expected, checker.pipeline
    findings = [*planted_keys(checker.workspace), *expected.missing(chosen, checker.locked, pipeline)]
    findings += expected.misplaced(pipeline)
    findings += expected.without_origin(chosen, pipeline, checker.workspace)
    findings += checker.findings()
    if testimony:
        findings += checker.compared_with(testimony, authorities)
    main = [name for name in chosen if name in pipeline and pipeline[name].file == MAIN.as_posix()]
    outs = [path for name in main for path in chosen[name].outs]
    here = [path for path in outs if checker.workspace.digest(path) is not None]
    none = len(here) < len(outs) and all(map(checker.workspace.is_tracked, here))
    return Report(
        merged(findings),
        len(main),
        len(checker.signers.keys() & main),
        [checker.signers[name] for name in main if checker.signers.get(name)],
        checker.read + ([f"witness {testimony}"] if testimony else []),
        checker.not_read,
        checker.workspace.state_of_commit(checker.commits, len(checker.code)),
        f"no outputs are here; {SETTINGS.remedies.missing}" if none else "",
        why_trusted(checker.workspace, checker.keys, keys),
    )


class _Checker:
    def __init__(self, path: str | Path | None, root: Path, strict: bool, keys: Keys, remote: Remote) -> None:
        self.root, self.strict, self.keys, self.remote = root, strict, keys, remote
        self.locked, self.pipeline = history.read_lock(root), read_pipelines(root)
        known = expected.with_missing(self.locked, self.pipeline)
        self.expected = known if path is None else history.ancestors(known, Path(path).as_posix())
        self.chosen = {name: stage for name, stage in self.expected.items() if name in self.locked}
        self.workspace, self.stores = Workspace(root), stores(root)
        near, far = ([each for each in self.stores if bool(each.folder) is is_near] for is_near in (True, False))
        refuse_pipes(store.here(root) for store in near)
        self.opened = {store.name: store.opened() for store in far} if remote != "no" else {}
        refreshed = [mirror.refresh(root, store, self.opened[store.name]) for store in far if self.opened]
        self.changed = [finding for mirrored in refreshed for finding in mirrored.findings]
        present = [store for store in self.stores if store.here(root).is_dir()]
        read = [store for store in self.stores if store in near or store in present or self.opened]
        self.objects = [Objects(store, root, self.workspace.read) for store in read]
        self.published = [Published(root, each, keys) for each in self.objects if each.store.name != "cache"]
        kind = {"no": "evidence of remote {}", "quick": "remote {} (listing)", "full": "remote {}"}[remote]
        self.read = ["workspace", *(_title(store) for store in near if store in present)]
        self.read += [kind.format(store.name) for store in far if self.opened or store in present]
        self.not_read = [f"{_title(store)} (no folder {store.folder})" for store in near if store not in present]
        self.not_read += [f"{_title(store)} ({store.address})" for store in far if not self.opened]
        self.records: dict[str, list[Record]] = {}
        self.signers: dict[str, list[str]] = {}
        """The trusted keys that signed the record of each stage that has one."""
        self.commits: set[str] = set()
        self.code: set[str] = set()
        """The commits of the recorded runs, and the files of their code that are different now."""

    def findings(self) -> Iterator[Finding]:
        """Every difference in the chosen stages, several for one cause."""
        logs = [(published, [*published.chain()]) for published in self.published]
        for name in self.chosen:
            found = entered_records(self.root, name)
            found += [record for published in self.published for record in published.records.get(name, {}).values()]
            self.records[name] = list({record.digest: record for record in found[::-1]}.values())[::-1]
        claims = [finding for stage in self._shown("workspace") for finding in self._stage(stage)]
        yield from claims
        yield from self._unsigned()
        blamed = {finding.subject for finding in claims if finding.level == "error"}
        for stage in self.chosen.values():
            yield from self._against_producers(stage, blamed)
        if any(sources.RAW in stage.outs for stage in self.chosen.values()):
            yield from sources.compared(self.workspace)
        yield from tampered_records(self.root, self.keys)
        places = [self.root / place for place in (RECORDS, EVIDENCE, SENT, SEEN, SETTINGS.keys)]
        yield from links_in([*places, *(each.folder / FOLDER for each in self.objects)], self.root)
        for objects in self.objects:
            yield from self._objects(objects)
        for published, of_log in logs:
            yield from [*of_log, *published.newest(self.locked)]
        yield from [*self.changed, *self.keys.refused()]
        yield from without_store(self.root, self.stores)
        entries = {each.objects.store.name: each.entries for each in self.published}
        for name, store in self.opened.items():
            far = FarObjects(self.root, name, store, self.remote == "full")
            yield from far.findings(self.chosen, entries.get(name, []), [*chain(*self.records.values())])

    def compared_with(self, testimony: str, tsas: Sequence[Certificate]) -> Iterator[Finding]:
        """Differences of the ledger and the logs from the notes of a witness."""
        runners = {key for keys in self.signers.values() for key in keys}
        read = [each for each in self.published if each.has_objects or self.opened]
        return compared(self.root, testimony, self.keys, runners, read, tsas)

    def _stage(self, stage: Locked) -> Iterator[Finding]:
        records = self.records[stage.name]
        record = witness(stage, records, self.workspace, self.keys)
        defined = self.pipeline.get(stage.name)
        claims = Claims(self.workspace, [each.folder for each in self.objects], stage, defined, record)
        yield from claims.findings()
        yield from unreproducible(stage, records)
        own = [record for record in records if record.path.is_relative_to(self.root / RECORDS)]
        yield from tampered_journals(stage, own, self.root)  # the journals of other machines are not here
        if record is not None and record.made(stage):
            self.code.update(changed := claims.changed_code())
            yield from claims.code(changed)
            yield from around(record, stage)
            yield from self._commit(record, stage)
            yield from self._signed(stage, record)
        elif record is None and stage.cmd:
            # The shipped data was made once, elsewhere: .dvc files name it and git holds them.
            level: Level = "error" if self.strict and not claims.made_once else "note"
            yield Finding(RECORDS.as_posix(), f"no record of the run in {history.MAIN_LOCK}", level, (stage.name,))

    def _commit(self, record: Record, stage: Locked) -> Iterator[Finding]:
        commit = record.content["git"]["commit"]
        if commit is not None:
            self.commits.add(commit)
        if commit is not None and not self.workspace.has_commit(commit):
            message = f"no branch or tag has commit {commit[:12]} of the run; fetch it, or run the pipeline again"
            yield Finding(RECORDS.as_posix(), message, "note", (stage.name,))

    def _signed(self, stage: Locked, record: Record) -> Iterator[Finding]:
        try:
            self.signers[stage.name] = signers_of(record, self.keys)
        except RefusedKeyError:
            pass  # ``findings`` names the key
        except DataError as error:
            yield Finding(RECORDS.as_posix(), str(error), stages=(stage.name,))

    def _unsigned(self) -> Iterator[Finding]:
        """The stages whose record no trusted key signed: among signed records, it may be forged."""
        is_odd = any(self.signers.values())
        message = f"{UNSIGNED}{', unlike others' if is_odd else ''}"
        for name in (name for name, keys in self.signers.items() if not keys):
            yield Finding(RECORDS.as_posix(), message, "error" if is_odd or self.strict else "note", (name,))

    def _against_producers(self, stage: Locked, blamed: set[str]) -> Iterator[Finding]:
        """Digests on which two stages of the locks differ, unless an edit of the path explains it."""
        for path, maker in history.other_makers(stage, self.locked):
            if any(history.overlap(path, each) for each in blamed):
                continue
            if stage.name == history.SHIPPED_POINTER:
                message = f"is shipped as {stage.deps[path] or 'nothing'}, {maker.name} made {maker.outs[path]}"
                yield Finding(history.as_shipped(path), message)
            else:
                yield disagreement(stage, path, maker)

    def _shown(self, place: str) -> Iterator[Locked]:
        """The chosen stages, with progress: reading the files of large models takes minutes."""
        with Progress(place, len(self.chosen), "stages") as progress:
            for stage in self.chosen.values():
                yield stage
                progress.advance()

    def _objects(self, objects: Objects) -> Iterator[Finding]:
        for stage in self._shown(_title(objects.store)) if objects.store.folder is not None else ():
            for path, md5 in stage.outs.items():
                yield from objects.damaged(md5, path)
                if stage.about(path).remote == objects.store.name:
                    yield from objects.missing(md5, path, stage.file)
        yield from objects.runs(self.chosen, self.records)


def _title(store: Store) -> str:
    return store.name if store.name == "cache" else f"remote {store.name}"


def disagreement(stage: Locked, path: str, maker: Locked) -> Finding:
    """The finding about an input that another stage made with different bytes."""
    message = f"{stage.name} read {path} as {stage.deps[path]}, {maker.name} made {maker.outs[path]}"
    return Finding(stage.file, message)
