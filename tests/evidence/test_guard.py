"""Nothing is taken from a remote but what its signed log names: the guard of ``pathfinder pull`` and ``run --pull``."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import flows.cli
from evidence import __main__ as audit
from evidence.dvc.history import read_lock
from evidence.dvc.pipeline import read_pipeline
from evidence.dvc.stores import object_file
from evidence.record.signing import KEY_FILE, own_key, public_pem
from evidence.remote.guard import Guard, void
from evidence.remote.published import VOID_TYPE, signature
from evidence.verbs.check import check
from flows.local import restore, storage
from ground.io import DataError
from tests.evidence.tampering.bucket import flipped
from tests.evidence.tampering.edits import objects, replace
from tests.support.miniature import GIT, dvc
from tests.support.verbs import checked

WEIGHTS = Path("models/full/weights.txt")


@pytest.fixture
def published(project: Path, tmp_path: Path) -> Path:
    """The folder of a remote with everything that the project's run made, and its signed log."""
    remote = tmp_path / "remote"
    shutil.copytree(project / ".dvc/cache", remote)
    storage.publish(project, str(remote))
    return remote


@pytest.fixture(params=["folder", "far"])
def clone(request: pytest.FixtureRequest, project: Path, published: Path, tmp_path: Path) -> Path:
    """A clone with nothing but git; its remote is a folder, or an address on another machine."""
    subprocess.run([*GIT, "-C", str(project), "add", "-A"], check=True)
    subprocess.run([*GIT, "-C", str(project), "commit", "-qm", "run"], check=True)
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(project), str(folder)], check=True)
    url = published if request.param == "folder" else f"file://{published}"
    (folder / ".dvc/config.local").write_text(f"['remote \"there\"']\n    url = {url}\n[core]\n    remote = there\n")
    return folder


@pytest.fixture(autouse=True)
def by_configuration(monkeypatch: pytest.MonkeyPatch, warm_starts: None) -> None:
    """The clones name their remote in DVC's configuration."""
    monkeypatch.delenv(storage.REMOTE, raising=False)


def listing_of_the_other_model(project: Path, remote: Path) -> None:
    """The folder's listing names the weights of the other model, as an attacker with the bucket would write it."""
    one, other = (objects(project, path) for path in ("models/full", "models/plain"))
    replace(object_file(remote, one[0]), one[1], other[1])


