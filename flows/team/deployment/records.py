"""Objects of this folder on the Prefect server: the work pool, deployments and schedules."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from flows import server
from flows.team.deployment.definition import NIGHTLY, names, pool_name
from flows.team.notices import automations
from ground.io import DataError, TransientError


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
        wanted = WorkPoolCreate(name=name, type="process", description=f"The worker of {root.absolute()}")
        client.create_work_pool(wanted)
        return
    if found.type != "process":
        raise DataError(f"work pool {name} is of type {found.type}; expected process: delete it on the server's page")


def present(client: SyncPrefectClient, root: Path) -> dict[tuple[str, str], DeploymentResponse]:
    """This folder's deployments that exist, by the names of flow and deployment."""
    found = {}
    for flow, name in names(root):
        with contextlib.suppress(ObjectNotFound):
            found[flow, name] = client.read_deployment_by_name(f"{flow}/{name}")
    return found


def reschedule(client: SyncPrefectClient, root: Path, active: bool | None, cron: str | None) -> None:
    """Activate or pause all schedules of this folder's deployments, and give the nightly's other times."""
    for (flow, _), deployment in present(client, root).items():
        for item in deployment.schedules:
            zone = getattr(item.schedule, "timezone", None) or "UTC"
            times = CronSchedule(cron=cron, timezone=zone) if cron and flow == NIGHTLY else None
            client.update_deployment_schedule(deployment.id, item.id, active, times)


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
    found = present(client, root)
    for deployment in found.values():
        client.delete_deployment(deployment.id)
    automations.unwatch(client)
    with contextlib.suppress(ObjectNotFound):
        client.delete_work_pool(pool_name(root))
    return ["/".join(name) for name in found]
