"""Findings of `check` about the records of a small project: what they attest, who signed them, and who edited them."""

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

from evidence.audit.records import records_of
from evidence.formats.page.nodes import Nodes
from evidence.record.ledger import RECEIPT, RECORDS, SIGNED, enter, enter_received
from evidence.record.signing import KEY_FILE, own_key, public_pem, sign
from evidence.record.statement import PAYLOAD_TYPE, RECEIPT_TYPE, statement_of
from evidence.remote.publication import publication
from evidence.verbs.check import check
from evidence.verbs.views import rows_of
from ground.hashing import digest_path
from ground.io import sha256_file, write_json
from tests.evidence.small import (
    DATA,
    MODEL,
    RAW,
    SOUND,
    START,
    add_record,
    files_of,
    found,
    store,
)
from tests.support.miniature import GIT

CHANGES = ("open", "os.rename", "os.remove", "os.truncate")


def test_the_commit_of_a_run_must_be_on_a_branch_or_tag(small: Path) -> None:
    for words in (["init", "-q"], ["add", "params.yaml"], ["commit", "-qm", "one"]):
        subprocess.run([*GIT, *words], cwd=small, check=True)
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=small, check=True, capture_output=True, text=True).stdout
    line = "note: .pathfinder/lineage: no branch or tag has commit 000000000000 of the run; "
    assert not any("no branch or tag" in text for text in found(small)), "records without a commit"
    for year, commit in (("2027", head.strip()), ("2028", "0" * 40)):
        times = {"start": START.replace("2026", year), "end": START, "seconds": 1.0, "peak_rss_bytes": 1}
        add_record(small, "train", times=times, git={"commit": commit, "dirty": False, "changed": []})
        told = [text for text in found(small) if "no branch or tag" in text]
        assert told == ([] if commit in head else [f"{line}fetch it, or run the pipeline again (train)"])


def test_a_stage_without_a_record_is_a_note_and_with_strict_an_error(small: Path) -> None:
    shutil.rmtree(small / ".pathfinder")
    (note,) = [str(finding) for finding in check(None, small).findings]
    assert note == "note: .pathfinder/lineage: no record of the run in dvc.lock (download, train, world)"
    levels = {finding.stages: finding.level for finding in check(DATA, small, strict=True).findings}
    assert levels == {("world",): "note"}, "the shipped data was made once, elsewhere"
    assert [finding.level for finding in check(None, small, strict=True).findings] == ["error"]


def test_a_record_of_another_run_attests_nothing(small: Path) -> None:
    shutil.rmtree(small / ".pathfinder")
    add_record(small, "train", params={"rate": 0.25})
    report = check(MODEL, small)
    assert (report.attested, report.signers) == (0, [])
    (text,) = [str(finding) for finding in report.errors]
    assert "the record of the run has 0.25" in text


def test_a_target_may_be_named_from_the_current_folder(small: Path) -> None:
    nodes = Nodes(small, f"./{MODEL}//weights.txt")
    assert (nodes.lineage.target, nodes.tables) == (f"{MODEL}/weights.txt", f"{MODEL}/weights.txt")


@pytest.mark.parametrize("text", ["runs: 10", "runs:", "rate: 1", None])
def test_a_project_whose_parameters_name_no_runs_has_none(small: Path, text: str | None) -> None:
    (small / "params.yaml").write_text(f"a: 1\n{text}\n") if text else (small / "params.yaml").unlink()
    assert rows_of("runs", small) == []


def test_what_a_run_used_beyond_its_stage_is_named(small: Path) -> None:
    shutil.rmtree(small / ".pathfinder")
    add_record(small, "train", unlisted_modules={"fractions (fractions.py)": "0" * 64})
    assert "error: fractions (fractions.py): the run loaded this module, " in "".join(found(small, MODEL))


def test_records_without_a_trusted_signature_are_notes_and_with_strict_or_next_to_signed_ones_errors(
    small: Path,
) -> None:
    shutil.rmtree(small / ".pathfinder")
    add_record(small, "train", is_signed=False)
    text = ".pathfinder/lineage: the record is not signed by a trusted key"
    assert f"note: {text} (train)" in found(small)
    assert f"error: {text} (train)" in found(small, strict=True)
    assert check(None, small).summary().startswith("UNSIGNED: 0 of 2 stages attested (1 recorded, but not signed")
    add_record(small, "download")
    assert found(small) == [f"error: {text}, unlike others (train)"]
    assert (
        check(None, small)
        .summary()
        .startswith("ALTERED: 1 difference; 1 of 2 stages attested by this user's own key (1 ")
    )
    assert found(small, RAW) == []


