"""A lease on a stage: of all runs that ask for the same command, inputs, parameters and code, one computes.

It is the object ``leases/<digest>/<number>`` in a remote. Only one run can create the next number: it holds the lease
and writes the object again every ``EVERY_S`` seconds. At the end the object states the result, which the waiting runs
take, or the cause of a failure. The next number replaces a holder that gave no sign for ``EXPIRY_S`` and for two more
renewals while a run looked: after an outage of the store, holders write before a run gives up on them. Only the highest
number counts: a holder that was paused finds that it has lost the lease. Ages are differences between times of the
store, so no two clocks are compared. Numbers never return, so nothing here deletes an object; the collection of garbage
does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from pydantic import ValidationError

from evidence.dvc.history import Locked
from evidence.remote.made import Made
from evidence.settings import Form
from ground.io import DataError, PathfinderError, digest_of
from ground.remote import Store
from ground.text import first_problem, printable

EVERY_S, EXPIRY_S = 5.0, 12.0
GONE_S = EXPIRY_S + 2 * EVERY_S
_ASKED, SILENT = "asked", "gave no sign"


class Terms(Form):
    """The holder of a stage and its ``place`` (flows.local.processes); later the result or a failure's ``cause``."""

    user: str
    host: str
    run: str
    place: str
    since: str
    stage: str = ""
    ended: bool = False
    cause: str = ""
    made: Made | None = None

    @property
    def fate(self) -> str:
        """The end of a holder without a result; empty if it has a result."""
        if self.made is not None:
            return ""
        return f"failed: {self.cause}" if self.cause else "was ended" if self.ended else SILENT

    def __str__(self) -> str:
        return printable(f"{self.user} on {self.host} (run {self.run}), since {self.since}")


@dataclass(frozen=True, slots=True)
class Standing:
    """The last holder of a lease, the seconds since its last sign, and the holder before it."""

    terms: Terms
    age_s: float
    before: Terms | None


def standings(store: Store, within_s: float, invalid: list[str]) -> Iterator[Standing]:
    """The leases in ``store`` (``storage.LEASES``) with a sign within some seconds; raises as a store does.

    ``invalid`` gets a line about each object that is not a lease.
    """
    store.put(_ASKED, b"")
    items = store.listed()
    now = next(item.modified for item in items if item.key == _ASKED)
    holders = (item for item in items if item.key.rpartition("/")[2].isdecimal())
    for _, found in groupby(holders, lambda item: item.key.rpartition("/")[0]):
        *earlier, newest = found
        if (age_s := now - newest.modified) <= within_s:
            try:
                before = _terms(store, earlier[-1].key) if earlier else None
                yield Standing(_terms(store, newest.key), age_s, before)
            except DataError as error:
                invalid.append(str(error))


class Lease:
    """The lease on ``run`` (``next_run``) in ``store`` (``storage.LEASES``); every method raises as a store does."""

    def __init__(self, store: Store, run: Locked) -> None:
        self._store, self._last, self._lock, self._ended = store, 0, threading.Lock(), threading.Event()
        self._mute, self._mute_since = ("", 0.0), 0.0
        self._folder = digest_of([run.cmd, run.deps, run.params, sorted(run.outs)])

    def look(self) -> Terms | None:
        """The last holder's terms, ``SILENT`` if it gives no sign, or ``None``; raises ``DataError`` if not valid."""
        self._store.put(f"{self._folder}/{_ASKED}", b"")
        times = {item.key.rpartition("/")[2]: item.modified for item in self._store.listed(f"{self._folder}/")}
        last = max((name for name in times if name.isdecimal()), default="")
        self._last = int(last or 0)
        if not last:
            return None
        terms, sign, now = _terms(self._store, self._key(self._last)), (last, times[last]), times[_ASKED]
        if now - times[last] > EXPIRY_S and sign != self._mute:
            self._mute, self._mute_since = sign, now
        is_silent = not terms.ended and sign == self._mute and now - self._mute_since >= 2 * EVERY_S
        return terms.model_copy(update={"ended": True, "cause": SILENT}) if is_silent else terms

    def take(self, terms: Terms, on_lost: Callable[[], None]) -> bool:
        """Take and renew the lease, which ``look`` found free; False if someone else was first.

        Once it is lost, ``on_lost`` is called again and again, until ``end``.
        """
        self._number, self._terms = self._last + 1, terms
        key, content = self._key(self._number), terms.model_dump_json().encode()
        if not (self._store.create(key, content) and self._store.read(key) == content):
            return False
        threading.Thread(target=self._renew, args=(on_lost,), daemon=True).start()
        return True

    def is_mine(self) -> bool:
        """False if someone else has taken the lease, which had expired."""
        return max(self._numbers(), default=0) == self._number

    def end(self, made: Made | None = None, cause: str = "") -> bool:
        """End the lease and state the result or the cause of a failure; returns False if the lease is lost."""
        self._ended.set()
        return self._write(self._terms.model_copy(update={"ended": True, "made": made, "cause": cause}))

    def made(self) -> Made | None:
        """The newest result that a holder stated; ``None`` if there is none. Raises ``DataError`` as ``look`` does."""
        found = (_terms(self._store, self._key(number)).made for number in sorted(self._numbers(), reverse=True))
        return next(filter(None, found), None)

    def _renew(self, on_lost: Callable[[], None]) -> None:
        while not self._ended.wait(EVERY_S):
            # A store that does not answer is asked again; if that takes too long, someone else takes the lease.
            with contextlib.suppress(PathfinderError, OSError):
                if not self._write(self._terms):
                    on_lost()

    def _write(self, terms: Terms) -> bool:
        with self._lock:
            if not self.is_mine():
                return False
            if terms.ended or not self._ended.is_set():
                self._store.put(self._key(self._number), terms.model_dump_json().encode())
            return True

    def _numbers(self) -> list[int]:
        names = (key.rpartition("/")[2] for key in self._store.keys(f"{self._folder}/"))
        return [int(name) for name in names if name.isdecimal()]

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:08d}"


def _terms(store: Store, key: str) -> Terms:
    try:
        return Terms.model_validate_json(store.read(key))
    except ValidationError as error:
        problem = f"{store.url}/{key}: {first_problem(error)}, so it is not a lease"
        raise DataError(
            f"{problem}; delete it in the remote, where a run that still computes writes it anew"
        ) from error
