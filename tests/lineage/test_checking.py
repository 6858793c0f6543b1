"""What `check` says about a small project, one difference at a time; ``test_check`` and ``test_tampering`` run DVC.

The project takes milliseconds, so `make mutate` can try each change of ``pathfinder/lineage/check.py`` on these tests.
"""

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
from typing import Any

import pytest
import yaml

from pathfinder.core import progress
from pathfinder.core.io import sha256_file, write_json
from pathfinder.lineage.check import check
from pathfinder.lineage.publication import publication
from pathfinder.lineage.stores import object_file
from pathfinder.provenance.hashing import digest_path
from pathfinder.provenance.ledger import RECORDS, enter
from pathfinder.provenance.record import SIGNED
from pathfinder.provenance.signing import KEY_FILE, own_key, public_pem
from tests.lineage.small import DATA, MODEL, PRETRAINED, RAW, START, add_record, claim, store, write_project
from tests.support.miniature import GIT

NOTE = "note: .pathfinder/lineage: no record of the run in dvc.lock (world)"
"""What every check says: nobody has the record of the run that made the shipped data."""
CHANGES = ("open", "os.rename", "os.remove", "os.truncate")
SOUND = "2 of 2 stages attested by 1 key; workspace, cache, remote storage read; no git repository"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project."""
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key.pem"))
    write_project(tmp_path / "project")
    return tmp_path / "project"


def found(root: Path, path: str | None = None, **options: Any) -> list[str]:
    """The findings of a check apart from ``NOTE``."""
    return [str(finding) for finding in check(path, root, **options).findings if str(finding) != NOTE]


def edit_lock(root: Path, stage: str, edit: Any, file: str = "dvc.lock") -> None:
    content = yaml.safe_load((root / file).read_text())
    edit(content["stages"][stage])
    (root / file).write_text(yaml.safe_dump(content))


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


def test_a_changed_source_is_one_finding(root: Path) -> None:
    (root / RAW / "corpus/one.txt").write_text("two\n")
    assert sum(text.startswith(f"error: {RAW}/corpus/one.txt: ") for text in found(root)) == 1


def test_a_sound_project_is_sound_in_whole_and_in_part(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    whole = check()
    assert ([str(finding) for finding in whole.findings], whole.summary()) == ([NOTE], SOUND)
    part = check(Path(RAW))
    assert ([str(finding) for finding in part.findings], part.summary()) == ([NOTE], SOUND.replace("2 of 2", "1 of 1"))
    assert check("./data/").summary().startswith("0 of 0 stages attested; ")
    assert found(root, strict=True) == []


def test_only_stages_of_the_main_pipeline_count(root: Path) -> None:
    shutil.rmtree(root / ".pathfinder/lineage/train")
    (root / ".pathfinder/lineage/ledger.jsonl").unlink()
    report = check(None, root)
    assert (report.stages, report.attested, len(report.signers)) == (2, 1, 1)


def test_a_stage_that_a_lock_lacks_is_named_and_its_files_are_not_looked_for(root: Path) -> None:
    content = yaml.safe_load((root / "dvc.lock").read_text())
    del content["stages"]["train"]
    (root / "dvc.lock").write_text(yaml.safe_dump(content))
    text = "error: dvc.lock: lacks stages that dvc.yaml defines: they never ran, or were removed from it (train)"
    assert found(root) == found(root, MODEL) == [text]
    assert found(root, RAW) == []
    assert check(None, root).summary().startswith("1 difference; 1 of 2 stages attested by 1 key; ")


def test_an_input_without_an_origin_is_named(root: Path) -> None:
    (root / "data.dvc").unlink()
    (text,) = found(root, RAW)
    assert text.startswith("error: data: has no origin: ")
    assert text.endswith(" (download)")


def test_a_remote_on_another_machine_is_said_not_to_be_read(root: Path) -> None:
    config = root / ".dvc/config"
    config.write_text(config.read_text() + "['remote \"far\"']\n    url = s3://bucket/prefix\n")
    report = check(None, root)
    assert report.not_read == ["remote far (s3://bucket/prefix)"]
    assert report.read == ["workspace", "cache", "remote storage"]


def test_every_claim_about_a_file_is_compared_with_its_bytes(root: Path) -> None:
    (root / MODEL / "weights.txt").write_text("0.7\n")
    (text,) = found(root)
    assert text.startswith(f"error: {MODEL}/weights.txt: md5 is ")
    assert text.endswith(" (train)")
    assert found(root, RAW) == []


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


def test_damaged_objects_of_the_cache_and_a_remote_are_found(root: Path) -> None:
    store(root, MODEL, "storage")
    assert found(root) == []
    md5 = digest_path(root / MODEL / "weights.txt").md5
    for folder in (".dvc/cache", "storage"):
        object_file(root / folder, md5).write_text("0.7\n")
        assert f"{folder}/files/md5/{md5[:2]}/{md5[2:]}: md5 is " in "".join(found(root))
        assert found(root, RAW) == []
        object_file(root / folder, md5).write_text("0.5\n")


def test_the_cache_may_be_the_one_that_all_projects_of_a_user_share(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("[cache]\n    dir = ~/shared\n")
    cache = (root / ".dvc/cache").rename(tmp_path / "shared")
    assert found(root) == []
    object_file(cache, digest_path(root / MODEL).md5).write_text("[]")
    assert "error: cache files/md5/" in "".join(found(root))


def test_objects_of_an_out_that_names_its_remote_must_be_there(root: Path) -> None:
    edit_lock(root, "train", lambda stage: stage["outs"][0].update(remote="storage"))
    (text,) = found(root)
    assert text.startswith("error: storage/files/md5/")
    assert text.endswith(f": is missing; it belongs to {MODEL}, which dvc.lock names; push it again")
    store(root, MODEL, "storage")
    assert found(root) == []


def test_a_cached_run_that_would_restore_something_else_is_found(root: Path) -> None:
    entry = yaml.safe_load((root / "dvc.lock").read_text())["stages"]["train"]
    entry["outs"][0]["md5"] = "1" * 32 + ".dir"
    file = root / ".dvc/cache/runs/00/11/22"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(entry))
    text = (
        f"error: .dvc/cache/runs/00/11/22: would restore another {MODEL} than the recorded run made; delete the entry"
    )
    assert found(root) == [f"{text} (train)"]


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
    """Journals are not published, so one that is here is not that of a record from a remote."""
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


def test_two_stages_that_differ_about_a_path_are_named_unless_an_edit_of_the_path_explains_it(root: Path) -> None:
    """The out of a stage of the pretraining pipeline that its own file does not name any more."""

    def read_as_another(stage: dict[str, Any]) -> None:
        stage["deps"] = [{"path": path, "md5": "1" * 32 + ".dir"} for path in (MODEL, RAW)]

    edit_lock(root, "world", read_as_another, "infra/pretraining/dvc.lock")
    made = digest_path(root / MODEL).md5
    text = f"error: infra/pretraining/dvc.lock: world read {MODEL} as {'1' * 32}.dir, train made {made}"
    other = f"error: infra/pretraining/dvc.lock: world read {RAW} as {'1' * 32}.dir, download made "
    assert text in found(root)
    (root / MODEL / "weights.txt").write_text("0.7\n")
    assert text not in found(root), "the model was edited, which says enough"
    assert other in "".join(found(root))


def test_data_that_differs_from_what_the_pretraining_pipeline_made_is_named(root: Path) -> None:
    def made_another(stage: dict[str, Any]) -> None:
        stage["outs"][0]["md5"] = "1" * 32 + ".dir"

    shipped = digest_path(root / DATA / "corpus").md5
    edit_lock(root, "world", made_another, "infra/pretraining/dvc.lock")
    texts = found(root)
    assert f"error: {DATA}/corpus: is shipped as {shipped}, world made {'1' * 32}.dir" in texts, texts
    assert PRETRAINED not in "".join(texts)
    other = PRETRAINED.replace("corpus", "other")
    shutil.copytree(root / DATA, root / other)
    made = claim(root, other)
    edit_lock(root, "world", lambda stage: stage["outs"].append(made), "infra/pretraining/dvc.lock")
    assert f"error: {DATA}/other: is shipped as nothing, world made {made['md5']}" in found(root)


@pytest.mark.parametrize(("kind", "folders"), [("shipped", ("artifacts/raw", "data")), ("hub", ("artifacts/raw",))])
def test_sources_are_compared_with_their_manifest(root: Path, kind: str, folders: tuple[str, ...]) -> None:
    manifest = json.loads((root / RAW / "manifest.json").read_text())
    now = manifest["corpus"]["files"]["one.txt"]["sha256"]
    manifest["corpus"]["files"]["one.txt"]["sha256"] = "1" * 64
    manifest["corpus"]["files"]["two.txt"] = {"sha256": "2" * 64, "bytes": 1}
    manifest["corpus"]["kind"] = kind
    write_json(root / RAW / "manifest.json", manifest)
    expected = []
    for folder in folders:
        message = f"sha256 is {now}, the manifest of sources has {'1' * 64}"
        expected.append(f"error: {folder}/corpus/one.txt: {message}")
        expected.append(f"error: {folder}/corpus/two.txt: is missing, but the manifest of sources lists it")
    assert [text for text in found(root, RAW) if "the manifest of sources" in text] == expected


def test_a_source_that_is_missing_is_one_finding_with_the_stage_that_reads_it(root: Path) -> None:
    names = [f"{RAW}/corpus/one.txt", f"{RAW}/manifest.json"]
    pipeline = yaml.safe_load((root / "dvc.yaml").read_text())
    pipeline["stages"]["train"]["deps"] += names
    (root / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    edit_lock(root, "train", lambda stage: stage["deps"].extend(claim(root, name) for name in names))
    for name in names:
        (root / name).rename(root / "away")
        texts = [text for text in found(root) if text.startswith(f"error: {name}: is missing")]
        assert sum("dvc pull" in text for text in texts) == 1, texts
        assert sum("manifest of sources" in text for text in texts) == 0, texts
        (root / "away").rename(root / name)


def test_a_manifest_that_is_missing_or_broken_is_named(root: Path) -> None:
    file = root / RAW / "manifest.json"
    file.unlink()
    assert f"error: {RAW}/manifest.json: is missing; get it with `dvc pull` or `dvc repro`" in found(root)
    write_json(file, [])
    assert any(line.startswith(f"error: {RAW}/manifest.json: not a manifest of sources: ") for line in found(root))
    assert not any("manifest" in line for line in found(root, DATA)), "this part has no sources"


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


def test_a_check_that_takes_long_shows_its_progress(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(None, root)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_QUIET_S", -1.0)
    check(None, root)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        f"{place}: 4/4 stages" for place in ("workspace", "cache", "remote storage")
    ]


def test_the_cache_is_no_remote_with_evidence(root: Path) -> None:
    log = root / ".dvc/cache/pathfinder/log/00000001.json"
    log.parent.mkdir(parents=True)
    log.write_text("{}")
    assert found(root) == []
