"""Check the needs of results: a signing key, and a reachable remote with conditional writes and the same time."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import httpx

from evidence.record.signing import KEY_FILE, key_file, key_id, own_public_keys
from evidence.remote.publication import creates_exclusively
from flows.local.storage import DEFAULT, REMOTE, opened
from ground.io import DataError, TransientError
from ground.remote import KINDS, Store, kind_of
from infra.doctor.finding import Finding, clock

_KEY = "probe/doctor"
_AWS = "https://s3.amazonaws.com"
_WAIT_S = 10.0


def findings(root: Path) -> list[Finding]:
    """Check the store that ``PATHFINDER_REMOTE`` names; the local folder is always in order."""
    address = os.environ.get(REMOTE, "").strip()
    if not address:
        return [Finding("remote", f"the local folder {DEFAULT}")]
    variable = (kind_of(address) or KINDS["s3"]).variable
    try:
        store = opened(root, address)
        store.put(_KEY, b"")
        store.delete(_KEY)
        exclusive = writes(store)
    except TransientError as error:
        return [Finding("remote", str(error), f"correct {variable} or start the store"), *_clock(address)]
    except (DataError, OSError) as error:
        return [
            Finding("remote", str(error), f"correct {REMOTE}, {variable} and the AWS_* variables"),
            *_clock(address),
        ]
    return [Finding("remote", f"{address} takes and deletes objects"), exclusive, *_clock(address)]


def key() -> Finding:
    """Check that this user's keys, which are made on first use, can sign a run."""
    try:
        return Finding("key", f"{key_id(own_public_keys()[0])[:12]} in {key_file()} signs")
    except DataError as error:
        return Finding("key", str(error), f"set {KEY_FILE} to a file in a folder that this user can write to")


def writes(store: Store) -> Finding:
    """Check that exactly one of several writers can create an object."""
    if creates_exclusively(store):
        return Finding("writes", "exactly one of several writers creates an object")
    remedy = "use a store with conditional writes (If-None-Match), or let one run at a time publish"
    return Finding("writes", "the store lets several writers create the same object", remedy)


def _clock(address: str) -> list[Finding]:
    if (kind := kind_of(address)) is None:
        return []
    named = os.environ.get("AWS_CA_BUNDLE")
    try:
        trusted = ssl.create_default_context(cafile=named) if named else True
        answer = httpx.get(kind.endpoint() or _AWS, timeout=_WAIT_S, verify=trusted)
        return [clock("store", answer.headers.get("date"))]
    except (httpx.HTTPError, OSError):
        return []  # the line above says that the store does not respond
