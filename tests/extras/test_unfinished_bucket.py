"""Unfinished work on a real S3 server: a training and a labelling that were killed continue in another clone."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.record.signing import KEY_FILE
from extras.unfinished import HOME, Copies
from flows.local.storage import REMOTE, opened
from ground.remote import Store, open_store
from tests.extras.test_unfinished import labelled_in_two_clones
from tests.flows.watch import soon
from tests.support.s3 import s3_bucket, s3_environment, s3_server
from tests.support.training import training_project

pytestmark = pytest.mark.campaign
OUTS = ("models/full/model.safetensors", "metrics/train/full.json", "metrics/train/full_log.json")
CARRY = """\
import subprocess, sys
from pathlib import Path
from extras import unfinished
from flows.local.storage import shared
unfinished.EVERY_S, unfinished._SHARE = 0.2, 0.0
store = shared(Path.cwd(), unfinished.HOME)
with unfinished.carried(store, Path.cwd(), "train@full", lambda line: print(line, flush=True)):
    sys.exit(subprocess.run([sys.executable, "-m", "stages.train", "full"]).returncode)
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server() as endpoint:
        for name, value in s3_environment(endpoint).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(KEY_FILE, str(tmp_path / "signing.pem"))
        yield f"{s3_bucket(endpoint)}/team"


def training(folder: Path, root: Path, remote: str) -> subprocess.Popen[str]:
    variables = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", REMOTE: remote}
    shutil.copy(root / "evidence.toml", folder)  # it names the variable of the signing key
    return subprocess.Popen(
        [sys.executable, "-c", CARRY],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def names_checkpoint(sent: Store) -> bool:
    """True if a list of files in the bucket names a whole checkpoint: the last file of one has the digests."""
    lists = [key for key in sent.keys("train/") if key.endswith("/state.json")]
    whole = re.compile(rb"checkpoint-\d+/part-[^/\"]*\.json")
    return any(whole.search(payload) for payload in map(decoded, map(sent.read, lists)))


def decoded(envelope: bytes) -> bytes:
    return base64.b64decode(json.loads(envelope)["payload"])


def finished(process: subprocess.Popen[str]) -> tuple[str, int]:
    """The output of a training that succeeds, and the number of tokens that it trained."""
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    (tokens,) = re.findall(r"trained ([\d,]+) tokens", output)
    return output, int(tokens.replace(",", ""))


def test_a_training_that_was_killed_continues_from_the_bucket_with_the_same_bytes(
    tmp_path: Path, root: Path, bucket: str
) -> None:
    whole, first, second = (
        training_project(tmp_path / name, root, epochs=30.0) for name in ("whole", "first", "another/second")
    )
    _, all_tokens = finished(training(whole, root, ""))
    sent = open_store(f"{bucket}/unfinished")
    process = training(first, root, bucket)
    assert soon(lambda: process.poll() is not None or names_checkpoint(sent), 300)
    assert process.poll() is None, "the training ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (first / "models/full").exists()
    fetched = [*Copies(tmp_path / "check", opened(tmp_path / "check", bucket, HOME)).fetch("train", "train@full")]
    assert any("/checkpoint-" in path for path in fetched)
    output, tokens = finished(training(second, root, bucket))
    assert "resumes with .pathfinder/train/" in output
    print(f"{tokens:,} of {all_tokens:,} tokens were trained in the second clone")
    assert tokens < all_tokens
    for out in OUTS:
        assert (second / out).read_bytes() == (whole / out).read_bytes(), out
    assert sent.keys("train/") == [], "the copy is deleted with the work"


def test_a_labelling_that_was_killed_continues_from_the_bucket(
    tmp_path: Path, short_waits: None, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    labelled_in_two_clones(tmp_path, bucket, monkeypatch)
