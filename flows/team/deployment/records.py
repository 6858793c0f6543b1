"""Objects of this folder on the Prefect server: the work pool, deployments and schedules."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from flows import server
from flows.team.deployment.definition import Present, names, pool_name
from flows.team.notices import automations
from ground.io import DataError, TransientError

_SCHEDULE_KEYS = ("cron", "day_or", "interval", "anchor_date", "rrule", "timezone")


@contextlib.contextmanager
def connected(root: Path, url: str) -> Iterator[SyncPrefectClient]:
    """A client of the server at ``url``; raises as ``server.require_answer`` does."""
    settings = {PREFECT_API_URL: url, PREFECT_HOME: server.home(root)}
    with temporary_settings(settings), get_client(sync_client=True) as client:
        server.require_answer(url)
        try:
            yield client
        except httpx.TransportError as error:
            raise TransientError(f"{url}: the Prefect server has ended ({error}); repeat the command") from error


def ensure_pool(client: SyncPrefectClient, root: Path) -> None:
    """Create this folder's process pool unless it exists; raises ``DataError`` if it is of another type."""
    name = pool_name(root)
    try:
        found = client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(name=name, type="process", description=f"The worker of {root.absolute()}")
        )
        return
    if found.type != "process":
        raise DataError(f"work pool {name} is of type {found.type}; expected process: delete it on the server's page")


def present(client: SyncPrefectClient, root: Path) -> dict[str, Present]:
    """This folder's deployments that exist, by name."""
    kept: dict[str, Present] = {}
    for flow, name in names(root):
        with contextlib.suppress(ObjectNotFound):
            found = client.read_deployment_by_name(f"{flow}/{name}")
            schedules = [_form(item.schedule, item.active) for item in found.schedules]
            kept[name] = Present(schedules, found.job_variables.get("env", {}))
    return kept


def _form(schedule: Any, active: bool) -> dict[str, Any]:
    values = {key: getattr(schedule, key, None) for key in _SCHEDULE_KEYS}
    if isinstance(values["interval"], timedelta):
        values["interval"] = values["interval"].total_seconds()
    if isinstance(values["anchor_date"], datetime):
        values["anchor_date"] = values["anchor_date"].isoformat()
    return {**{key: value for key, value in values.items() if value is not None}, "active": active}


def wait_for_worker(client: SyncPrefectClient, root: Path, since: datetime, seconds: float) -> bool:
    """Return whether this folder's worker reports to the server within ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        workers = client.read_workers_for_work_pool(pool_name(root))
        if any(worker.last_heartbeat_time and worker.last_heartbeat_time > since for worker in workers):
            return True
        time.sleep(0.5)
    return False


def remove(client: SyncPrefectClient, root: Path) -> list[str]:
    """Delete this folder's deployments and pool, and with the last deployments the watch; returns the names."""
    removed = []
    for flow, name in names(root):
        with contextlib.suppress(ObjectNotFound):
            client.delete_deployment(client.read_deployment_by_name(f"{flow}/{name}").id)
            removed.append(f"{flow}/{name}")
    automations.unwatch(client)
    with contextlib.suppress(ObjectNotFound):
        client.delete_work_pool(pool_name(root))
    return removed


def now() -> datetime:
    """The time with which the server's times can be compared."""
    return datetime.now(UTC)
