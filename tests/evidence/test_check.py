"""How differences are reported: levels, causes, consumers, exit statuses. ``test_tampering`` plants the differences."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from evidence.__main__ import app
from evidence.audit.findings import Finding, listed, merged
from evidence.record.ledger import LEDGER, enter
from evidence.record.reading import read_records
from evidence.record.signing import KEY_FILE, TRUSTED, own_key, public_pem
from evidence.verbs.check import check
from ground.hashing import digest_path
from ground.io import DataError
from tests.support.miniature import GIT, dvc


def errors(project: Path, path: str | None = None) -> list[str]:
    return [str(finding) for finding in check(path, project).errors]


def command(project: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.chdir(project)
    return CliRunner().invoke(app, ["check", *words])


def rewritten(project: Path, stage: str, **changes: object) -> None:
    """A second, proper record of a stage with other contents."""
    (record,) = read_records(project, stage)
    text = json.dumps(record.content | changes)
    digest = hashlib.sha256(text.encode()).hexdigest()
    record.path.with_name(f"{digest}.json").write_text(text)
    enter(stage, digest, lambda _: {}, project)


def test_a_sound_run_ends_with_what_was_read(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = command(made, monkeypatch)
    assert result.exit_code == 0
    (line,) = result.output.splitlines()
    assert line.startswith("SOUND: 3 of 3 stages attested by this user's own key; workspace, cache read; commit ")


def test_the_exit_status_tells_tampering_from_a_check_that_was_not_possible(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "models/full/weights.txt").write_text("better weights")
    result = command(project, monkeypatch)
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith(
        "ALTERED: 1 difference; 3 of 3 stages attested by this user's own key; "
    )
    assert command(project, monkeypatch, "models/plain").exit_code == 0
    (project / "dvc.lock").unlink()
    result = command(project, monkeypatch)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: could not check: dvc.lock: no such file; ")
    assert result.stdout.splitlines() == [
        "UNREADABLE: dvc.lock: no such file; change to the project's folder or, if no stage has run, run the pipeline "
        "with `pathfinder run`",
    ]


@pytest.mark.parametrize("words", [["models/full"], ["--strict"], ["--remote"], ["--full"]])
def test_a_check_of_all_commits_refuses_what_it_does_not_do(
    project: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    result = command(project, monkeypatch, "--all-commits", *words)
    assert result.exit_code == 2
    assert "takes no path and only --key, --root-key and --json" in " ".join(result.stderr.replace("│", " ").split())


def test_a_newer_recorder_is_a_note_and_the_summary_counts_commits_and_code(project: Path) -> None:
    assert check(None, project).summary().endswith("with uncommitted changes: dvc.lock")
    for name in ("evidence/record/record.py", "evidence/record/stage.py"):
        (project / name).write_text("# newer\n")
    for words in (["add", "-A"], ["commit", "-qm", "later"]):
        subprocess.run([*GIT, *words], cwd=project, check=True)
    report = check(None, project)
    assert list(map(str, report.findings)) == [
        "note: evidence: later commits changed files of the recorder since the run: evidence/record/record.py, "
        "evidence/record/stage.py (download, train@full, train@plain)"
    ]
    assert report.summary().startswith("SOUND: ")
    assert report.summary().endswith(" clean, 1 commit after the runs, 2 code files changed since")


def test_one_cause_is_one_finding_with_its_consumers(project: Path) -> None:
    (project / "ground/io.py").write_text("")
    (found,) = errors(project)
    assert found.startswith("error: ground/io.py: md5 is d41d8cd98f00b204e9800998ecf8427e, the listing of ")
    assert found.endswith("(download, train@full, train@plain)")
    assert listed("abcdef") == "a, b and 4 more"


def test_of_several_findings_for_a_cause_the_most_telling_is_kept() -> None:
    note = Finding("x", "differs", "note", ("a",), "bytes")
    weak, strong = (
        Finding("x", "differs", stages=("b",), cause="bytes"),
        Finding("x", "forged", "error", (), "bytes", 0),
    )
    (found,) = merged([note, weak, strong, weak])
    assert (found.message, found.level, found.stages) == ("forged", "error", ("a", "b"))


def test_without_a_listing_the_room_is_named(project: Path) -> None:
    (project / "pathfinder/mixing/mix.py").write_text("")
    assert errors(project, "models/full")[0].startswith("error: pathfinder/mixing/mix.py: md5 is")
    for file in (project / ".pathfinder/lineage").rglob("*.json*"):
        file.unlink()
    (found,) = errors(project, "models/full")
    assert found.startswith("error: pathfinder/mixing: md5 is")


def test_a_missing_file_and_a_new_file_of_a_room_are_named(project: Path) -> None:
    (project / "pathfinder/mixing/mix.py").rename(project / "pathfinder/mixing/blend.py")
    new, old = errors(project, "models/full")
    assert new.startswith("error: pathfinder/mixing/blend.py: md5 is")
    assert "does not list it" in new
    assert old.startswith("error: pathfinder/mixing/mix.py: is missing; dvc.lock and the record of the run list it")


def test_a_missing_file_need_not_be_deleted(project: Path) -> None:
    (project / "models/full/weights.txt").rename(project / "models/full/more.txt")
    new, old = errors(project, "models/full")
    assert "; to restore it, delete it and run `dvc checkout models/full` (" in new
    assert "weights.txt: is missing; " in old
    assert "; to restore it, run `dvc checkout models/full` (" in old


def test_a_changed_file_is_named_with_its_remedy(project: Path) -> None:
    (project / "models/full/weights.txt").write_text("better weights")
    (project / "ground/io.py").write_text("")
    code, weights = sorted(errors(project, "models/full"), key=lambda line: "weights" in line)
    assert "; restore it from git, or run the pipeline again (" in code
    assert "; to restore it, delete it and run `dvc checkout models/full` (" in weights
    subprocess.run([*GIT, "commit", "-qam", "later"], cwd=project, check=True)
    (code, _) = sorted(errors(project, "models/full"), key=lambda line: "weights" in line)
    assert re.search(r", in git since commit [0-9a-f]+ of [0-9-]+ by t; run the pipeline again \(", code)
    shutil.rmtree(project / "models/full")
    dvc(project, "checkout", "-q", "models/full")
    assert len(errors(project, "models/full")) == 1


def test_a_clone_without_outs_has_one_line_for_all_of_them(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("models", "metrics", "artifacts"):
        shutil.rmtree(project / name)
    result = command(project, monkeypatch)
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == (
        "UNREADABLE: no outputs are here; restore a published run with `pathfinder pull`, or run the pipeline with "
        "`pathfinder run`"
    )
    assert "missing" not in result.output
    assert json.loads(command(project, monkeypatch, "--json").output)["verdict"] == "UNREADABLE"


def test_settings_that_git_holds_cannot_be_deleted(project: Path) -> None:
    """Without them, records and keys are read in the default places."""
    (project / "evidence.toml").unlink()
    assert [(each.where, each.message) for each in check(None, project).errors] == [
        ("evidence.toml", "is not the file that git holds; commit it, or restore it from git")
    ]


def test_only_the_ancestors_of_the_path_are_checked(project: Path) -> None:
    (project / "models/plain/weights.txt").write_text("worse weights")
    assert errors(project, "models/full") == []
    assert errors(project, "models/plain")


def test_a_stage_that_the_lock_lacks_can_be_asked_for(project: Path) -> None:
    (project / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    (found,) = errors(project, "models/full")
    assert found == (
        "error: dvc.lock: lacks stages that dvc.yaml defines: they never ran, or were removed from it "
        "(download, train@full)"
    )


def test_a_damaged_remote_object_is_found_although_dvc_does_not_see_it(project: Path) -> None:
    dvc(project, "remote", "add", "-d", "-q", "storage", "storage")
    dvc(project, "push", "-q")
    assert errors(project) == []
    md5 = digest_path(project / "metrics/train/full.json").md5
    file = project / "storage/files/md5" / md5[:2] / md5[2:]
    file.chmod(0o644)
    file.write_text('{"loss": 0.1}\n')
    file.chmod(0o444)
    assert "in sync" in dvc(project, "status", "-c")
    assert any("storage/files" in text for text in errors(project))


def test_a_remote_on_another_machine_is_said_not_to_be_read(project: Path) -> None:
    config = project / ".dvc/config"
    config.write_text(config.read_text() + "['remote \"far\"']\n    url = s3://bucket/prefix\n")
    assert "; not read: remote far (s3://bucket/prefix); " in check(None, project).summary()


def test_a_stage_without_a_record_is_a_note_and_with_strict_an_error(project: Path) -> None:
    for file in (project / ".pathfinder/lineage").rglob("*.json*"):
        file.unlink()
    report = check("models/full", project)
    assert (report.attested, report.stages, report.errors) == (0, 2, [])
    (found,) = check("models/full", project, strict=True).errors
    assert str(found) == "error: .pathfinder/lineage: no record of the run in dvc.lock (download, train@full)"


@pytest.mark.parametrize(("cpu", "level"), [("another", "note"), (None, "error")])
def test_runs_of_the_same_inputs_with_other_outputs_are_not_reproducible(
    project: Path, cpu: str | None, level: str
) -> None:
    """Both environments are named where they differ; if they do not, nothing explains the difference."""
    (record,) = read_records(project, "train@full")
    outputs, environment = json.loads(json.dumps([record.content["outputs"], record.content["environment"]]))
    outputs["models/full"]["md5"] = "1" * 32 + ".dir"
    before = environment["cpu"]
    environment["cpu"] = cpu or before
    rewritten(project, "train@full", outputs=outputs, environment=environment)
    (found,) = check(None, project).findings
    assert (found.where, found.level) == ("train@full", level)
    assert "have the same inputs, but made different models/full" in found.message
    assert found.message.endswith(f"cpu {before!r} and 'another'" if cpu else "; nothing else differs")


def test_a_lock_without_an_own_record_is_compared_with_the_nearest_one(project: Path) -> None:
    """Two parameters and their lock are changed together; the record of the run still holds both old values."""
    for name in ("params.yaml", "dvc.lock"):
        text = (project / name).read_text(encoding="utf-8")
        (project / name).write_text(text.replace("0.5", "0.7").replace("Ünïcode", "Ascii"), encoding="utf-8")
    rate, note = errors(project)
    assert "train.rate is 0.7 here and in dvc.lock, the record of the run has 0.5: changed after the run" in rate
    assert "train.note is Ascii <+> here and in dvc.lock, the record of the run has Ünïcode <+>" in note
    assert rate.endswith("(train@full, train@plain)")


def test_a_rerun_after_a_changed_parameter_is_clean(project: Path) -> None:
    (project / "params.yaml").write_text("train: {rate: 0.25, note: x}\n")
    dvc(project, "repro", "-q")
    assert check(None, project).findings == []
    assert len(list(read_records(project, "train@full"))) == 2


def test_records_without_a_schema_do_not_excuse_a_missing_ledger(project: Path) -> None:
    (project / LEDGER).unlink()
    for path in list((project / ".pathfinder/lineage").rglob("*.json")):
        content = json.loads(path.read_text())
        del content["schema"]
        text = json.dumps(content)
        path.unlink()
        path.with_name(f"{hashlib.sha256(text.encode()).hexdigest()}.json").write_text(text)
    report = check(None, project)
    (missing,) = report.errors
    assert missing.message == "is missing, but records of its time exist"
    assert {finding.message for finding in report.findings} > {"the record is not signed by a trusted key"}
    assert report.summary().startswith(
        "ALTERED: 1 difference; 0 of 3 stages attested (3 recorded, but not signed by a trusted key)"
    )


def test_records_of_another_key_are_attested_when_it_is_named(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, own = tmp_path / "runner.pem", own_key().public_key()
    public.write_bytes(public_pem(own))
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "reader.pem"))
    result = command(project, monkeypatch)
    assert (result.exit_code, result.output.splitlines()[-1].partition(" ")[0]) == (3, "UNSIGNED:")
    assert not (tmp_path / "reader.pem").exists()
    report = check(None, project, strict=True, keys=[public])
    assert report.findings == []
    assert report.summary().startswith(f"SOUND: 3 of 3 stages attested by runner (--key {public}); ")
    public.write_bytes(public.read_bytes().replace(b"\n", b"\r\n"))
    assert check(None, project, strict=True, keys=[public]).verdict == "SOUND", "as a mail program may leave the file"
    public.write_bytes(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    with pytest.raises(DataError, match=r"runner\.pem: is not a public key in PEM"):
        check(None, project, keys=[public])
    public.write_bytes(public_pem(own))
    key = project / TRUSTED / "runner.pem"
    key.parent.mkdir(parents=True)
    key.write_bytes(public.read_bytes().replace(b"\n", b"\r\n"))
    assert f"attested by runner ({TRUSTED}/runner.pem in no commit); " in check(None, project).summary()
    with pytest.raises(DataError, match=r"none\.pem: cannot be read"):
        check(None, project, keys=[tmp_path / "none.pem"])


def test_a_key_is_named_with_the_commit_that_put_it_in_place(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that someone swapped for their own under a known name would attest forged runs as before."""
    key, own = project / TRUSTED / "gpu.pem", public_pem(own_key().public_key())
    key.parent.mkdir(parents=True)
    for author, content in (("A. Honest", b"a different key"), ("M. Allory", own), ("A. Honest", None)):
        if content is None:
            (project / "later.txt").touch()
        else:
            key.write_bytes(content)
        subprocess.run([*GIT, "add", "-A"], cwd=project, check=True)
        subprocess.run([*GIT, "commit", "-qm", "change", "--author", f"{author} <a@b.c>"], cwd=project, check=True)
    commit = subprocess.check_output([*GIT, "log", "-1", "--skip=1", "--format=%h of %as"], cwd=project, text=True)
    named = f"gpu ({TRUSTED}/gpu.pem since commit {commit.strip()} by M. Allory)"
    assert f"SOUND: 3 of 3 stages attested by {named}; " in check(None, project).summary()
    shutil.rmtree(project / ".git")
    assert f"attested by gpu ({TRUSTED}/gpu.pem in no commit); " in check(None, project).summary()
