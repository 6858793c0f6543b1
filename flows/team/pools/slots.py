"""Slots of the Prefect server for stages of a kind, such as stages with a GPU.

Slots limit how many stages of a kind run at once on all machines. A stage holds its slots with a lease, which it
renews. The lease ends with the stage or, if its machine is gone, a minute later.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

import httpx
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.exceptions import PrefectException

from flows.local.dvc import OnLine

LEASE_S = 60.0


@contextlib.contextmanager
def slots_held(wanted: Mapping[str, int], check: Callable[[], None], on_line: OnLine) -> Iterator[None]:
    """Wait for ``wanted`` slots by name and hold them; a name that the server does not limit counts as free.

    While it waits, ``check`` is called every few seconds and may raise. If the server is away for longer than the
    lease, the stage continues without its slots.
    """
    slots = contextlib.ExitStack()
    try:
        for name in sorted(wanted):  # in one order, so that two stages never wait for each other
            for attempt in itertools.count():
                try:  # each question is answered at once, since Prefect's own wait cannot be interrupted
                    slots.enter_context(concurrency(name, wanted[name], max_retries=0, lease_duration=LEASE_S))
                    break
                except ConcurrencySlotAcquisitionError as error:
                    _require_waiting(error.__cause__)
                if attempt == 0:
                    on_line(f"waits for {wanted[name]} of the slots {name}")
                check()
                time.sleep(5.0)
        yield
    finally:
        with contextlib.suppress(httpx.HTTPError, PrefectException):  # the leases expire
            slots.close()


def _require_waiting(cause: BaseException | None) -> None:
    """Raise the cause of a failure, unless the slots are taken or the server is away."""
    refusal = cause.response if isinstance(cause, httpx.HTTPStatusError) else None
    is_busy = refusal is not None and (refusal.status_code == HTTPStatus.LOCKED or refusal.is_server_error)
    if cause is not None and not is_busy and not isinstance(cause, httpx.TransportError):
        raise cause