def test_pull_restores_and_attests_every_stage(clone: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = restore.pull(clone)
    assert (restored.entry, restored.stages, restored.patched) == (1, 3, [])
    for path in (WEIGHTS, Path("metrics/train/plain.json"), Path("artifacts/raw/corpus/one.txt"), Path("dvc.lock")):
        assert (clone / path).read_bytes() == (project / path).read_bytes()
    report = check(None, clone, strict=True, remote="full")
    assert report.findings == []
    assert report.summary().startswith("SOUND: 3 of 3 stages attested by this user's own key; ")
    assert report.summary().endswith(" clean, 1 commit after the runs")
    assert "dvc.lock: is the run's" in list(restored.lines())
    assert dvc(clone, "status") == "Data and pipelines are up to date.\n"
    monkeypatch.chdir(clone)
    again = CliRunner().invoke(flows.cli.app, ["pull", "--json"])
    assert checked("pull", again.stdout) == asdict(restored)


def test_an_output_in_git_that_differs_is_named_and_applied(project: Path, tmp_path: Path) -> None:
    """The run of another processor gives different figures from the committed ones; it also changed a file."""
    figures = Path("metrics/train/full.json")
    made = (project / figures).read_bytes()
    old, new = ("['metrics/train/${item.variant}.json'" + end for end in ("]", ": {cache: false}]"))
    replace(project / "dvc.yaml", old, new)
    replace(project / ".gitignore", "/metrics\n", "")
    (project / figures).write_text('{"loss": 1}')
    notes = ["a[1]*.txt", "notes.txt", "ä\\n.txt"]
    for name in notes:
        (project / name).write_bytes(b"before\r\n")
    for words in (["add", "-A"], ["commit", "-qm", "run on another processor"]):
        subprocess.run([*GIT, *words], cwd=project, check=True)
    (project / figures).write_bytes(made)
    for name in notes:
        (project / name).write_bytes(b"after\r\n")
    remote, clone = tmp_path / "remote", tmp_path / "clone"
    shutil.copytree(project / ".dvc/cache", remote)
    storage.publish(project, str(remote))
    subprocess.run(["git", "clone", "-q", str(project), str(clone)], check=True)
    (clone / ".dvc/config.local").write_text(f"['remote \"there\"']\n    url = {remote}\n[core]\n    remote = there\n")
    restored = restore.pull(clone)
    assert (restored.differs, restored.patched) == ([str(figures)], notes)
    assert "`pathfinder pull --apply` puts the run's here" in [*restored.lines()][-1]
    assert {finding.where for finding in check(None, clone).errors} == {str(figures)}
    (clone / figures).unlink()
    for _ in range(2):
        restored = restore.pull(clone, apply=True)
        assert (restored.differs, restored.patched) == ([], [])
        assert (clone / figures).read_bytes() == made
        assert {(clone / name).read_bytes() for name in notes} == {b"after\r\n"}
    assert (check(None, clone).errors, check(None, clone).verdict) == ([], "SOUND")
    (clone / "notes.txt").write_text("mine\n")
    with pytest.raises(DataError, match=r"does not fit a\[1\]\*\.txt, notes\.txt, "):
        restore.pull(clone, apply=True)


@pytest.mark.parametrize("clone", ["folder"], indirect=True)  # DVC has no remotes with file://
def test_dvc_installs_other_weights_where_the_guard_refuses(clone: Path, project: Path, published: Path) -> None:
    good, bad = ((project / "models" / name / "weights.txt").read_text() for name in ("full", "plain"))
    listing_of_the_other_model(project, published)
    with pytest.raises(DataError, match=r"md5 is .* belongs to models/full\. It was changed in the remote and is not"):
        restore.pull(clone)
    assert not (clone / WEIGHTS).exists()
    dvc(clone, "pull", "-q", "train@full")
    assert (clone / WEIGHTS).read_text() == bad != good


def flip_weights(project: Path, remote: Path) -> None:
    path = object_file(remote, objects(project, "models/full")[1])
    content = flipped(path.read_bytes())
    path.unlink()
    path.write_bytes(content)


def delete_weights(project: Path, remote: Path) -> None:
    (object_file(remote, objects(project, "models/full")[1])).unlink()


def edit_the_log(project: Path, remote: Path) -> None:
    replace(remote / "pathfinder/log/00000001.json", '"number":1', '"number":2')


def edit_a_record(project: Path, remote: Path) -> None:
    path = next((remote / "pathfinder/records/train@full").glob("*.json"))
    path.write_bytes(flipped(path.read_bytes()))


def remove_the_signature(project: Path, remote: Path) -> None:
    shutil.rmtree(remote / "pathfinder/signatures")


def edit_the_lock(project: Path, remote: Path) -> None:
    path = next((remote / "pathfinder/locks").iterdir())
    path.write_text(path.read_text().replace("rate: 0.5", "rate: 0.6"))


def forge_an_unsigned_entry(project: Path, remote: Path) -> None:
    """A second entry, with everything in order but a signature, names the weights of the other model."""
    folder = remote / "pathfinder"
    last = (folder / "log/00000001.json").read_bytes()
    manifest = json.loads((folder / f"manifests/{json.loads(last)['manifest']}.json").read_text())
    lock = (project / "dvc.lock").read_text()
    one, other = (objects(project, path)[0] for path in ("models/full", "models/plain"))
    forged = lock.replace(one, other).encode()
    manifest |= {"key": None, "dvc_lock": hashlib.sha256(forged).hexdigest()}
    manifest["outs"]["models/full"]["md5"] = other
    (folder / f"locks/{manifest['dvc_lock']}.lock").write_bytes(forged)
    content = json.dumps(manifest).encode()
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"manifests/{digest}.json").write_bytes(content)
    entry = {"number": 2, "manifest": digest, "previous": hashlib.sha256(last).hexdigest()}
    (folder / "log/00000002.json").write_text(json.dumps(entry))


