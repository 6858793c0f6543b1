"""The remote before a run: that its results can be signed and stored, and that it is the one that was meant."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

from evidence.audit.published import SENT
from evidence.record.signing import own_public_keys
from flows.storage import REMOTE, opened
from ground.io import DataError, TransientError, read_json

_DELAY_S, _PATIENCE_S = 2.0, 10.0


def preflight(root: Path, address: str) -> None:
    """Write and delete a small object, so that a run which cannot store or sign its results ends before it starts.

    Waits a little for a store that refuses connections, as one that is restarted does. Raises ``DataError`` if the
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
    """Where the results go, and where those of earlier runs in this folder went if that was another place."""
    text = f"results go to {address}" + ("" if os.environ.get(REMOTE) else f" ({REMOTE} is not set)")
    others = sorted({*read_json(root / SENT)} - {address}) if (root / SENT).exists() else []
    return f"{text}; earlier runs here sent theirs to {', '.join(others)}" if others else text
