"""Records in an S3 bucket: someone with git, the bucket and the public key attests every stage."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.dvc.stores import EVIDENCE, stores
from evidence.remote.mirror import fetch
from evidence.remote.published import SEEN, remember
from evidence.verbs.check import check
from flows.local import storage
from ground.io import DataError, sha256_of
from ground.remote import open_store
from tests.support.s3 import s3_bucket, s3_environment, s3_server


def address_of(project: Path) -> str:
    """The remote on another machine."""
    return next(store.address for store in stores(project) if store.name == "far")


@pytest.fixture
def bucket(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the finished project whose remote is a bucket that holds what it published, without its own records."""
    with s3_server() as endpoint:
        for name, value in s3_environment(endpoint).items():
            monkeypatch.setenv(name, value)
        address = f"{s3_bucket(endpoint)}/a/prefix"
        with (project / ".dvc/config").open("a") as config:
            config.write(f"['remote \"far\"']\n    url = {address}\n")
        storage.publish(project, address)
        shutil.rmtree(project / ".pathfinder")
        yield project


def test_records_from_a_bucket_attest_every_stage(bucket: Path) -> None:
    report = check(None, bucket)
    assert (report.attested, report.errors) == (0, [])
    assert report.not_read == [f"remote far ({address_of(bucket)})"]
    fetch(bucket)
    report = check(None, bucket, strict=True)
    assert report.findings == []
    assert report.summary().startswith(
        "SOUND: 3 of 3 stages attested by this user's own key; workspace, cache, evidence of remote far read; "
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("records/train@full/", "not the one in its name; it was edited"),
        ("manifests/", "not the one in its name; it was edited"),
        ("signatures/", "signatures/"),
        ("log/", "names manifest 0000"),
    ],
)
def test_edits_in_the_bucket_are_found(bucket: Path, kind: str, expected: str) -> None:
    store = open_store(f"{address_of(bucket)}/pathfinder")
    key = next(key for key in store.keys(kind) if not key.endswith(".dsse") or kind == "signatures/")
    content = store.read(key)
    edited = content.replace(content.split(b'"manifest":"')[1][:64], b"0" * 64) if kind == "log/" else content[:-2]
    store.put(key, edited)
    fetch(bucket)
    found = [str(finding) for finding in check(None, bucket).errors]
    assert any(expected in text for text in found), found


def test_a_log_that_was_cut_is_not_fetched_again(bucket: Path) -> None:
    fetch(bucket)
    store = open_store(f"{address_of(bucket)}/pathfinder")
    (key,) = store.keys("log/")
    entry = store.read(key)
    store.delete(key)
    with pytest.raises(DataError, match="the log was cut or edited"):
        fetch(bucket)
    store.put(key, entry.replace(b":1,", b":7,"))
    with pytest.raises(DataError, match="the log was cut or edited"):
        fetch(bucket)
    assert len(list((bucket / EVIDENCE).rglob("log/*.json"))) == 1


def test_a_log_that_was_deleted_before_anyone_fetched_it_is_missed(bucket: Path) -> None:
    store = open_store(f"{address_of(bucket)}/pathfinder")
    (key,) = store.keys("log/")
    remember(bucket, SEEN, address_of(bucket), {"number": 1, "entry": sha256_of(store.read(key))})
    gone = "entry 1 is not the one that this machine has seen"
    assert gone not in str(check(None, bucket, remote="quick").errors)
    shutil.rmtree(bucket / EVIDENCE)
    for key in store.keys(""):
        store.delete(key)
    assert gone in str(check(None, bucket, remote="quick").errors)
