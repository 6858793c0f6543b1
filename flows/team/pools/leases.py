"""The leases of one run on its stages (flows.team.pools.lease), if other machines reach its remote.

Stages of pools and stages that keep unfinished work take a lease. Other stages take less time than their outs to reach
the remote.
A lease is held until the remote has the outs, or the stage fails or is interrupted.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from evidence.dvc.history import Locked, next_run
from evidence.dvc.lock import drop, dvc_lock
from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import describe_actor
from evidence.remote.made import Made, Order, State, hand_back, receive
from evidence.remote.publication import creates_exclusively
from extras.unfinished import HOME as UNFINISHED
from extras.unfinished import carried, kind_of
from flows.local import storage
from flows.local.dvc import Dvc, OnLine
from flows.local.processes import is_here, place
from flows.team.deployment.git import commit_of
from flows.team.pools.lease import GONE_S, SILENT, Lease, Terms
from flows.team.pools.table import Needs
from ground.io import DataError, PathfinderError, TransientError
from ground.remote import Store
from ground.text import printable

LOOK_S = 4.0


class Elsewhere(PathfinderError, RuntimeError):
    """Another run computes a stage; whoever asked for it waits without a worker."""


class Leases:
    """The leases of the stages that ``dvc`` runs in a flow run, or in no ``run``; thread-safe.

    If another run keeps computing a stage, ``held`` waits for it or, unless it ``stays``, raises ``Elsewhere``. The
    event ``ended`` is set by ``close``.
    """

    def __init__(self, dvc: Dvc, run: str = "", stays: bool = True) -> None:
        self._dvc, self._root, self._run, self._stays = dvc, dvc.root, run or str(os.getpid()), stays
        self._held: dict[str, Lease] = {}
        self.ended, self._is_told = threading.Event(), False

    @contextlib.contextmanager
    def held(self, name: str, force: bool, needs: Needs, on_line: OnLine) -> Iterator[Callable[[], bool]]:
        """Hold the lease of a stage from now on, or put the result of its holder into the cache.

        Yields a function that is True while no other run has taken the stage over. If one has, the stage is ended,
        and this raises ``TransientError``.
        """
        store = storage.shared(self._root, storage.LEASES) if not needs.is_here or kind_of(name) else None
        lease = self._taken(store, name, force, needs, on_line) if store is not None else None
        try:
            yield lease.is_mine if lease is not None else lambda: True
        except BaseException as error:
            cause = printable(" ".join(str(error).split()) or type(error).__name__)[:200]
            if lease is not None and not self._end(name, cause=cause):
                raise TransientError(f"{name}: another run has taken it over, as this one had given no sign") from None
            raise

    @contextlib.contextmanager
    def at_work(
        self, name: str, on_line: OnLine, needs: Needs, is_writer: Callable[[], bool] = lambda: True, part: str = ""
    ) -> Iterator[None]:
        """Hold the slots of a stage or ``part`` that runs here, and copy its unfinished work while it ``is_writer``."""
        store = storage.shared(self._root, UNFINISHED)
        with contextlib.ExitStack() as stack:
            if needs.slots:
                from flows.team.pools.slots import slots_held  # imports Prefect

                stack.enter_context(slots_held(needs.slots, self._dvc.check, on_line))
            stack.enter_context(carried(store, self._root, name, on_line, is_part=bool(part), is_writer=is_writer))
            yield

    def sent(self, *names: str, state: State = "ran") -> None:
        """State the results of stages whose outs are on the remote; raises ``DataError`` as ``hand_back`` does."""
        for name in names:
            if name in self._held:
                self._end(name, hand_back(self._root, name, state, os.environ[storage.REMOTE]))

    def ordered(self, name: str) -> Locked:
        """The run of a stage that would be next, which its lease is about."""
        return next_run(self._root, read_pipeline(self._root)[name])

    def watch(self, name: str, run: str) -> Callable[[], bool]:
        """A function that is True once ``run`` holds the lease of a stage and gives no sign; raises as a store does."""
        store = storage.shared(self._root, storage.LEASES)
        lease = Lease(store, self.ordered(name)) if store is not None else None

        def is_lost() -> bool:
            terms = lease.look() if lease is not None else None
            return terms is not None and terms.run == run and terms.cause == SILENT

        return is_lost

    def made(self, run: Locked, on_line: OnLine) -> Made | None:
        """The newest result of a run on any machine, once none computes it; raises as a store does."""
        if (store := storage.shared(self._root, storage.LEASES)) is None:
            return None
        lease, looks = Lease(store, run), 0
        while (other := lease.look()) is not None and not other.ended and not is_here(other.place, self._root):
            self._wait(other, looks, on_line)
            looks += 1
        return (other.made or lease.made()) if other is not None else None

    def has_earlier(self, name: str, needs: Needs, on_line: OnLine) -> bool:
        """Put an earlier result of a stage into the cache; returns False if there is none that this project trusts."""
        run = self.ordered(name)
        made = self.made(run, on_line)
        return made is not None and self._received(run, made, needs, on_line)

    def receive(
        self, run: Locked, commit: str, made: Made, needs: Needs, on_line: OnLine, is_new: bool = False
    ) -> None:
        """Put the result of a run into the cache, from which DVC restores it; raises as ``evidence.remote.made``.

        Unless it ``is_new``, another run may have computed it, at a different commit with the same code.
        """
        allow = partial(needs.require_packages, run.name, say=on_line)
        made = made if is_new else made.model_copy(update={"state": "restored"})
        receive(self._root, Order(run, commit), made, os.environ[storage.REMOTE], allow)
        with dvc_lock(self._root):
            drop(self._root, {run.name})

    def close(self) -> None:
        """End all leases."""
        self.ended.set()
        for name in [*self._held]:
            self._end(name)

    def _taken(self, store: Store, name: str, force: bool, needs: Needs, on_line: OnLine) -> Lease | None:
        """The lease, once no one else has it; ``None`` if the cache has the result then."""
        run, waits = self.ordered(name), 0
        lease = Lease(store, run)
        if not self._is_told and not creates_exclusively(store, rounds=1, writers=2):
            on_line(f"{store.url} cannot order writers: runs that ask at the same moment both compute a stage")
        self._is_told = True
        while True:
            other = lease.look()
            if other is not None and not other.ended and not is_here(other.place, self._root):
                if not waits and not force and self._dvc.restore(name) is not None:
                    return None
                if not self._stays and waits * LOOK_S > GONE_S:
                    raise Elsewhere(f"{name} is computed by {other}")
                self._wait(other, waits, on_line)
                waits += 1
                continue
            made = other.made if other is not None and not force and (waits or not needs.is_here) else None
            if made is not None and self._received(run, made, needs, on_line):
                return None
            if lease.take(self._terms(name), lambda: self._dvc.end(name)):
                if waits and made is None:
                    on_line("is computed here now: the other run has ended without a result, or gives no sign")
                self._held[name] = lease
                return lease

    def _wait(self, other: Terms, looks: int, on_line: OnLine) -> None:
        if not looks:
            on_line(f"is computed by {other}; waits for the result")
        self.ended.wait(LOOK_S)
        self._dvc.check()

    def _received(self, run: Locked, made: Made, needs: Needs, on_line: OnLine) -> bool:
        commit = commit_of(self._root, "HEAD")
        try:
            self.receive(run, commit, made, needs, on_line)
        except DataError as error:
            on_line(f"the result of the other run is not used: {error}")
            return False
        return True

    def _end(self, name: str, made: Made | None = None, cause: str = "") -> bool:
        """End a lease; returns False if it was lost. If the store does not answer, the lease expires."""
        lease = self._held.pop(name, None)
        with contextlib.suppress(PathfinderError, OSError):
            return lease is None or lease.end(made, cause)
        return True

    def _terms(self, name: str) -> Terms:
        actor, since = describe_actor(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        return Terms(
            user=actor["user"], host=platform.node(), run=self._run, place=place(self._root), since=since, stage=name
        )
