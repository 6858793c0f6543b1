"""Writers that share a store which disturbs a third of all requests: every entry arrives, and none is damaged."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from evidence.remote.publication import commit_manifest
from ground.io import TransientError
from ground.remote import Store, open_store
from tests.campaigns.faults.store import FaultyStore, faulty_store, new_bucket

_TRIES = 60


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    with faulty_store(18) as (server, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield server


def _commit(url: str, run: str) -> None:
    """Commit as a person would: the same command again while the store is in trouble."""
    for _ in range(_TRIES):
        try:
            commit_manifest(open_store(url), {"run": run})
        except TransientError:
            continue
        return
    raise AssertionError(f"{run} was never entered")


def _check_log(store: Store, runs: list[str]) -> None:
    """Every run is in the log, the chain is whole, and every manifest has its digest."""
    entries = [store.read(key) for key in store.keys("log/")]
    parsed = [json.loads(entry) for entry in entries]
    assert [entry["number"] for entry in parsed] == list(range(1, len(entries) + 1))
    digests = [None, *(hashlib.sha256(entry).hexdigest() for entry in entries)]
    assert [entry["previous"] for entry in parsed] == digests[:-1]
    found = Counter[str]()
    for entry in parsed:
        content = store.read(f"manifests/{entry['manifest']}.json")
        assert hashlib.sha256(content).hexdigest() == entry["manifest"]
        found[json.loads(content)["run"]] += 1
    assert set(found) == set(runs)


def test_a_disturbed_store_loses_no_entry(store: FaultyStore) -> None:
    url = new_bucket(store)
    store.disturbs = 0.3
    _commit(url, "one")
    store.disturbs = 0.0
    _check_log(open_store(url), ["one"])


@pytest.mark.faults
@pytest.mark.parametrize("writers", [2, 4])
def test_writers_of_a_disturbed_store_lose_no_entry(store: FaultyStore, writers: int) -> None:
    url, runs = new_bucket(store), [f"{writer}-{number}" for writer in range(writers) for number in range(3)]
    store.disturbs = 0.3
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(lambda run: _commit(url, run), runs))
    store.disturbs = 0.0
    _check_log(open_store(url), runs)
    assert store.disturbed > 0