def test_a_stage_whose_record_was_removed_with_its_line_is_not_attested(small: Path) -> None:
    shutil.rmtree(small / ".pathfinder")
    add_record(small, "download")
    assert check(None, small).verdict == "UNSIGNED"
    assert check(RAW, small).verdict == "SOUND"


@pytest.mark.parametrize("year", ["2027", "2025"])
def test_of_several_records_of_a_run_a_signed_one_counts(small: Path, year: str) -> None:
    """The project's own record is of 2026 and signed."""
    (signed,) = (small / RECORDS / "train").glob("*.json")
    times = {"start": START.replace("2026", year), "end": START, "seconds": 1.0, "peak_rss_bytes": 1}
    add_record(small, "train", is_signed=False, times=times)
    assert found(small, MODEL) == []
    assert [record.digest == signed.stem for record in records_of(small, "train")] == [True, False]


def test_a_key_is_trusted_if_it_is_named(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = tmp_path / "public.pem"
    public.write_bytes(public_pem(own_key().public_key()))
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "none.pem"))
    assert check(None, small).summary().startswith("UNSIGNED: 0 of 2 stages attested (2 recorded, ")
    named = f"public (--key {public})"
    assert check(None, small, keys=[public]).summary() == SOUND.replace("this user's own key", named)


def test_an_edited_statement_is_an_error_and_its_stage_not_attested(small: Path) -> None:
    train, download = (next((small / ".pathfinder/lineage" / s).glob(f"*{SIGNED}")) for s in ("train", "download"))
    train.write_text(download.read_text())
    report = check(None, small)
    (found,) = [finding for finding in report.errors if "is a statement about another record" in finding.message]
    assert (found.where, found.stages) == (".pathfinder/lineage", ("train",))
    assert report.attested == 1
    assert not any("is not signed" in finding.message for finding in report.findings)


def test_runs_of_the_same_inputs_with_other_outs_are_not_reproducible(small: Path) -> None:
    other = {MODEL: digest_path(small / RAW).as_json()}
    add_record(small, "train", outputs=other, environment={"cpu": "two"})
    (text,) = found(small)
    assert text.startswith("note: train: not reproducible: records ")
    assert text.endswith(f"but made different {MODEL}; environment.cpu 'one' and 'two'")


def test_an_edited_record_is_found(small: Path) -> None:
    (path,) = (small / ".pathfinder/lineage/train").glob("*.json")
    path.write_text(path.read_text().replace("one", "two"))
    assert "not the one in its name; it was edited" in "".join(found(small, RAW))


def test_a_journal_that_was_changed_after_the_run_is_found(small: Path) -> None:
    journal = small / ".pathfinder/train/answers.jsonl"
    journal.parent.mkdir()
    journal.write_text("{}\n")
    state = {"size": 3, "sha256": sha256_file(journal)}
    shutil.rmtree(small / ".pathfinder/lineage")
    times = {"start": START.replace("2026", "2027"), "end": START, "seconds": 1.0, "peak_rss_bytes": 1}
    uses = {".pathfinder/train/answers.jsonl": {"before": None, "after": state}}
    add_record(small, "train", times=times, journals=uses)
    assert [text for text in found(small, MODEL) if "error" in text] == []
    journal.write_text("[]\n")
    assert "error: .pathfinder/train/answers.jsonl: its first 3 bytes are not those" in "".join(found(small, MODEL))


def test_a_journal_of_a_killed_run_gives_no_alarm_about_a_run_elsewhere(small: Path) -> None:
    """Runs do not publish journals, so a journal here says nothing about a record from a remote."""
    journal = small / ".pathfinder/train/answers.jsonl"
    uses = {".pathfinder/train/answers.jsonl": {"before": None, "after": {"size": 3, "sha256": "1" * 64}}}
    shutil.rmtree(small / ".pathfinder/lineage")
    add_record(small, "download")
    add_record(small, "train", journals=uses)
    publish(small)
    shutil.rmtree(small / ".pathfinder")
    journal.parent.mkdir(parents=True)
    journal.write_text("[]\n")
    assert (found(small), check(None, small).attested) == ([], 2)


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


