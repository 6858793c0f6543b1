"""People, workers and faults around the project's own leases: one night of a team, from a seed."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from evidence.dvc.history import Locked
from evidence.remote.made import Made
from flows.local import storage
from flows.team.pools import away, lease, leases
from flows.team.pools.table import Needs
from ground.io import PathfinderError, TransientError
from tests.campaigns.fleet.clock import Clock, Event, Owner
from tests.campaigns.fleet.store import Store

LATENCY_S = 0.1
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html says 100 to 200 ms."""
START_S, SEND_S = 2.1, 1.3
"""The seconds of a stage besides its work, 3.4 together (operations.md)."""
DATA = Counter(PUT=8, GET=9)
"""Requests of a stage besides its leases, half of them by each side (tests/campaigns/schedules/cost.py)."""
QUERY_S = 10.0
"""A worker asks for work as often as this (PREFECT_WORKER_QUERY_SECONDS)."""
LIFE = 32
"""Requests to Prefect's server of a run, without the looks of whoever follows it (tests/campaigns/fleet/server.py)."""
OUTAGE_S, RESTART_S, HEARTBEAT_LOST_S = 60.0, 30.0, 90.0
MADE = Made(state="ran", outs={}, runs={}, evidence={})
RETRY_S, REBOOT_S, NEEDS = 2.0, 300.0, Needs(pool="cpu")
"""The first delay of a retry (flows/tasks.py), and the seconds without a machine that was lost."""


@dataclass(frozen=True)
class Plan:
    """The size of a team, and its faults: mean hours until a worker's machine or a person's run is lost."""

    stages: int = 100
    workers: int = 50
    people: int = 20
    width: int = 10
    shared: float = 0.5
    minutes: float = 10.0
    worker_h: float = 24.0
    run_h: float = 24.0
    outages: int = 2
    silent: bool = False
    seed: int = 1


@dataclass
class Run:
    """One run of a pool's deployment: the stage that a person asked for, its state, and the event of its end."""

    id: str
    stage: str
    asked: float
    done: Event
    state: str = "scheduled"


