"""The deployments of prefect.yaml, adjusted to this folder, and their objects on the Prefect server.

Several clones may share one Prefect server, so names end in the clone's own id: a worker must never run the deployment
of another folder. The remote and the frequency of heartbeats become part of the deployment: a worker that is restarted
from another shell does not change them.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from flows import server
from flows.local.storage import DEFAULT, REMOTE
from flows.team.notices import automations
from ground.io import DataError, TransientError, sha256_of
from ground.remote import KINDS, refuse_password
from ground.settings import RESTORE, read_yaml
from ground.text import anchor_of

FILE = Path("prefect.yaml")
NIGHTLY = "nightly"
ORDER = ("on-demand", "default", "scheduled", "background")
"""The queues that prefect.yaml names, and Prefect's own, the most urgent one first."""


def clone_id(root: Path) -> str:
    """The folder's name and six digits that host and path decide."""
    folder = root.absolute()
    digest = sha256_of(f"{platform.node()}:{folder}".encode())
    return f"{anchor_of(folder.name) or 'clone'}-{digest[:6]}"


def pool_name(root: Path) -> str:
    """The work pool that only the worker of this folder serves."""
    return f"pathfinder-{clone_id(root)}"


def names(root: Path) -> Iterator[str]:
    """FLOW/NAME of each deployment of this folder; raises ``DataError`` if prefect.yaml is not valid."""
    for deployment in _deployments(root):
        yield f"{deployment['entrypoint'].rpartition(':')[2]}/{deployment['name']}-{clone_id(root)}"


def adjusted(root: Path, present: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The content of prefect.yaml for this folder; raises ``DataError`` if the file is not valid.

    ``present`` are the deployments that exist, with the variables of their runs. They keep their schedules, and their
    remote unless the environment names one.
    """
    deployments = _deployments(root)
    for deployment in deployments:
        deployment["name"] += f"-{clone_id(root)}"
        kept = present.get(deployment["name"])
        if kept is not None:
            deployment.pop("schedules", None)
        deployment["pull"] = [{"prefect.deployments.steps.set_working_directory": {"directory": str(root.absolute())}}]
        # A new deployment takes the remote of the others. Deployments may share one pool in YAML, so each gets a copy.
        known = [found for found in (kept, *present.values()) if found is not None]
        pool = deployment.get("work_pool", {})
        variables = {**pool.get("job_variables", {}), "env": _variables(known[0] if known else {})}
        deployment["work_pool"] = {**pool, "name": pool_name(root), "job_variables": variables}
    return {**read_yaml(root / FILE), "deployments": deployments}


def _variables(kept: Mapping[str, str]) -> dict[str, str]:
    places = os.environ if os.environ.get(REMOTE, "").strip() or not kept.get(REMOTE) else kept
    found = {name: places.get(name, "").strip() for name in (REMOTE, *(kind.variable for kind in KINDS.values()))}
    for address in found.values():
        refuse_password(address)
    heartbeats = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(server.HEARTBEAT_S)}
    return {**found, REMOTE: found[REMOTE] or str(DEFAULT), **heartbeats}


def _deployments(root: Path) -> list[dict[str, Any]]:
    found = read_yaml(root / FILE).get("deployments")
    if not found or not all(isinstance(item, dict) and {"name", "entrypoint"} <= item.keys() for item in found):
        raise DataError(f"{root / FILE}: every deployment needs a name and an entrypoint; {RESTORE}")
    return [item for item in found if not item["entrypoint"].startswith("flows/team/pools/")]  # not for one machine


@contextlib.contextmanager
def connected(root: Path, url: str | None = None) -> Iterator[SyncPrefectClient]:
    """A client of the server at ``url``, or of the known one; raises as ``server.require_answer`` does."""
    if not (url := url or server.known(root)):
        raise DataError("no Prefect server: set PREFECT_API_URL, or start one with `python -m flows.team.deploy up`")
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
    with contextlib.suppress(ObjectAlreadyExists):
        wanted = WorkPoolCreate(name=name, type="process", description=f"The worker of {root.absolute()}")
        client.create_work_pool(wanted)
    if (found := client.read_work_pool(name)).type != "process":
        raise DataError(f"work pool {name} is of type {found.type}; expected process: delete it on the server's page")


def present(client: SyncPrefectClient, root: Path) -> dict[str, DeploymentResponse]:
    """This folder's deployments that exist, by FLOW/NAME."""
    found = {}
    for name in names(root):
        with contextlib.suppress(ObjectNotFound):
            found[name] = client.read_deployment_by_name(name)
    return found


def reschedule(client: SyncPrefectClient, root: Path, active: bool | None, cron: str | None) -> None:
    """Activate or pause all schedules of this folder's deployments, and change the times of the nightly."""
    for name, deployment in present(client, root).items():
        for item in deployment.schedules:
            zone = getattr(item.schedule, "timezone", None) or "UTC"
            times = CronSchedule(cron=cron, timezone=zone) if cron and name.startswith(f"{NIGHTLY}/") else None
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
    return list(found)


def equip(client: SyncPrefectClient, slots: Mapping[str, int]) -> None:
    """Set up a server beyond its deployments: automations that end lost runs, slots, and priorities."""
    automations.watch(client)
    for name, number in sorted(slots.items()):
        client.upsert_global_concurrency_limit_by_name(name, number)
    prioritise(client)


def prioritise(client: SyncPrefectClient) -> None:
    """Set the priorities of the queues in every pool that has these queues."""
    queues = {(queue.work_pool_name or "", queue.name): queue for queue in client.read_work_queues()}
    for pool in sorted({pool for pool, _ in queues}):
        ours = [queues[pool, name] for name in ORDER if (pool, name) in queues]
        if [queue.name for queue in ours] != ["default"]:
            for number, queue in enumerate(ours, start=1):
                client.update_work_queue(queue.id, priority=number)