def test_a_run_that_is_killed_while_it_is_recorded_gives_no_alarm(small: Path) -> None:
    (path,) = (small / RECORDS / "train").glob("*.json")
    ends: list[int] = []
    while 0 not in ends:
        text = path.read_text().replace(START, f"2025-01-01T00:00:{len(ends):02}+00:00")
        record = hashlib.sha256(text.encode()).hexdigest()
        work = partial(enter, "train", record, partial(files_of, text, True), small)
        ends.append(status_if_killed_at(len(ends), work))
        assert found(small) == [], len(ends)
    assert len(ends) > 10
    assert not list((small / RECORDS).rglob("*.new"))


def publish(small: Path) -> Path:
    """Write what a run publishes into the remote, as the first entry of its log."""
    manifest, evidence = publication(small)
    folder = small / "storage/pathfinder"
    text = json.dumps(manifest | {"key": None})
    for name, content in (evidence | {"manifests/x": text.encode()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    digest = sha256_file(folder / "manifests/x")
    (folder / "manifests/x").rename(folder / f"manifests/{digest}.json")
    write_json(folder / "log/00000001.json", {"manifest": digest, "number": 1, "previous": None})
    for path in (RAW, MODEL):
        store(small, path, "storage")
    return folder


def test_records_in_a_remote_attest_a_clone_without_its_own(small: Path) -> None:
    folder = publish(small)
    assert found(small) == []
    shutil.rmtree(small / ".pathfinder/lineage")
    assert (found(small), check(None, small).summary()) == ([], SOUND)
    (folder / "log/00000001.json").write_text("{}")
    assert "error: storage/pathfinder/log/00000001.json: " in "".join(found(small))
    assert check(None, small).attested == 0


def test_a_record_that_is_here_and_in_a_remote_counts_once(small: Path) -> None:
    publish(small)
    other = {MODEL: digest_path(small / RAW).as_json()}
    add_record(small, "train", outputs=other)
    assert len([text for text in found(small) if "not reproducible" in text]) == 1


def test_a_record_of_another_machine_has_a_receipt_for_this_ledger(small: Path) -> None:
    text = next((small / RECORDS / "train").glob("*.json")).read_text().replace(START, f"2025{START[4:]}")
    record, made = hashlib.sha256(text.encode()).hexdigest(), partial(files_of, text, True)
    enter_received("train", record, made("1" * 64), small)
    add_record(small, "train", times={"start": f"2027{START[4:]}", "end": START, "seconds": 1.0, "peak_rss_bytes": 1})
    assert found(small) == []
    receipt = small / RECORDS / f"train/{record}{RECEIPT}"
    content = receipt.read_text()
    receipt.unlink()
    (text,) = found(small)
    says = "does not follow the line that the record's statement names; "
    assert text.startswith(f"error: .pathfinder/lineage/ledger.jsonl:3: {says}")
    receipt.write_text(content.replace('"sig": "', '"sig": "A'))
    assert "received.dsse: " in "".join(found(small))
    receipt.write_text(json.dumps(sign(b"[]", RECEIPT_TYPE)))
    assert found(small) == [text], "a receipt that is no object does not count"


def test_a_statement_of_an_older_version_names_no_ledger_and_stays_valid(small: Path) -> None:
    text = next((small / RECORDS / "train").glob("*.json")).read_text().replace(START, f"2027{START[4:]}")
    record, content = hashlib.sha256(text.encode()).hexdigest(), json.loads(text)
    statement = json.dumps(sign(json.dumps(statement_of(content, record, {})).encode(), PAYLOAD_TYPE))
    enter("train", record, lambda _: {".json": text, SIGNED: statement}, small)
    assert (found(small), check(None, small).verdict) == ([], "SOUND")


def test_the_cache_is_no_remote_with_evidence(small: Path) -> None:
    log = small / ".dvc/cache/pathfinder/log/00000001.json"
    log.parent.mkdir(parents=True)
    log.write_text("{}")
    assert found(small) == []


def test_records_that_the_ledger_does_not_name_are_found_in_the_order_of_their_names(small: Path) -> None:
    folder = small / RECORDS / "train"
    for number in range(20):
        text = json.dumps(json.loads(next(folder.glob("*.json")).read_text()) | {"notes": {"number": number}})
        (folder / f"{hashlib.sha256(text.encode()).hexdigest()}.json").write_text(text)
    told = [line.partition(": was not")[0] for line in found(small) if "the ledger does not name it" in line]
    assert (len(told), told) == (20, sorted(told))
