"""How many calls each of several equal servers is given at a time, and which server gets the next one.

Every replica has a limit of its own. It starts low and grows by one with every success until the first failure, from
then on by one for each round of calls; a failure halves it. Calls that were under way when it was halved do not halve
it again: one congestion is one step down. A replica that is lowered three times with no success between is left out for
a while, then tried with a single call, as long as another one lives.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_FIRST_LIMIT = 8
_DEAD_AFTER = 3  # steps down with no success between
_FIRST_REST_S = 1.0
_LONGEST_REST_S = 60.0


@dataclass(slots=True)
class Replica:
    """One server; ``limit`` is how many calls it is given at a time, at most ``most``."""

    url: str
    most: int
    limit: float = 0.0
    in_flight: int = 0
    failures: int = 0
    growing: bool = True  # no failure yet: the limit may double with each round
    lowered_at: float = float("-inf")
    rests_until: float = float("-inf")

    def __post_init__(self) -> None:
        self.limit = float(min(_FIRST_LIMIT, self.most))

    @property
    def free(self) -> int:
        """How many more calls it may be given now."""
        return max(int(self.limit) - self.in_flight, 0)

    def succeeded(self) -> None:
        """A call came back."""
        self.failures = 0
        self.limit = min(self.limit + (1.0 if self.growing else 1.0 / self.limit), float(self.most))

    def failed(self, began: float, now: float) -> None:
        """A call that began at ``began`` met an overload, a time-out or a lost connection."""
        if began < self.lowered_at:
            return  # of the congestion that was answered already
        self.growing = False
        self.limit = max(self.limit / 2, 1.0)
        self.lowered_at = now
        self.failures += 1
        if self.failures >= _DEAD_AFTER:
            self.limit = 1.0
            self.rest(now)

    def rest(self, now: float) -> None:
        """Leave it out for a time that doubles with each further failure."""
        over = max(self.failures - _DEAD_AFTER, 0)
        self.rests_until = now + min(_FIRST_REST_S * 2.0 ** min(over, 10), _LONGEST_REST_S)


class Replicas:
    """The servers of one client; all methods belong to one event loop at a time."""

    def __init__(self, urls: Sequence[str], most: int) -> None:
        self.all = tuple(Replica(url.rstrip("/"), most) for url in urls)
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def ready(self) -> None:
        """Return when a call may start."""
        while self._freest() is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    async def acquire(self) -> Replica:
        """The replica with most room, one call of which is now the caller's; to be given back with ``release``."""
        while (replica := self._freest()) is None:
            await self.ready()
        replica.in_flight += 1
        return replica

    def release(self, replica: Replica, began: float, fine: bool | None) -> None:
        """Give a call back: it went well, failed for now, or (``None``) was broken off by the caller."""
        replica.in_flight -= 1
        if fine is not None:
            now = time.monotonic()
            if fine:
                replica.succeeded()
            else:
                replica.failed(began, now)
        self._wake()

    def _usable(self) -> list[Replica]:
        now = time.monotonic()
        return [replica for replica in self.all if replica.rests_until <= now] or list(self.all)

    def _freest(self) -> Replica | None:
        best = max(self._usable(), key=lambda replica: replica.free)
        return best if best.free else None

    def _wake(self) -> None:
        room = sum(replica.free for replica in self._usable())
        while room > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1
