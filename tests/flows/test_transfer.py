"""Pushes: no stage waits for them, only what the remote lacks is sent, and a failure says why."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evidence.dvc.lock import LOCK
from evidence.remote.published import SENT, remember
from flows.local.dvc import Cancelled, Dvc, DvcError
from flows.local.storage import REMOTE, configure, describe, preflight
from flows.local.transfer import FOLDER, prepare
from ground.io import DataError, TransientError, write_text
from ground.remote import ENDPOINT
from tests.flows.conftest import Project
from tests.flows.watch import soon

pytestmark = pytest.mark.usefixtures("warm_starts")


@pytest.fixture(scope="module")
def finished(make_project: Callable[[], Project]) -> Project:
    """A project with all outputs, none of them pushed."""
    project = make_project()
    project.run("-m", "dvc", "repro", "-q")
    return project


def md5_file(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture
def silent_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store that accepts connections and never answers."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    for name, value in {
        REMOTE: "s3://bucket/prefix",
        ENDPOINT: address,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "sesame",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    yield address
    listener.close()


def test_a_stage_does_not_wait_for_a_push_to_a_store_that_is_away(finished: Project, silent_store: str) -> None:
    configure(finished.root)
    dvc = Dvc(finished.root)
    errors: list[BaseException] = []

    def push() -> None:
        try:
            dvc.push("numbers", "square@even")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=push)
    thread.start()
    assert soon((finished.root / FOLDER / LOCK).exists, 60)
    assert Dvc(finished.root).reproduce("total", force=True, limit_s=40) == "ran"
    assert thread.is_alive(), "the push still waits for the store"
    dvc.stop()
    thread.join(30)
    assert [type(error) for error in errors] == [Cancelled]


def test_a_push_sends_the_outputs_and_then_only_what_is_new(finished: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REMOTE, raising=False)
    configure(finished.root)
    dvc, storage = Dvc(finished.root), finished.root / ".pathfinder/storage"
    dvc.push("numbers", "square@even")
    sent = {path: path.stat().st_mtime_ns for path in storage.rglob("*") if path.is_file()}
    for name in ("out/numbers.txt", "out/even.txt", "metrics/even.json"):
        md5 = md5_file(finished.root / name)
        assert (storage / "files/md5" / md5[:2] / md5[2:]).exists(), name
    dvc.push("numbers", "square@even", "square@odd", "total")
    again = {path: path.stat().st_mtime_ns for path in sent}
    assert again == sent, "what the remote had is not sent again"
    assert not (storage / "runs").exists(), "only a worker hands back the entry of its run"
    md5 = md5_file(finished.root / "out/total.txt")
    assert (storage / "files/md5" / md5[:2] / md5[2:]).exists()


def test_a_file_that_only_git_and_the_workspace_hold_is_sent(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTE, str(tmp_path / "other"))
    configure(finished.root)
    md5 = md5_file(finished.root / "metrics/even.json")
    (finished.root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]).unlink(missing_ok=True)
    Dvc(finished.root).push("square@even")
    assert md5_file(tmp_path / "other/files/md5" / md5[:2] / md5[2:]) == md5


@pytest.mark.parametrize("form", ["{0}/cache", "~/cache"])
def test_the_push_reads_the_cache_of_the_user_s_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path / "global"))
    for file, text in {
        "global/config": f"[cache]\n    dir = {form.format(tmp_path)}\n",
        "project/.dvc/config": "[core]\n    remote = far\n['remote \"far\"']\n    url = ~/far\n",
        "project/dvc.lock": "schema: '2.0'\nstages: {}\n",
    }.items():
        write_text(tmp_path / file, text)
    config = (prepare(tmp_path / "project", []) / ".dvc/config").read_text()
    assert f"dir = {tmp_path}/cache\n" in config
    assert f"url = {tmp_path}/far\n" in config


def test_outputs_that_are_nowhere_are_an_error(
    finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTE, str(tmp_path / "other"))
    configure(finished.root)
    md5 = md5_file(finished.root / "out/total.txt")
    cached = finished.root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    cached.rename(tmp_path / "kept")
    (finished.root / "out/total.txt").rename(tmp_path / "moved")
    with pytest.raises(DvcError, match=f"neither the cache nor the remote has md5: {md5}"):
        Dvc(finished.root).push("total")
    (tmp_path / "kept").rename(cached)
    (tmp_path / "moved").rename(finished.root / "out/total.txt")


def test_a_refused_push_names_the_cause(finished: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(REMOTE, str(tmp_path / "file/below"))
    configure(finished.root)
    with pytest.raises(DvcError, match="Not a directory") as caught:
        Dvc(finished.root).push("total")
    assert not caught.value.transient
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(DataError, match=r"/file/below: the results cannot be stored there .*File exists: .*/file'"):
        preflight(finished.root, str(tmp_path / "file/below"))


def test_a_store_that_is_away_is_waited_for_and_named(finished: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for name, value in {REMOTE: "s3://bucket", ENDPOINT: f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    configure(finished.root)
    with pytest.raises(DvcError, match="Could not connect to the endpoint") as caught:
        Dvc(finished.root).push("total")
    assert caught.value.transient
    monkeypatch.setattr("flows.local.storage._PATIENCE_S", 0.1)
    with pytest.raises(TransientError, match="no answer from the store"):
        preflight(finished.root, "s3://bucket")


def test_a_run_says_where_results_go_and_where_they_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REMOTE, raising=False)
    assert describe(tmp_path, "here") == f"results go to here ({REMOTE} is not set)"
    for address in ("s3://team/runs", "here"):
        remember(tmp_path, SENT, address, "0" * 64)
    assert describe(tmp_path, "here").endswith("; earlier runs here sent theirs to s3://team/runs")
