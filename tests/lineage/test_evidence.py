"""What `check` says about the records of a small project: what they attest, who signed them, and who edited them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from pathfinder.core.io import sha256_file, write_json
from pathfinder.lineage.check import check
from pathfinder.lineage.publication import publication
from pathfinder.provenance.hashing import digest_path
from pathfinder.provenance.ledger import RECORDS, enter
from pathfinder.provenance.record import SIGNED
from pathfinder.provenance.signing import KEY_FILE, own_key, public_pem
from tests.lineage.small import (
    DATA,
    MODEL,
    RAW,
    SOUND,
    START,
    add_record,
    found,
    store,
)
from tests.support.miniature import GIT

CHANGES = ("open", "os.rename", "os.remove", "os.truncate")


def test_the_commit_of_a_run_must_be_on_a_branch_or_tag(root: Path) -> None:
    for words in (["init", "-q"], ["add", "params.yaml"], ["commit", "-qm", "one"]):
        subprocess.run([*GIT, *words], cwd=root, check=True)
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True).stdout
    line = "note: .pathfinder/lineage: no branch or tag has commit 000000000000 of the run; "
    assert not any("no branch or tag" in text for text in found(root)), "records without a commit"
    for year, commit in (("2027", head.strip()), ("2028", "0" * 40)):
        times = {"start": START.replace("2026", year), "end": START, "seconds": 1.0, "peak_rss_bytes": 1}
        add_record(root, "train", times=times, git={"commit": commit, "dirty": False, "changed": []})
        told = [text for text in found(root) if "no branch or tag" in text]
        assert told == ([] if commit in head else [f"{line}fetch it, or run the pipeline again (train)"])


def test_a_stage_without_a_record_is_a_note_and_with_strict_an_error(root: Path) -> None:
    shutil.rmtree(root / ".pathfinder")
    (note,) = [str(finding) for finding in check(None, root).findings]
    assert note == "note: .pathfinder/lineage: no record of the run in dvc.lock (download, train, world)"
    levels = {finding.stages: finding.level for finding in check(DATA, root, strict=True).findings}
    assert levels == {("world",): "note"}, "the shipped data was made once, elsewhere"
    assert [finding.level for finding in check(None, root, strict=True).findings] == ["error"]


def test_a_record_of_another_run_attests_nothing(root: Path) -> None:
    shutil.rmtree(root / ".pathfinder")
    add_record(root, "train", params={"rate": 0.25})
    report = check(MODEL, root)
    assert (report.attested, report.signers) == (0, [])
    (text,) = [str(finding) for finding in report.errors]
    assert "the record of the run has 0.25" in text


def test_what_a_run_used_beyond_its_stage_is_named(root: Path) -> None:
    shutil.rmtree(root / ".pathfinder")
    add_record(root, "train", unlisted_modules={"fractions (fractions.py)": "0" * 64})
    assert "error: fractions (fractions.py): the run loaded this module, " in "".join(found(root, MODEL))


def test_records_without_a_trusted_signature_are_notes_and_with_strict_errors(root: Path) -> None:
    shutil.rmtree(root / ".pathfinder")
    add_record(root, "train", is_signed=False)
    add_record(root, "download")
    text = ".pathfinder/lineage: the record is not signed by a trusted key (train)"
    assert found(root) == [f"note: {text}"]
    assert found(root, strict=True) == [f"error: {text}"]
    report = check(None, root)
    assert (report.attested, len(report.signers)) == (2, 1)
    assert "2 of 2 stages attested (1 signed by 1 key); " in report.summary()


@pytest.mark.parametrize(("year", "is_signed"), [("2027", False), ("2025", True)])
def test_of_several_records_of_a_run_the_newest_counts(root: Path, year: str, is_signed: bool) -> None:
    """The project's own record is of 2026 and signed."""
    times = {"start": START.replace("2026", year), "end": START, "seconds": 1.0, "peak_rss_bytes": 1}
    add_record(root, "train", is_signed=False, times=times)
    assert (found(root, MODEL) == []) is is_signed


def test_a_key_is_trusted_if_it_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = tmp_path / "public.pem"
    public.write_bytes(public_pem(own_key().public_key()))
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "none.pem"))
    assert "attested (none signed by a trusted key); " in check(None, root).summary()
    assert check(None, root, keys=[public]).summary() == SOUND


def test_an_edited_statement_is_an_error_and_its_stage_attested_but_not_signed(root: Path) -> None:
    train, download = (next((root / ".pathfinder/lineage" / s).glob(f"*{SIGNED}")) for s in ("train", "download"))
    train.write_text(download.read_text())
    report = check(None, root)
    (found,) = [finding for finding in report.errors if "is a statement about another record" in finding.message]
    assert (found.where, found.stages) == (".pathfinder/lineage", ("train",))
    assert (report.attested, len(report.signers)) == (2, 1)
    assert not any("is not signed" in finding.message for finding in report.findings)


