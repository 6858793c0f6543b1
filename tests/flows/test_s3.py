"""The flow with an S3 server: it pushes, a second folder restores, manifests are committed.

The server is moto, or a real one (Swift) with `pytest -m campaign tests/flows/test_s3.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from evidence.remote.publication import commit_manifest, creates_exclusively
from flows import server
from flows.local.storage import REMOTE
from ground.remote import ENDPOINT, open_store
from tests.flows.conftest import ROOT, Project
from tests.support import warm
from tests.support.s3 import s3_server

pytestmark = [pytest.mark.s3, pytest.mark.slow]
SECRET = uuid.uuid4().hex
REAL = pytest.mark.parametrize("credentials", [pytest.param("swift", marks=pytest.mark.campaign)], indirect=True)
"""For a test of what moto does not do: it reads no signature and orders all writers."""


@pytest.fixture(scope="module", params=["moto", pytest.param("swift", marks=pytest.mark.campaign)])
def credentials(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment for a running server with an empty bucket: moto in this process, or Swift."""
    with s3_server() if request.param == "moto" else swift(tmp_path_factory.mktemp("swift")) as endpoint:
        names = {
            "AWS_ACCESS_KEY_ID": "test:tester",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            ENDPOINT: endpoint,
            REMOTE: "s3://bucket/runs",
        }
        client = boto3.session.Session("test:tester", SECRET).client(
            "s3", endpoint_url=endpoint, region_name="us-east-1"
        )
        client.create_bucket(Bucket="bucket")
        yield names


@contextmanager
def swift(folder: Path) -> Iterator[str]:
    """The address of a Swift server that runs during the block."""
    environment = Path(os.environ.get("PATHFINDER_SWIFT_VENV", folder / "venv"))
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        requirements = ROOT / "tests/support/swift/requirements.in"
        pip = [str(environment / "bin/python"), "-m", "pip", "install", "-q", "-r", str(requirements)]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"Swift cannot be installed here: {done.stderr[-300:]}")
    port = _free_ports()
    script = ROOT / "tests/support/swift/serve.py"
    command = [str(environment / "bin/python"), str(script), str(folder / "data")]
    command += ["--port", str(port), "--secret", SECRET]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready"), (folder / "data/proxy.log").read_text()
    yield f"http://127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


@pytest.fixture
def remote(credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    return credentials


@pytest.fixture
def prefect(tmp_path: Path, warm_starts: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Prefect server."""
    for name, value in warm.NO_BLOCKS.items():
        monkeypatch.setenv(name, value)
    yield server.start_server(tmp_path).url
    server.stop(tmp_path, "server")


def files_with_secret(*folders: Path) -> list[Path]:
    """The files in these folders that hold the secret key."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def test_results_of_one_folder_are_restored_in_another(
    make_project: Callable[[], Project], remote: dict[str, str], prefect: str, tmp_path: Path
) -> None:
    """No file of the run, of the Prefect server or of the bucket holds the secret key."""
    here, there = make_project(), make_project()
    both = {**remote, "PREFECT_API_URL": prefect}
    here, there = (replace(project, environment={**project.environment, **both}) for project in (here, there))
    output = here.reproduce()
    assert "s3://bucket/runs: manifest 1" in output
    assert SECRET not in output
    assert files_with_secret(here.root, tmp_path) == []
    store = open_store("s3://bucket/runs")
    keys = store.keys()
    assert not [key for key in keys if SECRET.encode() in store.read(key)]
    assert any(key.startswith("files/md5/") for key in keys)
    assert not any(key.startswith("runs/") for key in keys), "the signed lock has what the run cache would say"

    there.reproduce("--pull")
    assert there.ran() == []
    assert (there.root / "out/total.txt").read_bytes() == (here.root / "out/total.txt").read_bytes()

    shutil.rmtree(here.root / "out")
    shutil.rmtree(here.root / ".dvc/cache")
    here.ran()
    here.run("-m", "dvc", "pull", "-q")
    assert (here.root / "out/total.txt").read_text() == "285\n"


@REAL
def test_a_wrong_secret_is_noticed_before_a_stage_runs(
    make_project: Callable[[], Project], remote: dict[str, str]
) -> None:
    project = make_project()
    project = replace(project, environment={**project.environment, **remote, "AWS_SECRET_ACCESS_KEY": f"{SECRET}0"})
    output = project.reproduce(code=1)
    assert project.ran() == []
    assert "SignatureDoesNotMatch" in output
    assert "Check the name, PATHFINDER_S3_ENDPOINT and the AWS_* credentials" in output
    assert "Traceback" not in output
    assert SECRET not in output
    assert files_with_secret(project.root) == []


def test_a_wrong_bucket_is_noticed_before_a_stage_runs(
    make_project: Callable[[], Project], remote: dict[str, str]
) -> None:
    project = make_project()
    project = replace(project, environment={**project.environment, **remote, REMOTE: "s3://no-such-bucket"})
    output = project.reproduce(code=1)
    assert project.ran() == []
    assert "NoSuchBucket" in output
    assert "Check the name, PATHFINDER_S3_ENDPOINT and the AWS_* credentials" in output
    assert "Traceback" not in output
    assert SECRET not in output


@REAL
def test_manifests_on_a_server_that_cannot_order_writers(remote: dict[str, str]) -> None:
    store = open_store("s3://bucket/manifests")
    first = commit_manifest(store, {"run": 1})
    second = commit_manifest(store, {"run": 2})
    assert (first.number, second.number) == (1, 2)
    assert store.create("once", b"1")
    assert not store.create("once", b"2")
    # Swift accepts If-None-Match, but a race has several winners: the probe must not report exclusive twice in a row.
    assert not all(creates_exclusively(store, rounds=10, writers=8) for _ in range(2))


def _free_ports() -> int:
    """The first of four free neighbouring ports."""
    for start in range(20000 + os.getpid() % 5000, 40000, 7):
        with_all = []
        for port in range(start, start + 4):
            with socket.socket() as probe:
                with_all.append(probe.connect_ex(("127.0.0.1", port)) != 0)
        if all(with_all):
            return start
        time.sleep(0)
    raise AssertionError("no four free ports in a row")
