"""Several equivalent servers: their numbers of concurrent calls, and the choice of a server for the next call.

A replica's limit starts low and grows by one per success until the first failure, then by one per round of calls. A
failure halves it, once per congestion. A replica whose limit drops three times without a success is left out for a
while if another replica works, and then tried with a single call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

_FIRST_LIMIT = 8
_DEAD_AFTER = 3  # drops of the limit without a success between them
_LONGEST_REST_S = 60.0


@dataclass(slots=True)
class Replica:
    """One server; ``limit`` is the number of concurrent calls that it gets now, and ``most`` its upper bound."""

    url: str
    most: int
    limit: float = field(init=False)
    in_flight: int = 0
    failures: int = 0
    growing: bool = True  # before the first failure, when the limit doubles with each round
    lowered_at: float = float("-inf")
    rests_until: float = float("-inf")

    def __post_init__(self) -> None:
        self.limit = float(min(_FIRST_LIMIT, self.most))

    @property
    def free(self) -> int:
        """The number of calls that it can still get now."""
        return max(int(self.limit) - self.in_flight, 0)

    def succeeded(self) -> None:
        """Raise the limit after a successful call."""
        self.failures = 0
        self.limit = min(self.limit + (1.0 if self.growing else 1.0 / self.limit), float(self.most))

    def failed(self, began: float, now: float) -> None:
        """Lower the limit after an overload, a timeout or a lost connection of a call that began at ``began``."""
        if began < self.lowered_at:
            return  # the limit was already lowered for this congestion
        self.growing = False
        self.limit = max(self.limit / 2, 1.0)
        self.lowered_at = now
        self.failures += 1
        if self.failures >= _DEAD_AFTER:
            self.limit = 1.0
            self.rest(now)

    def rest(self, now: float) -> None:
        """Leave the replica out for a time that doubles with each further failure."""
        further = max(self.failures - _DEAD_AFTER, 0)
        self.rests_until = now + min(2.0 ** min(further, 10), _LONGEST_REST_S)


class Replicas:
    """The servers of one client. Only one event loop may use it at a time."""

    def __init__(self, urls: Sequence[str], most: int) -> None:
        self.all = tuple(Replica(url.rstrip("/"), most) for url in urls)
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> Replica:
        """Wait for capacity and reserve a call on the replica with the most capacity; ``release`` returns it."""
        while not (replica := max(self._usable(), key=lambda replica: replica.free)).free:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        replica.in_flight += 1
        return replica

    def release(self, replica: Replica, began: float, succeeded: bool | None) -> None:
        """Return a call that succeeded or failed, or that the caller gave up (``None``)."""
        replica.in_flight -= 1
        if succeeded:
            replica.succeeded()
        elif succeeded is not None:
            replica.failed(began, time.monotonic())
        free = sum(replica.free for replica in self._usable())
        while free > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def _usable(self) -> list[Replica]:
        now = time.monotonic()
        return [replica for replica in self.all if replica.rests_until <= now] or list(self.all)
