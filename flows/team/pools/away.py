"""The stages of one run that other machines execute: started as deployments, watched, and restored at their end."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime
from pathlib import Path
from typing import cast
from uuid import UUID

import httpx
from prefect import states
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import LogFilter
from prefect.client.schemas.objects import FlowRun, WorkerStatus
from prefect.client.schemas.sorting import LogSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from evidence.dvc.lock import drop_absent, dvc_lock
from evidence.remote.made import compare
from flows.local import storage
from flows.local.dvc import Cancelled, Dvc, DvcError, OnLine, State
from flows.local.graph import Graph
from flows.places import Places, Retries, WorkerLost
from flows.team.notices.automations import GONE, LOST, LOST_AFTER_S
from flows.team.notices.notice import TRACEBACK
from flows.team.pools.lease import GONE_S
from flows.team.pools.leases import LOOK_S, Leases
from flows.team.pools.order import FAILED, Ordered, changed_params, committed, needed, signed
from flows.team.pools.slots import slots_held
from flows.team.pools.table import FILE, needs
from ground.io import DataError, PathfinderError, TransientError, sha256_of, write_text
from ground.text import printable

FLOW = "stage"
ORDERS = Path(".pathfinder/orders")
_FAILED = re.compile(re.escape(FAILED).replace(r"\{\}", "(.*?)"))
_POLL_S, _LOGS = 1.0, 200
_ERRORS = {"transient": TransientError, "lost": WorkerLost}  # by flows.places.class_of; any other is a DataError


class Away(Places):
    """The folder of a run for the stages that need it, and a pool of infra/resources.yaml for every other stage.

    ``pushed`` are the stages whose outs their workers sent, or this run for the stages that read them.
    """

    def __init__(self, dvc: Dvc, graph: Graph, address: str) -> None:
        super().__init__(dvc, graph, address)
        self.needs = needs(dvc.root, graph.stages)
        self.leases = Leases(dvc, flow_run.get_id() or "")
        self._commit = ""
        self._pools: dict[str, str] = {}

    def is_here(self, name: str) -> bool:
        """Return whether infra/resources.yaml leaves a stage in the folder of the run."""
        return self.needs[name].is_here

    def retries(self, name: str) -> Retries:
        """The retries in infra/resources.yaml."""
        return self.needs[name].retries

    def check(self, stages: Collection[str]) -> None:
        """Check what workers need before a stage starts; raises ``DataError`` if code, remote or pool is not ready."""
        names = [name for name in self.graph.ordered() if name in stages and not self.needs[name].is_here]
        if not names:
            return
        is_shared = storage.shared(self.root, storage.LEASES) is not None
        if not is_shared or ("://" not in self.address and not Path(self.address).is_absolute()):
            raise DataError(
                f"{names[0]} runs in pool {self.needs[names[0]].pool}, but results go to {self.address}; "
                f"set {storage.REMOTE} to a place that all machines reach, or `pool: here` in {FILE}"
            )
        self._commit = committed(self.root, self.graph, names)
        for need, name in ((self.needs[name], name) for name in names):
            if not need.launch:
                self._pools[need.pool] = self._pools.get(need.pool) or _work_pool(need.pool)
            elif shutil.which(program := need.command(name, "")[0]) is None:
                raise DataError(f"pool {need.pool}: {program}: not found; correct `launch` in {FILE}")

    def run(self, name: str, force: bool, on_line: OnLine) -> State:
        """Run a stage here, or let its pool run it or its parts."""
        need = self.needs[name]
        if not need.is_here and need.parts == 1:
            return self.run_away(name, force, on_line)
        with self.leases.held(name, force, need, on_line) as is_writer:
            if not need.is_here and (state := self.run_parts(name, force, on_line)) is not None:
                return state
            with self.leases.at_work(name, on_line, need, is_writer):
                return self.dvc.reproduce(name, force, on_line, need.time_s)

    def push(self, *names: str) -> None:
        """Send the outs of stages to the remote, and end their leases."""
        super().push(*names)
        self.leases.sent(*names)

    def run_away(self, name: str, force: bool, on_line: OnLine) -> State:
        """Let its pool run a stage, and restore its outs; a result that the cache has is restored at once.

        Raises ``WorkerLost``, ``TransientError``, ``DataError`` with the worker's message or if its result is refused,
        and ``Cancelled``.
        """
        if (state := self._prepare(name, force, on_line)) is not None:
            return state
        run, need = self.leases.ordered(name), self.needs[name]
        self._ask(name, force, on_line)
        if (made := self.leases.made(run, on_line)) is None:
            raise TransientError(f"{name} in pool {need.pool}: the stage completed without a result")
        self.leases.receive(run, self._commit, made, need, on_line, is_new=force)
        if self.dvc.restore(name) is None:
            raise DataError(
                f"{name}: the worker's result does not belong to the inputs here; run it with `pool: here` in {FILE} "
                "and compare the two records"
            )
        compare(self.root, name, made)
        self.pushed.add(name)
        return made.state

    def run_parts(self, name: str, force: bool, on_line: OnLine) -> State | None:
        """Let the pool compute a stage's parts in parallel; returns the stage's state if the cache has the result."""
        if (state := self._prepare(name, force, on_line)) is not None:
            return state
        count = self.needs[name].parts
        with ThreadPoolExecutor(count) as threads:
            parts = [f"{number}/{count}" for number in range(1, count + 1)]
            # A new thread has none of Prefect's settings, such as the address of the server.
            ends = [threads.submit(copy_context().run, self._ask, name, force, on_line, part) for part in parts]
        for part, end in zip(parts, ends, strict=True):
            try:
                end.result()
            except PathfinderError as error:
                on_line(f"part {part} is missing, so the stage does its work: {error}")
        return None

    def stop(self) -> None:
        """End the stages that run here and the leases; whoever waits for a worker's run cancels it."""
        super().stop()
        self.leases.close()

    def _prepare(self, name: str, force: bool, on_line: OnLine) -> State | None:
        """Restore the stage if the cache or the remote has its result, otherwise send what workers read."""
        if not force:
            with dvc_lock(self.root):
                drop_absent(self.root, {name})
            state = self.dvc.restore(name)
            if state is None and self.leases.has_earlier(name, self.needs[name], on_line):
                state = self.dvc.restore(name)
            if state is not None:
                return state
        if mine := sorted(self.graph.upstream[name] - self.pushed):
            self.push(*mine)
        return None

    def _ask(self, name: str, force: bool, on_line: OnLine, part: str = "") -> None:
        """Let the pool compute a stage or a part of it; raises if it fails."""
        with dvc_lock(self.root):
            inputs = needed(self.root, self.graph, name)
        order = Ordered(
            stage=name,
            commit=self._commit,
            params=changed_params(self.root),
            inputs=inputs,
            force=force,
            remote=self.address,
            parent=flow_run.get_id() or "",
            part=part,
        )
        if self.needs[name].launch:
            self._launch(order, on_line)
        else:
            self._require_completed(name, self._follow(name, self._start(order), on_line))

    def _launch(self, order: Ordered, on_line: OnLine) -> None:
        """Run the command of the pool's launcher, which ends with the stage and prints its lines."""
        name, text, failures = order.stage, signed(order), list[str]()
        need, path = self.needs[name], (self.root / ORDERS / f"{sha256_of(text.encode())}.json").absolute()

        def heard(line: str) -> None:
            if found := _FAILED.fullmatch(line):
                failures[:] = found.groups()
            else:
                on_line(line)

        write_text(path, text)
        try:
            with slots_held(need.slots, self.dvc.check, on_line):
                self.dvc.launch(need.command(name, str(path)), path, heard)
        except DvcError as error:
            ended = f"{need.launch.split()[0]} ended with status {error.code}; last line: {error.last or 'none'}"
            kind, cause = failures or ("lost", ended)
            raise _ERRORS.get(kind, DataError)(f"{name} in pool {need.pool}: {cause}") from error
        finally:
            path.unlink(missing_ok=True)

    def _start(self, order: Ordered) -> FlowRun:
        need, parameters = self.needs[order.stage], {"order": json.loads(signed(order))}
        name, variables = str(order), need.job_variables or None
        started = run_deployment(
            f"{FLOW}/{need.pool}", parameters=parameters, flow_run_name=name, timeout=0, job_variables=variables
        )
        return cast(FlowRun, started)

    def _follow(self, name: str, run: FlowRun, on_line: OnLine) -> FlowRun:
        """Wait for the end of a worker's run and pass its log lines on."""
        need, pool = self.needs[name], self._pools[self.needs[name].pool]
        on_line(f"waits for a worker of pool {need.pool}: {_link(run)}")
        begin = since = looked = time.monotonic()
        seen = dict[UUID, datetime]()
        is_lost = self.leases.watch(name, str(run.id))
        with get_client(sync_client=True) as client:
            while True:
                run = client.read_flow_run(run.id)
                state = run.state or states.Pending()
                if state.is_final():
                    break
                is_waiting = state.is_scheduled() or state.is_pending()
                for line in () if is_waiting else _new_lines(client, run.id, seen):
                    on_line(line)
                if state.is_running() and time.monotonic() - looked >= LOOK_S:
                    looked = time.monotonic()
                    with contextlib.suppress(TransientError, OSError):
                        if is_lost():  # the server would notice it a minute later
                            _crash(client, run.id, GONE_S)
                workers = client.read_workers_for_work_pool(pool) if is_waiting else []
                online = {worker.name for worker in workers if worker.status == WorkerStatus.ONLINE}
                taker = run.labels.get("prefect.worker.name")  # none as long as any worker may take the run
                if not is_waiting or (taker in online if taker else online):
                    since = time.monotonic()
                elif state.is_pending() and time.monotonic() - since > LOST_AFTER_S:
                    _crash(client, run.id, LOST_AFTER_S)  # it has no heartbeat yet that the server could miss
                elif time.monotonic() - since > need.wait_s:
                    _cancel(client, run.id, "no worker took it")
                    raise WorkerLost(
                        f"{name}: pool {pool} has had no worker for {need.wait_s:.0f} s; start one with `prefect "
                        f"worker start --pool {pool}`"
                    )
                if self.leases.ended.wait(pause_s(time.monotonic() - begin, is_waiting)):
                    with contextlib.suppress(httpx.TransportError):
                        _cancel(client, run.id, "the run that waits for it was ended")
                    raise Cancelled("the run is ending")
            if not state.is_completed():
                time.sleep(_POLL_S)  # the last lines of a failed run arrive a moment after its state
            for line in _new_lines(client, run.id, seen):
                on_line(line)
        return run

    def _require_completed(self, name: str, run: FlowRun) -> None:
        """Raise the error of a worker's run that did not complete."""
        state = run.state or states.Pending()
        message = "was cancelled" if state.is_cancelled() else state.message or state.name or ""
        kind = "lost" if state.is_crashed() else (state.name or "").lower()
        if not state.is_completed():
            told = printable(" ".join(message.split()))
            raise _ERRORS.get(kind, DataError)(f"{name} in pool {self.needs[name].pool}: {told} ({_link(run)})")