@pytest.mark.parametrize("is_forged", [True, False])
def test_an_unsigned_entry_is_declared_void(
    clone: Path, project: Path, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_forged: bool
) -> None:
    """Every clone refuses until someone with a trusted key says so; then the entries before and after it count."""
    if is_forged:
        forge_an_unsigned_entry(project, published)
    else:
        signatures = set((published / "pathfinder/signatures").iterdir())
        replace(project / "dvc.lock", "rate: 0.5", "rate: 0.6")
        storage.publish(project, str(published))
        (lost,) = set((published / "pathfinder/signatures").iterdir()) - signatures
        lost.unlink()
    with pytest.raises(DataError, match=r"declares it void: `pathfinder lineage void NUMBER`"):
        restore.pull(clone)
    stranger = tmp_path / "stranger.pem"
    with monkeypatch.context() as patch:
        patch.setenv(KEY_FILE, str(stranger))
        void(clone, 2)
    with pytest.raises(DataError, match="lineage void"):
        restore.pull(clone)
    monkeypatch.chdir(clone)
    said = checked("lineage void", CliRunner().invoke(audit.app, ["void", "2", "--json"]).stdout)
    assert said["entry"] == 2
    assert restore.pull(clone).entry == 1
    found = check(None, clone, remote="quick").findings
    assert [finding.level for finding in found if "declared it void" in finding.message] == ["note"]
    storage.publish(project, str(published))
    assert Guard(clone).entry_of(None).number == (3 if is_forged else 2), "publishing again signs a lost entry again"
    with pytest.raises(DataError, match=r"entry 1 of remote .* is signed; only an unsigned one"):
        void(clone, 1)
    with pytest.raises(DataError, match="00000009"):
        void(clone, 9)


def test_a_void_of_another_entry_or_form_does_not_count(clone: Path, project: Path, published: Path) -> None:
    forge_an_unsigned_entry(project, published)
    void(clone, 2)
    (path,) = (published / "pathfinder/signatures").glob("*.void.dsse")
    entry = (published / "pathfinder/log/00000002.json").read_bytes()
    other = (published / "pathfinder/log/00000001.json").read_bytes()
    for content in (signature(entry)[1], signature(other, VOID_TYPE)[1]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="is not signed, although entries before it are"):
            restore.pull(clone)
        shutil.rmtree(clone / ".pathfinder", ignore_errors=True)  # the copy of the evidence would name the change


def rename_a_void(project: Path, remote: Path) -> None:
    """The declaration that an unsigned entry is void becomes the signature that it lacks."""
    forge_an_unsigned_entry(project, remote)
    entry = (remote / "pathfinder/log/00000002.json").read_bytes()
    (remote / "pathfinder" / signature(entry)[0]).write_bytes(signature(entry, VOID_TYPE)[1])


def remove_everything_published(project: Path, remote: Path) -> None:
    shutil.rmtree(remote / "pathfinder")


HARMS: list[tuple[Callable[[Path, Path], None], str]] = [
    (flip_weights, "md5 is .* it belongs to models/full/weights.txt"),
    (delete_weights, "no such file"),
    (edit_the_log, "the chain is broken"),
    (edit_a_record, "edited"),
    (remove_the_signature, "its signature by key .* is missing"),
    (edit_the_lock, "is missing or was edited; a manifest names it"),
    (forge_an_unsigned_entry, "is not signed, although entries before it are"),
    (rename_a_void, "does not sign the entry in its name"),
    (remove_everything_published, "no run of the whole pipeline was published there"),
]


@pytest.mark.parametrize(("harm", "expected"), HARMS, ids=[harm.__name__ for harm, _ in HARMS])
@pytest.mark.parametrize("clone", ["far"], indirect=True)
def test_pull_refuses_and_installs_nothing(
    clone: Path, project: Path, published: Path, harm: Callable[[Path, Path], None], expected: str
) -> None:
    harm(project, published)
    with pytest.raises(DataError, match=expected):
        restore.pull(clone)
    assert not (clone / WEIGHTS).exists()


@pytest.mark.parametrize("clone", ["folder"], indirect=True)
def test_a_log_that_was_rolled_back_is_refused(clone: Path, project: Path, published: Path) -> None:
    (project / "params.yaml").write_text((project / "params.yaml").read_text() + "other: 1\n")
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=True))
    storage.publish(project, str(published))
    assert Guard(clone).entry_of(None).number == 2
    entry = published / "pathfinder/log/00000002.json"
    (published / "pathfinder/manifests" / f"{json.loads(entry.read_text())['manifest']}.json").unlink()
    entry.unlink()
    with pytest.raises(DataError, match="entry 2 is not the one that this machine has seen: the log was cut"):
        restore.pull(clone)


