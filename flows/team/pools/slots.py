"""Limits of the Prefect server: slots for stages of a kind, such as stages with a GPU, and the priorities of queues.

Slots limit how many stages of a kind run at once on all machines. A stage holds its slots with a lease, which it
renews. The lease ends with the stage or, if its machine is gone, a minute later.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectException

from flows.dvc import OnLine

LEASE_S = 60.0
_RENEW_S = 20.0
_LOOK_S = 5.0
ORDER = ("on-demand", "default", "scheduled", "background")
"""The queues that prefect.yaml names, and Prefect's own, the most urgent one first."""


@contextlib.contextmanager
def slots_held(wanted: Mapping[str, int], check: Callable[[], None], on_line: OnLine) -> Iterator[None]:
    """Wait for ``wanted`` slots by name and hold them; a name that the server does not limit counts as free.

    While it waits, ``check`` is called every few seconds and may raise. If the server is away for longer than the
    lease, the stage continues without its slots.
    """
    with contextlib.ExitStack() as stack:
        for name in sorted(wanted):  # in one order, so that two stages never wait for each other
            stack.enter_context(_held(name, wanted[name], check, on_line))
        yield


def ensure(client: SyncPrefectClient, limits: Mapping[str, int]) -> None:
    """Create or change the server's limits, the numbers of slots by name."""
    for name, number in sorted(limits.items()):
        client.upsert_global_concurrency_limit_by_name(name, number)


def prioritise(client: SyncPrefectClient) -> None:
    """Give the queues of every pool that has them their priorities."""
    queues = {(queue.work_pool_name or "", queue.name): queue for queue in client.read_work_queues()}
    for pool in sorted({pool for pool, _ in queues}):
        ours = [queues[pool, name] for name in ORDER if (pool, name) in queues]
        if [queue.name for queue in ours] != ["default"]:
            for number, queue in enumerate(ours, start=1):
                client.update_work_queue(queue.id, priority=number)


@contextlib.contextmanager
def _held(name: str, number: int, check: Callable[[], None], on_line: OnLine) -> Iterator[None]:
    """Prefect's own context manager cannot be interrupted while it waits; this one uses the same calls."""
    ended = threading.Event()
    with get_client(sync_client=True) as client:
        lease = _acquired(client, name, number)
        if lease is None:
            on_line(f"waits for {number} of the slots {name}")
        while lease is None:
            check()
            ended.wait(_LOOK_S)
            lease = _acquired(client, name, number)
        settings = contextvars.copy_context()  # a new thread has none of Prefect's settings
        renewal = threading.Thread(target=settings.run, args=(_renew, lease, ended), daemon=True)
        renewal.start()
        try:
            yield
        finally:
            ended.set()
            renewal.join()
            with contextlib.suppress(httpx.HTTPError, PrefectException):  # the lease ends by itself
                client.release_concurrency_slots_with_lease(lease)


def _acquired(client: SyncPrefectClient, name: str, number: int) -> UUID | None:
    """The lease of the slots; ``None`` if they are taken or the server is away."""
    try:
        answer = client.increment_concurrency_slots_with_lease([name], number, "concurrency", LEASE_S)
    except httpx.TransportError:
        return None
    except httpx.HTTPStatusError as error:
        if error.response.status_code == HTTPStatus.LOCKED or error.response.is_server_error:
            return None
        raise
    return UUID(answer.json()["lease_id"])


def _renew(lease: UUID, ended: threading.Event) -> None:
    with get_client(sync_client=True) as client:
        while not ended.wait(_RENEW_S):
            try:
                client.renew_concurrency_lease(lease, LEASE_S)
            except (httpx.HTTPError, PrefectException) as error:
                print(f"the lease of the slots could not be renewed: {error}", file=sys.stderr)