def pause_s(waited_s: float, is_waiting: bool) -> float:
    """The seconds until the next look at a run: all who wait ask one server, and a waiting run has no news."""
    return min(max(_POLL_S, waited_s / 20), 30.0 if is_waiting else LOOK_S)


def _new_lines(client: SyncPrefectClient, run: UUID, seen: dict[UUID, datetime]) -> Iterator[str]:
    """The flow's own lines in a worker's log that are not yet ``seen``; a failure's cause is in the run's state."""
    after = max(seen.values(), default=None)
    wanted = LogFilter.model_validate({"flow_run_id": {"any_": [run]}, "timestamp": {"after_": after}})
    for offset in range(0, 1 << 30, _LOGS):
        found = client.read_logs(wanted, limit=_LOGS, offset=offset, sort=LogSort.TIMESTAMP_ASC)
        for line in found:
            if line.id not in seen and line.name == "prefect.flow_runs" and TRACEBACK not in line.message:
                yield printable(line.message)
            seen[line.id] = line.timestamp
        if len(found) < _LOGS:
            return


def _work_pool(pool: str) -> str:
    """The work pool of a pool's deployment; raises ``DataError`` if the server has no such deployment."""
    try:
        with get_client(sync_client=True) as client:
            return client.read_deployment_by_name(f"{FLOW}/{pool}").work_pool_name or pool
    except ObjectNotFound as error:
        raise DataError(
            f"pool {pool}: the server has no deployment {FLOW}/{pool}; deploy it with `prefect --no-prompt deploy "
            f"--all`, name a command under `launch`, or set `pool: here` in {FILE}"
        ) from error


def _crash(client: SyncPrefectClient, run: UUID, silent_s: float) -> None:
    client.set_flow_run_state(run, states.Crashed(message=f"{LOST} {silent_s:.0f} s: {GONE}"), force=True)


def _cancel(client: SyncPrefectClient, run: UUID, reason: str) -> None:
    """Cancel a run; the server refuses it if the run has ended."""
    with contextlib.suppress(ObjectNotFound):
        waits = (client.read_flow_run(run).state or states.Pending()).is_scheduled()
        client.set_flow_run_state(run, (states.Cancelled if waits else states.Cancelling)(message=reason), force=waits)


def _link(run: FlowRun) -> str:
    return url_for(run) or f"run {run.name}"