@pytest.mark.parametrize("clone", ["far"], indirect=True)
def test_another_user_names_the_public_key(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "runner.pem"
    key.write_bytes(public_pem(own_key().public_key()))
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "none.pem"))
    with pytest.raises(DataError, match="which is not trusted here; nothing is taken from it"):
        restore.pull(clone)
    assert not (clone / WEIGHTS).exists()
    assert restore.pull(clone, [key]).stages == 3
    report = check(None, clone, strict=True, keys=[key], remote="quick")
    assert report.findings == []
    assert report.summary().startswith(f"SOUND: 3 of 3 stages attested by runner (--key {key}); ")
    assert {finding.level for finding in check(None, clone, strict=True).findings} >= {"error"}


@pytest.mark.parametrize("clone", ["far"], indirect=True)
def test_a_changed_lock_is_kept_unless_forced(clone: Path, project: Path) -> None:
    replace(clone / "dvc.lock", "rate: 0.5", "rate: 0.7")
    with pytest.raises(DataError, match=r"dvc\.lock: has changes that no published run made"):
        restore.pull(clone)
    assert restore.pull(clone, force=True).lock == "replaced by the run's"
    assert (clone / "dvc.lock").read_bytes() == (project / "dvc.lock").read_bytes()


@pytest.mark.parametrize("clone", ["far"], indirect=True)
def test_a_stage_is_restored_only_from_a_run_that_the_log_names(clone: Path, project: Path, published: Path) -> None:
    """The work of ``run --pull`` before each stage: its run-cache entry comes from the signed lock, not the remote."""
    shutil.rmtree(published / "runs")
    (clone / "dvc.lock").unlink()
    guard, stages = Guard(clone), read_pipeline(clone)
    dvc(clone, "config", "-q", "--local", "core.remote", "nowhere")
    shutil.copytree(project / "data", clone / "data")
    assert not guard.provide_stage(stages["train@full"])  # its inputs are not here yet
    for name in ("download", "train@full"):
        assert guard.provide_stage(stages[name])
        assert "is cached - skipping run, checking out outputs" in dvc(clone, "repro", "-s", name)
    assert read_lock(clone)["train@full"].outs == read_lock(project)["train@full"].outs
    replace(clone / "params.yaml", "rate: 0.5", "rate: 0.6")
    assert not guard.provide_stage(stages["train@plain"])
    (clone / "params.yaml").write_text("{}")
    with pytest.raises(DataError, match=r"params\.yaml: no key "):  # a run with null is another one
        guard.provide_stage(stages["train@full"])


@pytest.mark.parametrize("clone", ["far"], indirect=True)
def test_a_stage_is_restored_from_a_partial_run_which_pull_skips(clone: Path, project: Path, published: Path) -> None:
    shutil.rmtree(published / "pathfinder")
    storage.publish(project, str(published), {"download"})
    shutil.copytree(project / "data", clone / "data")
    guard = Guard(clone)
    assert list(guard.locked(guard.entries[0])) == ["download"]
    assert guard.provide_stage(read_pipeline(clone)["download"])
    assert check(None, clone, remote="quick").errors != []  # nothing is restored yet, and all that is named exists
    assert not any("remote there" in str(error) for error in check(None, clone, remote="quick").errors)
    with pytest.raises(DataError, match="no run of the whole pipeline was published there"):
        restore.pull(clone)


@pytest.mark.parametrize("clone", ["far"], indirect=True)
def test_a_planted_run_is_not_installed(clone: Path, project: Path, published: Path) -> None:
    one, other = (objects(project, path)[0] for path in ("models/full", "models/plain"))
    entry = next(p for p in (published / "runs").rglob("*") if p.is_file() and one in p.read_text())
    (entry.parent / ("f" * 64)).write_text(entry.read_text().replace(one, other))
    shutil.copytree(project / "data", clone / "data")
    shutil.copytree(project / "artifacts", clone / "artifacts")
    guard = Guard(clone)
    assert guard.provide_stage(read_pipeline(clone)["train@full"])
    assert [path.name for path in (clone / ".dvc/cache/runs").rglob("*") if path.is_file()] == [entry.name]