def test_runs_of_the_same_inputs_with_other_outs_are_not_reproducible(root: Path) -> None:
    other = {MODEL: digest_path(root / RAW).as_json()}
    add_record(root, "train", outputs=other, environment={"cpu": "two"})
    (text,) = found(root)
    assert text.startswith("note: train: not reproducible: records ")
    assert text.endswith(f"but made different {MODEL}; environment.cpu 'one' and 'two'")


def test_an_edited_record_is_found(root: Path) -> None:
    (path,) = (root / ".pathfinder/lineage/train").glob("*.json")
    path.write_text(path.read_text().replace("one", "two"))
    assert "not the one in its name; it was edited" in "".join(found(root, RAW))


def test_a_journal_that_was_changed_after_the_run_is_found(root: Path) -> None:
    journal = root / ".pathfinder/train/answers.jsonl"
    journal.parent.mkdir()
    journal.write_text("{}\n")
    state = {"size": 3, "sha256": sha256_file(journal)}
    shutil.rmtree(root / ".pathfinder/lineage")
    times = {"start": START.replace("2026", "2027"), "end": START, "seconds": 1.0, "peak_rss_bytes": 1}
    uses = {".pathfinder/train/answers.jsonl": {"before": None, "after": state}}
    add_record(root, "train", times=times, journals=uses)
    assert [text for text in found(root, MODEL) if "error" in text] == []
    journal.write_text("[]\n")
    assert "error: .pathfinder/train/answers.jsonl: its first 3 bytes are not those" in "".join(found(root, MODEL))


def test_a_journal_of_a_killed_run_gives_no_alarm_about_a_run_elsewhere(root: Path) -> None:
    """Runs do not publish journals, so a journal here says nothing about a record from a remote."""
    journal = root / ".pathfinder/train/answers.jsonl"
    uses = {".pathfinder/train/answers.jsonl": {"before": None, "after": {"size": 3, "sha256": "1" * 64}}}
    shutil.rmtree(root / ".pathfinder/lineage")
    add_record(root, "download")
    add_record(root, "train", journals=uses)
    publish(root)
    shutil.rmtree(root / ".pathfinder")
    journal.parent.mkdir(parents=True)
    journal.write_text("[]\n")
    assert (found(root), check(None, root).attested) == ([], 2)


def status_if_killed_at(at: int, work: Callable[[], object]) -> int:
    """Do the work in a process that ends with status 1 before call ``at`` that changes or opens a file."""
    if (child := os.fork()) == 0:
        calls = count()
        sys.addaudithook(lambda event, _: os._exit(1) if event in CHANGES and next(calls) == at else None)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_run_that_is_killed_while_it_is_recorded_gives_no_alarm(root: Path) -> None:
    (path,) = (root / RECORDS / "train").glob("*.json")
    signed = path.with_suffix(SIGNED).read_text()
    ends: list[int] = []
    while 0 not in ends:
        text = path.read_text().replace(START, f"2025-01-01T00:00:{len(ends):02}+00:00")
        record, statement = (hashlib.sha256(each.encode()).hexdigest() for each in (text, signed))
        work = partial(enter, "train", record, statement, root, {".json": text, SIGNED: signed})
        ends.append(status_if_killed_at(len(ends), work))
        assert found(root) == [], len(ends)
    assert len(ends) > 10
    assert not list((root / RECORDS).rglob("*.new"))


def publish(root: Path) -> Path:
    """Write what a run publishes into the remote, as the first entry of its log."""
    manifest, evidence = publication(root)
    folder = root / "storage/pathfinder"
    text = json.dumps(manifest | {"key": None})
    for name, content in (evidence | {"manifests/x": text.encode()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    digest = sha256_file(folder / "manifests/x")
    (folder / "manifests/x").rename(folder / f"manifests/{digest}.json")
    write_json(folder / "log/00000001.json", {"manifest": digest, "number": 1, "previous": None})
    for path in (RAW, MODEL):
        store(root, path, "storage")
    return folder


def test_records_in_a_remote_attest_a_clone_without_its_own(root: Path) -> None:
    folder = publish(root)
    assert found(root) == []
    shutil.rmtree(root / ".pathfinder/lineage")
    assert (found(root), check(None, root).summary()) == ([], SOUND)
    (folder / "log/00000001.json").write_text("{}")
    assert "error: storage/pathfinder/log/00000001.json: " in "".join(found(root))
    assert check(None, root).attested == 0


def test_a_record_that_is_here_and_in_a_remote_counts_once(root: Path) -> None:
    publish(root)
    other = {MODEL: digest_path(root / RAW).as_json()}
    add_record(root, "train", outputs=other)
    assert len([text for text in found(root) if "not reproducible" in text]) == 1


def test_the_cache_is_no_remote_with_evidence(root: Path) -> None:
    log = root / ".dvc/cache/pathfinder/log/00000001.json"
    log.parent.mkdir(parents=True)
    log.write_text("{}")
    assert found(root) == []
