"""The state of a team's work: machines, slots, the queue, the leases of stages, and the age of unfinished work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import DeploymentSchedule, StateType, WorkerStatus

from extras import unfinished
from flows import server
from flows.local import storage
from flows.team.deployment import definition
from flows.team.pools.lease import EXPIRY_S, Standing, standings

_RECENT_S = 3600.0
_MOST = 200
_OPEN = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def state(root: Path) -> Iterator[str]:
    """One line for each thing that an operator sees; raises ``PathfinderError`` as the server and the store do."""
    if url := server.known(root):
        with definition.connected(root, url) as client:
            yield f"server: {url.removesuffix('/api')}"
            yield from _deployed(client, root)
            yield from _machines(client)
            yield from _queue(client)
    else:
        yield "server: none"
    if (store := storage.shared(root, storage.LEASES)) is None:
        yield f"leases: none, as no {storage.REMOTE} is set"
        return
    invalid: list[str] = []
    yield from filter(None, map(_lease, standings(store, _RECENT_S, invalid)))
    yield from (f"lease {line}" for line in invalid)
    copies = storage.shared(root, unfinished.HOME)
    for item in copies.listed() if copies is not None else ():
        folder, _, name = item.key.rpartition("/")
        if name == unfinished.STATE:
            yield f"unfinished {folder}: copied {max(0.0, time.time() - item.modified):.0f} s ago"


def _deployed(client: SyncPrefectClient, root: Path) -> Iterator[str]:
    """The worker of this folder, and its deployments with their schedules."""
    if worker := server.recorded(root, "worker"):
        yield f"worker: {worker.pid}"
    for name, found in definition.present(client, root).items() if (root / definition.FILE).is_file() else ():
        yield f"{name}: {', '.join(map(_schedule, found.schedules)) or 'on demand'}"


def _schedule(found: DeploymentSchedule) -> str:
    schedule, forms = found.schedule, ("cron", "rrule", "interval")
    when = next(getattr(schedule, form) for form in forms if hasattr(schedule, form))
    return f"{when} ({'active' if found.active else 'inactive'})"


def _machines(client: SyncPrefectClient) -> Iterator[str]:
    """The workers of each pool, and the slots, such as cards, that stages hold."""
    for pool in client.read_work_pools(limit=_MOST):
        workers = client.read_workers_for_work_pool(pool.name)
        for worker in workers:
            seen = f"{worker.last_heartbeat_time:%H:%M:%S} UTC" if worker.last_heartbeat_time else "never"
            yield f"pool {pool.name}: worker {worker.name} {worker.status.value.lower()}, last seen {seen}"
        if not any(worker.status == WorkerStatus.ONLINE for worker in workers):
            yield f"pool {pool.name}: no worker; start one with `prefect worker start --pool {pool.name}`"
    for limit in client.read_global_concurrency_limits(limit=_MOST):
        if not limit.name.startswith("deployment:"):  # Prefect's own, for the deployment's limit of runs
            yield f"slots {limit.name}: {limit.active_slots} of {limit.limit} used"


def _queue(client: SyncPrefectClient) -> Iterator[str]:
    """The runs that wait or run, without those that a schedule starts later."""
    wanted = FlowRunFilter.model_validate({"state": {"type": {"any_": _OPEN}}})
    for run in client.read_flow_runs(flow_run_filter=wanted, limit=_MOST):
        if run.state is not None and (run.expected_start_time or run.created or datetime.now(UTC)) <= datetime.now(UTC):
            gpus = f", {found} GPUs" if (found := (run.job_variables or {}).get("gpus")) else ""
            pool = f" in pool {run.work_pool_name}" if run.work_pool_name else ""
            yield f"run {run.name}: {run.state.name} since {run.state.timestamp:%H:%M:%S} UTC{pool}{gpus}"


def _lease(found: Standing) -> str:
    """A line about a stage that is computed or has failed; empty if it has a result."""
    terms, age = found.terms, f"{found.age_s:.0f} s ago"
    if terms.ended:
        return f"lease {terms.stage}: {terms}, {terms.fate} {age}" if terms.fate else ""
    silent = "; gives no sign, so the next run takes it over" if found.age_s > EXPIRY_S else ""
    fate = found.before.fate if found.before else ""
    again = f"; is computed again, because {found.before} {fate}" if fate else ""
    return f"lease {terms.stage}: {terms}, last sign {age}{silent}{again}"