class Held(leases.Leases):
    """The leases of one process on ``team.store``, without DVC, git and Prefect."""

    def __init__(self, team: Team, name: str, on_lost: Callable[[], None] = lambda: None, stays: bool = True) -> None:
        does = {"check": lambda _: None, "restore": lambda *_: None, "end": lambda *_: on_lost()}
        self._dvc, self._root, self._stays = type("Dvc", (), does)(), Path(name), stays
        self._held, self._is_told, self._team = {}, False, team
        self.ended = cast(Any, team.clock.Event())

    def ordered(self, name: str) -> Locked:
        """The run of a stage, which its name determines here."""
        return Locked(name, "work", {"in": name}, {"out": ""})

    def _received(self, *_: object) -> bool:
        self._team.store.ask("GET", DATA["GET"] // 2)
        return True

    def _terms(self, name: str) -> lease.Terms:
        return lease.Terms(user="u", host="h", run=str(self._root), place=str(self._root), since="now", stage=name)


class Team:
    """One night of a team, with its events and its counts."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.chance, self.clock = plan, random.Random(plan.seed), Clock()
        self.store = Store(self.clock, LATENCY_S, self._times(plan.outages, OUTAGE_S), plan.silent)
        self.restarts = self._times(plan.outages, RESTART_S)
        self.queue, self.computing = deque[Run](), dict[str, list[tuple[Owner, float]]]()
        self.running, self._numbers = dict[Owner, Run](), itertools.count()
        self.counts, self.prefect = Counter[str](), Counter[int]()
        self.lost_at, self.takeovers_s = dict[str, float](), list[float]()
        self._noticed, self.noticed_s = set[str](), list[float]()
        self.has = {person: set[str]() for person in range(plan.people)}
        self.finished_s, self.twice_s, self.busy_s, self.work_s = dict[int, float](), 0.0, 0.0, 0.0

    def night(self) -> Team:
        """Let people ask for their pipelines until everyone has all stages."""
        with self.in_virtual_time():
            for _ in range(self.plan.workers):
                self._worker()
            for person in range(self.plan.people):
                self._person(person)
            self.clock.run(lambda: len(self.finished_s) == self.plan.people)
        return self

    @contextmanager
    def in_virtual_time(self) -> Iterator[None]:
        """Let the project's leases use this clock and this store."""
        with ExitStack() as stack:
            for module in (lease, leases):
                stack.enter_context(patch.object(module, "threading", self.clock))
            stack.enter_context(patch.object(leases, "is_here", lambda place, root: place == str(root)))
            stack.enter_context(patch.object(leases, "creates_exclusively", lambda store, **_: _probe(store)))
            stack.enter_context(patch.object(storage, "shared", lambda *_: self.store))
            yield

    def _times(self, count: int, seconds: float) -> list[tuple[float, float]]:
        starts = [self.chance.uniform(300, 7200) for _ in range(count)]
        return [(start, start + self.chance.uniform(seconds / 10, seconds)) for start in starts]

    def _end_after(self, owner: Owner, hours: float, then: Callable[[], None]) -> None:
        """Kill a process at a random time, if it still lives then, and do something."""

        def fate() -> None:
            self.clock.sleep(self.chance.expovariate(1 / (3600 * hours)))
            if owner.is_alive:
                owner.is_alive = False
                self.counts[f"{owner.kind} killed"] += 1
                then()

        self.clock.spawn(Owner("fate"), fate)

    def _worker(self) -> None:
        owner = Owner("worker")

        def again() -> None:
            if (run := self.running.pop(owner, None)) is not None:
                self.clock.spawn(Owner("fate"), self._notice, run)
            for stage in [stage for stage, found in self.computing.items() if owner in [each for each, _ in found]]:
                self._leave(owner, stage)
                self.lost_at[stage] = self.clock.now
            self.clock.sleep(REBOOT_S)
            self._worker()

        self.clock.spawn(owner, self._serve, owner)
        self._end_after(owner, self.plan.worker_h, again)

    def _serve(self, owner: Owner) -> None:
        while True:
            self.clock.sleep(self.chance.uniform(0, QUERY_S) if self.queue else QUERY_S)
            self._server(1)
            if self.queue:
                run = self.queue.popleft()
                if run.state == "scheduled":
                    run.state, self.running[owner] = "running", run
                    self._compute(owner, run)
                    self._server(LIFE)
                    del self.running[owner]
                    run.done.set()

    def _notice(self, run: Run) -> None:
        """Let Prefect's server notice that a run has no heartbeat."""
        self.clock.sleep(HEARTBEAT_LOST_S)
        run.state = "crashed"
        run.done.set()

    def _noted(self, stage: str) -> None:
        """Note that someone asks again for a stage whose machine was lost."""
        if stage in self.lost_at and stage not in self._noticed:
            self.noticed_s.append(self.clock.now - self.lost_at[stage])
            self._noticed.add(stage)

    def _server(self, requests: int) -> None:
        """Requests to Prefect's server, which a client repeats while it is restarted."""
        for start, end in self.restarts:
            if start <= self.clock.now < end:
                self.clock.sleep(end - self.clock.now + self.chance.uniform(0, 5))
        self.prefect[int(self.clock.now)] += requests

    def _compute(self, owner: Owner, run: Run) -> None:
        """Do the work of flows.team.pools.stage: hold the lease, work, send, and state the result."""
        lost, stage, begin = self.clock.Event(), run.stage, self.clock.now
        self.clock.sleep(START_S)
        held = Held(self, run.id, lost.set, stays=False)
        try:
            self.store.ask("GET", DATA["GET"] // 2)
            with held.held(stage, False, NEEDS, lambda _: None):
                if stage in held._held:
                    self._work(owner, stage, lost)
            if stage in held._held:
                self.store.ask("PUT", DATA["PUT"])
                held._end(stage, MADE)
            run.state = "completed"
        except leases.Elsewhere:
            run.state = "completed"
            self.counts["given back"] += 1
        except PathfinderError:
            self.counts["stage tried again"] += 1
            run.state = "failed"
        finally:
            if owner.is_alive:
                held.close()
                self.busy_s += self.clock.now - begin

    def _work(self, owner: Owner, stage: str, lost: Event) -> None:
        now = self.clock.now
        if stage in self.lost_at:
            self.takeovers_s.append(now - self.lost_at.pop(stage))
            self._noticed.discard(stage)
        others = self.computing.setdefault(stage, [])
        self.counts["twice"] += bool(others)
        others.append((owner, now))
        lost.wait(self._seconds(stage))
        self._leave(owner, stage)
        self.clock.sleep(SEND_S)
        if lost.is_set():
            raise TransientError("another run has taken it over")
        self.counts["computed"] += 1
        self.work_s += self.clock.now - now

    def _leave(self, owner: Owner, stage: str) -> None:
        """Note that a process computes a stage no longer, and for how long another did so at the same time."""
        found = self.computing[stage]
        ((_, since),) = [each for each in found if each[0] is owner]
        found[:] = [each for each in found if each[0] is not owner]
        self.twice_s += sum(self.clock.now - max(since, begin) for _, begin in found)

    def _seconds(self, stage: str) -> float:
        return random.Random(f"{self.plan.seed} {stage}").lognormvariate(math.log(60 * self.plan.minutes) - 0.25, 0.7)

    def _person(self, person: int) -> None:
        """Start a person's run: its chains of stages at once; a killed run is started again, and keeps what it has."""
        has = self.has[person]
        owner, plan = Owner("person"), self.plan
        depth = plan.stages // plan.width
        held = Held(self, f"person {person} {self.clock.now}")

        def chain(number: int) -> None:
            for level in range(depth):
                whose = "all" if level < plan.shared * depth else str(person)
                if (stage := f"{whose} {level}.{number}") not in has:
                    self._follow(held, stage)
                    has.add(stage)
            if len(has) == depth * plan.width:
                self.finished_s[person] = self.clock.now

        def again() -> None:
            self.clock.sleep(60)
            self._person(person)

        for number in range(plan.width):
            self.clock.spawn(owner, chain, number)
        self._end_after(owner, plan.run_h, lambda: None if person in self.finished_s else again())

    def _follow(self, held: Held, stage: str) -> None:
        """Do the work of flows.team.pools.away for one stage, until it has the result."""
        while True:
            with suppress(PathfinderError):
                if held.has_earlier(stage, NEEDS, lambda _: None):
                    return
                run = Run(f"run {next(self._numbers)}", stage, self.clock.now, self.clock.Event())
                self._server(2)
                self._noted(stage)
                self.counts["runs"] += 1
                self.queue.append(run)
                self._wait(run, held.watch(stage, run.id))
                if run.state == "completed":
                    continue
            self.clock.sleep(RETRY_S)

    def _wait(self, run: Run, is_lost: Callable[[], bool]) -> None:
        begin = looked = self.clock.now
        while not run.done.wait(away.pause_s(self.clock.now - begin, run.state == "scheduled")):
            self._server(2)
            if run.state == "running" and self.clock.now - looked > leases.LOOK_S - 0.1:
                looked = self.clock.now
                with suppress(TransientError):
                    if is_lost():
                        run.state = "crashed"
                        break


def _probe(store: Store) -> bool:
    """The requests of ``creates_exclusively`` with two writers."""
    store.keys("probe/")
    store.ask("PUT", 2)
    store.ask("DELETE")
    return True
