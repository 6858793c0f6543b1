"""The storage remote follows the environment, and the last push is remembered per address."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ruamel.yaml import YAML

from evidence.dvc.history import read_lock
from evidence.dvc.lock import entries, replace_entries
from evidence.dvc.stores import remote_of
from evidence.record.signing import KEY_FILE
from flows.local import restore, storage
from flows.local.storage import preflight
from flows.local.transfer import prepare
from ground.io import DataError
from ground.remote import ENDPOINT, Store, open_store
from tests.flows.test_branch import git
from tests.support import warm


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(storage.REMOTE, raising=False)
    monkeypatch.delenv(ENDPOINT, raising=False)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text(
        "[core]\n    remote = storage\n['remote \"storage\"']\n    url = ../here\n    verify = true\n"
    )
    return tmp_path


def settings(folder: Path) -> str:
    command = [sys.executable, "-m", "dvc", "config", "--list"]
    return str(warm.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)


def test_the_environment_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    monkeypatch.setenv(storage.REMOTE, "s3://bucket/a/prefix")
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9000")
    assert storage.configure(folder) == "s3://bucket/a/prefix"
    listed = settings(folder)
    assert "remote.storage.url=s3://bucket/a/prefix" in listed
    assert "remote.storage.endpointurl=http://127.0.0.1:9000" in listed
    assert "remote.storage.verify=true" in listed
    assert "sesame" not in (folder / ".dvc/config.local").read_text()
    monkeypatch.delenv(storage.REMOTE)
    assert storage.configure(folder) == "here", "the remote of .dvc/config"
    assert not (folder / ".dvc/config.local").exists()


def test_a_file_written_by_hand_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = folder / ".dvc/config.local"
    local.write_text("[core]\n    checksum_jobs = 1\n")
    assert storage.configure(folder) == "here"
    local.write_text("['remote \"storage\"']\n    url = s3://elsewhere/results\n")
    assert storage.configure(folder) == "s3://elsewhere/results", "where DVC pushes to"
    assert local.exists()
    monkeypatch.setenv(storage.REMOTE, "s3://bucket")
    with pytest.raises(DataError, match="written by hand"):
        storage.configure(folder)


def test_an_address_cannot_add_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.REMOTE, "s3://bucket\n[core]\n    remote = other")
    with pytest.raises(DataError, match="control characters"):
        storage.configure(folder)


@pytest.mark.parametrize("address", ["store#1", "s3://bucket/a,b", "'store'"])
def test_an_address_that_dvc_reads_differently_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv(storage.REMOTE, address)
    with pytest.raises(DataError, match="DVC's settings cannot hold"):
        storage.configure(folder)
    assert not (folder / ".dvc/config.local").exists()


@pytest.mark.parametrize(
    ("remote", "server"), [("s3://AKIA:sec#ret@bucket/runs", ""), ("s3://bucket/runs", "https://me:secret@bucket/runs")]
)
def test_a_password_in_an_address_reaches_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, remote: str, server: str
) -> None:
    monkeypatch.setenv(storage.REMOTE, remote)
    monkeypatch.setenv(ENDPOINT, server)
    with pytest.raises(DataError, match=r"^(s3|https)://bucket/runs: an address must not name a password"):
        storage.configure(folder)
    assert not (folder / ".dvc/config.local").exists()


@pytest.mark.parametrize("name", ["o'brien", "a;b %c", "ä=[1]"])
def test_dvc_reads_the_address_that_we_do(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(storage.REMOTE, str(folder / name))
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    assert f"remote.storage.url={storage.configure(folder)}\n" in settings(folder)
    assert remote_of(folder).address_from(folder) == name


def test_manifests_and_pending_pushes(folder: Path) -> None:
    assert not storage.is_pending(folder, "store")
    out = "{path: out, hash: md5, md5: 0123456789abcdef0123456789abcdef, size: 3}"
    lock = f"schema: '2.0'\nstages:\n  a:\n    cmd: x\n    outs:\n    - {out}\n"
    (folder / "dvc.lock").write_text(lock)
    assert storage.is_pending(folder, "store")
    commit = storage.publish(folder, "store")
    assert (commit.number, commit.exclusive) == (1, True)
    assert not storage.is_pending(folder, "store")
    assert storage.is_pending(folder, "elsewhere")
    manifest = open_store(str(folder / "store/pathfinder")).read(f"manifests/{commit.manifest}.json")
    assert b'"out":{"md5":"0123456789abcdef0123456789abcdef","sha256":null,"size":3,"stage":"a"}' in manifest


@pytest.mark.parametrize("md5", ["1234567890123456789012345678e012", "08123456789012345678901234567899"])
def test_a_digest_that_looks_like_a_number_stays_a_text(folder: Path, md5: str) -> None:
    def read(text: str) -> str:
        return str(YAML(typ="safe").load(text)["stages"]["a"]["outs"][0]["md5"])

    out = f"{{path: out, hash: md5, md5: '{md5}', size: 3}}"
    (folder / "dvc.lock").write_text(f"schema: '2.0'\nstages:\n  a:\n    cmd: x\n    outs:\n    - {out}\n")
    storage.publish(folder, "store", ["a"])
    (sent,) = (folder / "store/pathfinder/locks").iterdir()
    assert read(sent.read_text()) == md5
    replace_entries(folder, entries(folder))
    assert read((folder / "dvc.lock").read_text()) == md5
    assert read_lock(folder)["a"].outs == {"out": md5}
    pushed = YAML(typ="safe").load(prepare(folder, ["a"]) / "push.dvc")
    assert [found["md5"] for found in pushed["outs"]] == [md5]


def test_nothing_is_published_unsigned(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "no-folder/signing.pem"))
    for attempt in (lambda: storage.publish(folder, "store"), lambda: preflight(folder, "store")):
        with pytest.raises(DataError, match=rf"for signatures .*name another file in {KEY_FILE}") as error:
            attempt()
        assert "\n" not in str(error.value)
    assert not (folder / "store").exists()
    monkeypatch.delenv(KEY_FILE)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home directory")))
    with pytest.raises(DataError, match=f"no home folder .* name a file in {KEY_FILE}"):
        preflight(folder, "store")


def test_a_killed_writer_leaves_no_entry_without_its_signature(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    store = type(open_store(str(folder / "store")))
    create = store.create

    def killed(self: Store, key: str, content: bytes) -> bool:
        if key.startswith("log/"):
            raise KeyboardInterrupt
        return create(self, key, content)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "create", killed)
    with pytest.raises(KeyboardInterrupt):
        storage.publish(folder, "store")
    monkeypatch.undo()
    assert len(list((folder / "store/pathfinder/signatures").iterdir())) == 1
    assert not list((folder / "store/pathfinder").glob("log/*"))


def test_a_manifest_names_the_state_of_the_code_and_the_lock_that_has_the_parameters(folder: Path) -> None:
    git(folder, "init", "-q", "-b", "night")
    (folder / "params.yaml").write_text("profile: small\ncount: 3\n")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "small")
    out = "{path: out, hash: md5, md5: 0123456789abcdef0123456789abcdef, size: 3}"
    (folder / "dvc.lock").write_text(
        f"schema: '2.0'\nstages:\n  a:\n    cmd: x\n    params: {{params.yaml: {{count: 3}}}}\n    outs:\n    - {out}\n"
    )
    commit = storage.publish(folder, "store")
    store = open_store(str(folder / "store/pathfinder"))
    manifest = json.loads(store.read(f"manifests/{commit.manifest}.json"))
    named = {name: manifest[name] for name in ("commit", "branch", "profile")}
    assert named == {"commit": git(folder, "rev-parse", "HEAD"), "branch": "night", "profile": "small"}
    assert store.read(f"locks/{manifest['dvc_lock']}.lock") == (folder / "dvc.lock").read_bytes()
    git(folder, "checkout", "-q", "--detach")
    detached = storage.publish(folder, "store")
    assert json.loads(store.read(f"manifests/{detached.manifest}.json"))["branch"] is None


def test_a_pull_whose_objects_are_refused_leaves_the_lock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        """A guard of a run with another lock, whose object was changed in the remote."""

        published, entries = SimpleNamespace(), [SimpleNamespace(manifest=SimpleNamespace(patch=None))]

        def __init__(self, root: Path, keys: object) -> None:
            self.fetcher = self
            (root / "theirs.lock").write_text("schema: '2.0'\nstages: {}\n")

        def entry_of(self, commit: str | None) -> object:
            return self.entries[0]

        def lock_file(self, entry: object) -> Path:
            return folder / "theirs.lock"

        def locked(self, entry: object) -> dict[str, object]:
            return {}

        def provide(self, outs: object) -> int:
            raise DataError("its md5 is another one")

    git(folder, "init", "-q")
    (folder / "dvc.yaml").write_text("stages: {}\n")
    (folder / "dvc.lock").write_text("schema: '2.0'\n")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "results")
    monkeypatch.setattr(restore, "Guard", Refusing)
    monkeypatch.setattr(restore, "Dvc", lambda _: SimpleNamespace(fetch=lambda _: None))
    with pytest.raises(DataError, match="its md5 is another one"):
        restore.pull(folder)
    assert (folder / "dvc.lock").read_text() == "schema: '2.0'\n"
