"""The ``storage`` remote of DVC: a local folder, or the place that the environment names.

``PATHFINDER_REMOTE=s3://bucket/prefix`` (or a folder) and, for servers other than AWS, ``PATHFINDER_S3_ENDPOINT``
become lines of ``.dvc/config.local``, which git ignores. ``ground.remote.KINDS`` has the kinds of stores. Credentials
stay in the ``AWS_*`` variables.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from evidence.dvc.stores import remote_of
from evidence.record.signing import own_public_keys
from evidence.remote.publication import absolute as absolute
from evidence.remote.publication import is_pending as is_pending
from evidence.remote.publication import opened as opened
from evidence.remote.publication import publish as publish
from evidence.remote.published import remembered
from ground.io import DataError, TransientError, write_text
from ground.remote import READ_S, Store, kind_of, refuse_password, to_dvc

REMOTE = "PATHFINDER_REMOTE"
DEFAULT = Path(".pathfinder/storage")
LEASES = "leases"
"""The folder of a remote that holds the leases of stages (flows.team.pools.lease)."""
SIGN_S = 5.0
"""Seconds that a holder waits for an answer about its lease: if it waited longer, others would take the lease first."""
_DELAY_S, _PATIENCE_S = 2.0, 10.0
_HEADER = f"# Written by the flow from {REMOTE}; without that variable, the next run removes this file.\n"


def configure(root: Path) -> str:
    """Configure DVC's ``storage`` remote from the environment; returns the address of the default remote.

    A ``config.local`` without our header was written by hand and is never changed. Raises ``DataError`` if such a file
    conflicts with the environment, or DVC would read an address differently.
    """
    path = root / ".dvc" / "config.local"
    current = path.read_text(encoding="utf-8") if path.exists() else None
    ours = current is None or current.startswith(_HEADER)
    remote = os.environ.get(REMOTE, "").strip()
    if not remote or Path(remote) == DEFAULT:
        if ours:
            path.unlink(missing_ok=True)
        return remote_of(root).address_from(root)
    kind = kind_of(remote)
    for name, value in ({REMOTE: remote} | ({kind.variable: kind.endpoint()} if kind else {})).items():
        refuse_password(value)
        if not value.isprintable():
            raise DataError(f"{name}: {value!r} contains control characters; expected an address")
        if set(value) & set("#,") or value.startswith(("'", '"')):
            raise DataError(
                f"{name}: {value}: DVC's settings cannot hold `#`, a comma or a quote at the start; rename it"
            )
    if not ours:
        raise DataError(f"{path}: written by hand, and {REMOTE} is set; keep one of the two")
    settings = to_dvc(absolute(root, remote.removeprefix("file://")))
    lines = [f"    {name} = {value}\n" for name, value in settings.items()]
    text = "".join([_HEADER, "['remote \"storage\"']\n", *lines])
    if current != text:
        write_text(path, text)
    return remote


def require_remote() -> None:
    """Raise ``DataError`` if this is the run of a deployment that was not told where results go."""
    from prefect.runtime import deployment  # only a flow has imported Prefect

    if deployment.get_id() and not os.environ.get(REMOTE):
        raise DataError(
            f"the deployment does not say where results go: its job variables have no {REMOTE}; repeat "
            "`python -m flows.team.deploy up`, or set it on the deployment's page"
        )


def shared(root: Path, folder: str) -> Store | None:
    """A folder of the remote that the environment names; ``None`` if results stay in the project's folder."""
    address = os.environ.get(REMOTE, "").strip()
    read_s = SIGN_S if folder == LEASES else READ_S
    return opened(root, address, folder, read_s=read_s) if address and Path(address) != DEFAULT else None


def preflight(root: Path, address: str) -> None:
    """Write and delete a small object, so that a run which cannot store or sign its results ends before it starts.

    Waits a little for a store that refuses connections, such as a store that is restarted. Raises ``DataError`` if the
    store refuses or there is no usable key, and ``TransientError``, within half a minute, if it does not answer.
    """
    own_public_keys()
    store = opened(root, address)
    key = f"probe/{uuid.uuid4().hex}"
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            store.put(key, b"")
            store.delete(key)
            return
        except OSError as error:
            raise DataError(f"{address}: the results cannot be stored there ({error}); see {REMOTE}") from error
        except TransientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_DELAY_S)


def describe(root: Path, address: str) -> str:
    """A sentence that names the place of the results, and any different places of earlier runs in this folder."""
    text = f"results go to {address}" + ("" if os.environ.get(REMOTE) else f" ({REMOTE} is not set)")
    others = sorted(remembered(root)[0].keys() - {address})
    return f"{text}; earlier runs here sent theirs to {', '.join(others)}" if others else text
