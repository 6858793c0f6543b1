"""Virtual time for code that waits by ``threading``: each thread is a greenlet, and the earliest one is next."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import greenlet  # type: ignore[import-untyped]


class Owner:
    """A process of some kind; the threads of one that was killed do nothing more."""

    def __init__(self, kind: str) -> None:
        self.kind, self.is_alive = kind, True


class Clock:
    """The time in seconds and, in place of the module ``threading``, ``Thread``, ``Event`` and ``Lock``."""

    def __init__(self) -> None:
        self.now, self._hub = 0.0, greenlet.getcurrent()
        self._heap: list[tuple[float, int, Any]] = []
        self._numbers, self._next = itertools.count(), dict[Any, int]()
        self._owners, self._kinds = dict[Any, Owner](), dict[Any, str]()

    def spawn(self, owner: Owner, work: Callable[..., object], *arguments: Any, kind: str = "") -> None:
        """Start a thread of a process now; ``kind`` says what it does."""
        thread = greenlet.greenlet(lambda: work(*arguments), parent=self._hub)
        self._owners[thread], self._kinds[thread] = owner, kind or owner.kind
        self.wake(thread, self.now)

    def wake(self, thread: Any, when: float) -> None:
        """Wake a thread at a time; only the last call counts."""
        number = self._next[thread] = next(self._numbers)
        heapq.heappush(self._heap, (when, number, thread))

    def sleep(self, seconds: float) -> None:
        """Let others work for some seconds."""
        self.wake(greenlet.getcurrent(), self.now + seconds)
        self.switch()

    def switch(self) -> None:
        """Let others work until someone wakes this thread."""
        if not self.owner.is_alive:
            raise greenlet.GreenletExit
        self._hub.switch()

    @property
    def owner(self) -> Owner:
        """The process of the present thread."""
        return self._owners[greenlet.getcurrent()]

    @property
    def kind(self) -> str:
        """The kind of the present thread, if its process was not killed."""
        if not self.owner.is_alive:
            raise greenlet.GreenletExit
        return self._kinds[greenlet.getcurrent()]

    def run(self, is_over: Callable[[], bool]) -> None:
        """Let time pass until ``is_over``; raises ``AssertionError`` if all threads wait for ever."""
        while not is_over():
            assert self._heap, "all threads wait for ever"
            when, number, thread = heapq.heappop(self._heap)
            if self._next.get(thread) == number and self._owners[thread].is_alive:
                self.now = when
                thread.switch()
                if thread.dead:
                    del self._next[thread], self._owners[thread], self._kinds[thread]
        for owner in self._owners.values():
            owner.is_alive = False  # what is thrown away does nothing more

    def Thread(self, target: Callable[..., object], args: tuple[Any, ...], daemon: bool) -> Any:
        """A thread of the present process, as ``threading.Thread`` makes one."""
        assert daemon
        return type("Thread", (), {"start": lambda _: self.spawn(self.owner, target, *args, kind="renewal")})()

    def Event(self) -> Event:
        """An event of virtual time."""
        return Event(self)

    def Lock(self) -> Lock:
        """A lock of virtual time."""
        return Lock(self)


class Lock:
    """The part of ``threading.Lock`` that the leases use."""

    def __init__(self, clock: Clock) -> None:
        self._free = Event(clock)
        self._free.set()

    def __enter__(self) -> None:
        while not self._free.wait():
            pass
        self._free.clear()

    def __exit__(self, *_: object) -> None:
        self._free.set()


class Event:
    """The part of ``threading.Event`` that the leases use."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._is_set, self._waiting = clock, False, list[Any]()

    def is_set(self) -> bool:
        """Return whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Wake all who wait."""
        self._is_set = True
        for thread in self._waiting:
            self._clock.wake(thread, self._clock.now)
        self._waiting.clear()

    def clear(self) -> None:
        """Let others wait again."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most for ``timeout`` seconds."""
        if not self._is_set:
            me = greenlet.getcurrent()
            self._waiting.append(me)
            if timeout is not None:
                self._clock.wake(me, self._clock.now + timeout)
            self._clock.switch()
            if me in self._waiting:
                self._waiting.remove(me)
        return self._is_set
