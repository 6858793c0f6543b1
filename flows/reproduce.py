"""The pipeline as a Prefect flow: each stage of dvc.yaml is a task that calls DVC.

Run     python -m flows.reproduce [TARGET …] [--force] [--pull] [--jobs N]

DVC decides what is out of date and stores results. Prefect retries transient failures, schedules and displays runs, and
keeps their logs. Independent stages run concurrently, and a failed stage stops only its descendants.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from prefect import flow, tags
from prefect.artifacts import create_table_artifact
from prefect.events.worker import EventsWorker
from prefect.futures import PrefectFuture
from prefect.logging.handlers import APILogWorker
from prefect.runtime import deployment, flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from evidence.dvc.lock import drop_absent, sort_lock
from evidence.formats.page.render import write_page
from evidence.record.environment import FLOW_RUN
from evidence.remote.guard import Guard
from evidence.remote.publication import Commit
from flows import server
from flows.endings import SETTLE_S, left_behind, lost_server, server_needed, settle
from flows.local import hooks, storage
from flows.local.committed import earlier_seconds
from flows.local.dvc import Cancelled, Dvc
from flows.local.graph import Graph, load_graph, missing_data, out_of_date, profile_of
from flows.local.lock import Hold, held
from flows.parameters import Jobs, Targets
from flows.places import Places
from flows.tasks import Pushes, ended, stage_task, store_task
from flows.terminal import Outcome, Terminal, flow_output, log_path
from ground.io import PathfinderError
from ground.text import plain_message
from pathfinder.models import cards

_AGAIN = "correct the cause and run again: finished stages are not repeated"


class StagesFailed(PathfinderError, RuntimeError):
    """At least one stage did not succeed; the message names them, and ``failures`` has the reason of each that ran."""

    def __init__(self, message: str, failures: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failures = failures


def run_name() -> str:
    """The name of a flow run: its starter, its profile and its targets."""
    parameters, started = flow_run.get_parameters(), deployment.get_name()
    targets = list(parameters.get("targets") or ())
    what = ", ".join(targets[:3]) + (f" and {len(targets) - 3} more" if targets[3:] else "") or "all stages"
    options = ", ".join(option for option in ("force", "pull") if parameters.get(option))
    words = (f"{started}:" if started else "", profile_of(Path()), what, f"({options})" if options else "")
    return " ".join(filter(None, words))


@flow(
    name="reproduce",
    flow_run_name=run_name,
    persist_result=False,
    validate_parameters=False,
    on_failure=[*hooks("tell")],
    on_crashed=[*hooks("tell")],
)
def reproduce(targets: Targets = (), force: bool = False, pull: bool = False, jobs: Jobs = 0) -> list[dict[str, Any]]:
    """Bring stages up to date; returns one row per stage.

    Args:
        targets: Stages or outputs; empty for all that the profile names.
        force: Run stages even if they are up to date.
        pull: Restore outputs of published runs from the remote instead of running their stages.
        jobs: The number of concurrent stages; 0 for one per GPU or core.

    Raises ``StagesFailed``, and ``DataError`` if another run is in progress in this folder or a deployment names no
    remote.
    """
    root = Path.cwd()
    with held(root) as hold:
        storage.require_remote()
        hold.name_flow_run(flow_run.get_id() or "", *server.access())
        run = Run(root, load_graph(root), targets, force, pull, jobs)
        say = flow_output("pathfinder")
        for line in [storage.describe(root, run.address), *left_behind(hold)]:
            say(line)
        storage.preflight(root, run.address)
        try:
            run.execute()
        except BaseException:
            run.places.stop()  # the run was cancelled or crashed: end its stages
            Terminal.outcomes = list(run.outcomes.values())
            raise
        outcomes = run.outcomes.values()
        rows = [outcome.as_row() for outcome in outcomes]
        create_table_artifact(table=rows, key="stages", description="The outcome of each stage")
        run.terminal.summary(outcomes)
        failed = [outcome.name for outcome in outcomes if not outcome.succeeded]
        if not failed:
            sort_lock(root)
        is_published = run.publish()
        run.places.stop()
        if failed or run.unpushed or not is_published:
            message = f"failed or not started: {', '.join(failed)}; {_AGAIN}" if failed else "all stages succeeded"
            push = f"; not pushed: {', '.join(run.unpushed)} (run without targets to push)" if run.unpushed else ""
            log = "" if is_published else "; not published (run the whole pipeline again to publish)"
            reasons = {outcome.name: outcome.reason for outcome in outcomes if outcome.state == "failed"}
            raise StagesFailed(message + push + log, reasons)
        return rows


class Run:
    """One run of a set of stages: the waiting and running stages, and the outcomes of the ended stages."""

    def __init__(self, root: Path, graph: Graph, targets: Sequence[str], force: bool, pull: bool, jobs: int) -> None:
        self.root, self.graph, self.force, self._pull = root, graph, force, pull
        self.address = storage.configure(root)
        self.selected = graph.select(targets)
        cores = len(os.sched_getaffinity(0))
        # One stage per GPU, each of which waits for its own cards; without a GPU one per core.
        self.jobs = jobs or len(cards.visible()) or cores
        self.terminal = Terminal()
        self.outcomes: dict[str, Outcome] = {}
        self.unpushed: list[str] = []
        self._was_pending = storage.is_pending(root, self.address)  # before this run changes the lock
        threads = str(max(1, cores // min(self.jobs, graph.width(self.selected))))
        variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads), FLOW_RUN: flow_run.get_id() or ""}
        self.dvc = Dvc(root, variables, warm=True)
        self.places: Places = next(hooks("places"), Places)(self.dvc, graph, self.address)
        self._guard = Guard(root) if pull else None
        self._pushes = Pushes(self.places.push, self.terminal)

    def execute(self) -> None:
        """Run every out-of-date stage as soon as its inputs exist."""
        self.dvc.fetch(missing_data(self.root), self.terminal.print)
        stale = self.selected if self.force else out_of_date(self.graph, self.dvc.status()) & self.selected
        if self._pull:
            drop_absent(self.root, stale)
        for name in self.selected - stale:
            self.outcomes[name] = Outcome(name, "up to date", 0.0, self.graph.stages[name].all_outs)
        self.places.check(stale)
        self.terminal.expect(stale, earlier_seconds(self.root, profile_of(self.root), stale))
        ranks = self.graph.ranks()
        ordered = sorted(stale, key=lambda name: (-ranks[name], name))
        futures: dict[str, PrefectFuture[Any]] = {}
        finished: SimpleQueue[str] = SimpleQueue()
        while left := [name for name in ordered if name not in self.outcomes]:
            for name in self._startable(left, futures):
                needed = [futures[other] for other in self.graph.upstream[name] if other in futures]
                task = stage_task(self.places, self.terminal, self._guard, self.graph.stages[name])
                futures[name] = task.submit(name, self.force, wait_for=needed)
                futures[name].add_done_callback(lambda _, name=name: finished.put(name))  # type: ignore[misc]
            try:
                name = finished.get(timeout=self._pushes.due_in())
            except Empty:
                self._pushes.send()
                continue
            self.outcomes[name] = self._outcome(name, futures[name])
            if self.outcomes[name].state == "failed":
                for other in self.graph.descendants([name]) & stale:
                    blocked = Outcome(other, "not started", 0.0, (), f"needs {name}, which failed")
                    self.outcomes.setdefault(other, blocked)
            elif name not in self.places.pushed:
                self._pushes.add(name)
        self.unpushed = self._pushes.end()
        self.outcomes = {name: self.outcomes[name] for name in self.graph.ordered() if name in self.outcomes}

    def publish(self) -> bool:
        """Append the outs that were made and pushed to the remote's log, so that other machines may restore them.

        After the profile's whole pipeline that is the whole lock, otherwise the stages of this run. Returns False if it
        failed.
        """
        done = {name for name, outcome in self.outcomes.items() if outcome.succeeded} - {*self.unpushed}
        is_whole = done == self.graph.select(())
        untouched = [name for name in done if self.outcomes[name].state == "up to date"]
        if not is_whole and len(untouched) == len(done):
            return True

        def send() -> Commit:
            if self._was_pending and untouched:
                self.dvc.push(*untouched)
            return storage.publish(self.root, self.address, None if is_whole else done)

        task = store_task(send, "publish", "the run could not be published", self.terminal)
        state = ended(task.submit())
        if not state.is_completed():
            return False
        commit: Commit = state.result()
        note = "" if commit.exclusive else " (this store cannot order concurrent writers)"
        self.terminal.print("storage", f"{self.address}: manifest {commit.number}, sha256 {commit.manifest}{note}")
        return True

    def _startable(self, left: list[str], started: Container[str]) -> list[str]:
        """The stages of ``left`` whose inputs exist: all stages of pools, and as many stages here as jobs are free."""
        done = {name for name, outcome in self.outcomes.items() if outcome.succeeded}
        ready = [name for name in left if name not in started and self.graph.upstream[name] & self.selected <= done]
        here = [name for name in ready if self.places.is_here(name)]
        free = self.jobs - sum(self.places.is_here(name) for name in left if name in started)
        return [name for name in ready if name not in here or name in here[:free]]

    def _outcome(self, name: str, future: PrefectFuture[Any]) -> Outcome:
        state = ended(future)
        if state.is_completed():
            outcome: Outcome = state.result()
            return outcome
        error = state.result(raise_on_failure=False)
        if isinstance(error, Cancelled):
            raise error
        self.terminal.print(name, f"{error} (full output: {log_path(name)})", bad=True)
        return Outcome(name, "failed", 0.0, (), str(error))


def run_on_server(url: str, root: Path, hold: Hold, targets: Sequence[str], force: bool, pull: bool, jobs: int) -> int:
    """Run the flow on a server; returns the exit status. Raises ``PathfinderError`` if the storage or server fails."""
    terminal = Terminal()
    with (
        server_needed(url, hold),
        temporary_settings({PREFECT_API_URL: url, PREFECT_HOME: server.home(root)}),
        tags(hold.holder.tag),
    ):
        server.require_answer(url)
        terminal.print("pathfinder", f"watch this run at {url.removesuffix('/api')}")
        try:
            state = reproduce(targets, force, pull, jobs, return_state=True)
        finally:
            # While the server still runs: at exit, Prefect would try for minutes to reach it.
            APILogWorker.drain_all(timeout=SETTLE_S, at_exit=False)
            EventsWorker.drain_all(timeout=SETTLE_S, at_exit=False)
        settle(state)
    if not state.is_completed():
        error = state.result(raise_on_failure=False)
        error = lost_server(url, error) or error
        message = plain_message(error)
        if message is None and isinstance(error, Exception):
            raise error  # a fault of the code: the traceback is needed
        terminal.print("pathfinder", message or str(state.message), bad=True)
        return error.exit_status if isinstance(error, PathfinderError) else 1
    try:
        write_page(root)
    except PathfinderError as error:  # the results are complete without it
        terminal.print("pathfinder", f"no page of the history: {error}", bad=True)
    terminal.where(root)
    return 0


if __name__ == "__main__":
    runpy.run_module("flows", run_name="__main__")
