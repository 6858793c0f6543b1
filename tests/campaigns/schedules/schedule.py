"""One random schedule, and what must hold at its end."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.schedules.notices import Asked, in_pools, judge, known
from tests.campaigns.schedules.place import MACHINES, ODD, PEOPLE, Place
from tests.flows.watch import soon, working_in

FAULTS = ("kill a run", "kill a run", "Ctrl-C", "kill a machine's work", "kill the server", "stop the store", *ODD)
FAULTS_OF_POOLS = (*FAULTS, "lose a machine")
_PATIENCE_S, _ORPHANS_S, _MOST_ASKED = 420.0, 120.0, 8
_STRIKE, _EARLY = 0.15, 0.02
"""The chance per second that a run ends, once its time has come: a run that the server knows, and one that starts."""
_LAST_S, _LAST_IN_POOL_S, _ODD_S = 25.0, 50.0, (30.0, 60.0)
"""When the last fault comes, later in a pool, whose workers start slowly; and when the odd machines of a pool end."""


@dataclass
class Result:
    """The faults of a seed, how often each person asked, the seconds, the messages, and what was wrong, if anything.

    A false message counts as wrong; a missing one is counted.
    """

    seed: int
    faults: list[str]
    asked: dict[str, int] = field(default_factory=dict)
    executions: int = 0
    seconds: float = 0.0
    orphans_s: float = 0.0
    notices: int = 0
    false_notices: list[str] = field(default_factory=list)
    missing_notices: list[str] = field(default_factory=list)
    excused_notices: int = 0
    slowest_notice_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def as_row(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


def run(place: Place, seed: int) -> Result:
    """Run the schedule of a seed: two people ask for one stage until they have it, while faults happen."""
    chance = random.Random(seed)
    faults = chance.sample(FAULTS_OF_POOLS if place.pool else FAULTS, chance.choice((1, 2, 2, 3)))
    turns = [*(fault for fault in faults if fault in ODD), *chance.sample(MACHINES, 3)]
    place.turns(turns)
    plan = sorted(
        (chance.uniform(2.0, _LAST_IN_POOL_S if place.pool else _LAST_S), fault) for fault in faults if fault not in ODD
    )
    starts = {person: chance.uniform(0.0, 4.0) for person in PEOPLE}
    found, begin = Result(seed, faults), time.monotonic()
    logs = {person: place.home / f"{seed}-{person}.log" for person in PEOPLE}
    for person in PEOPLE:
        (place.home / person / "params.yaml").write_text(f"seed: {seed}\n")
    running: dict[str, Asked] = {}
    done: set[str] = set()
    later = [(chance.uniform(*_ODD_S), "end the odd machines")] if place.pool else []
    while len(done) < len(PEOPLE) and (now := time.monotonic() - begin) < _PATIENCE_S:
        for person in PEOPLE:
            asked = running.get(person)
            code = place.look(asked) if asked else 1
            if person in done or now < starts[person]:
                continue
            if code == 0:
                done.add(person)
            elif code is not None:
                if found.asked.get(person, 0) == _MOST_ASKED:
                    found.wrong.append(f"{person} asked {_MOST_ASKED} times in vain")
                    done.add(person)
                    continue
                found.asked[person] = found.asked.get(person, 0) + 1
                running[person] = place.ask(person, logs[person], seed=seed)
                starts[person] = now + 3.0
        for when, fault in [each for each in (*plan, *later) if each[0] <= now]:
            (plan if (when, fault) in plan else later).remove((when, fault))
            later += _happen(place, fault, chance, running, now)
        time.sleep(0.1)
    for _, fault in later:
        _happen(place, fault, chance, running, 0.0)
    place.settle()
    found.seconds = round(time.monotonic() - begin, 1)
    _judge(place, found, done)
    return found


def _happen(
    place: Place, fault: str, chance: random.Random, running: dict[str, Asked], now: float
) -> list[tuple[float, str]]:
    """Let a fault happen, or wait for a run to end; returns the rest, which happens later."""
    with suppress(ProcessLookupError):
        if fault in ("kill a run", "Ctrl-C"):
            alive = [asked for asked in running.values() if asked.process.poll() is None]
            asked = chance.choice(alive) if alive else None
            if asked is None or chance.random() > (_STRIKE if asked.is_known else _EARLY):
                return [(now + 1.0, fault)]
            asked.strike(fault.split()[0])
        elif place.pool and fault in ("kill a machine's work", "lose a machine"):
            busy = [*place.pool.at_work().items()]
            if not busy or chance.random() > _STRIKE:
                return [(now + 1.0, fault)]
            machine, worker = chance.choice(busy)
            place.pool.lose(machine) if fault == "lose a machine" else os.kill(worker, signal.SIGKILL)
        elif fault == "kill a machine's work" and (workers := place.workers()):
            os.kill(workers[-1], signal.SIGKILL)
        elif fault == "end the odd machines" and place.pool:
            place.pool.end(ODD)
        elif fault == "kill the server":
            place.kill_server()
            return [(now + 2.0, "start the server")]
        elif fault == "start the server":
            place.start_server_meanwhile()
        elif fault == "stop the store":
            os.killpg(place.store.pid, signal.SIGSTOP)
            return [(now + chance.uniform(5.0, 60.0), "continue the store")]
        elif fault == "continue the store":
            os.killpg(place.store.pid, signal.SIGCONT)
    return []


def _judge(place: Place, found: Result, done: set[str]) -> None:
    """Add what is wrong: executions at once, wrong bytes, orphans."""
    found.wrong += [f"{person} has no result after {_PATIENCE_S:.0f} s" for person in PEOPLE if person not in done]
    executions = sorted(spans(place.home / "ticks", found.seed))
    found.executions = len(executions)
    for (_, end), (start, _) in itertools.pairwise(executions):
        if start < end:
            found.wrong.append(f"computed twice at once for {end - start:.1f} s")
    expected = f"result {found.seed}\n" * 9000
    for person in done:
        out = place.home / person / "out.txt"
        if not out.exists() or out.read_text() != expected:
            found.wrong.append(f"{person} has wrong bytes: {out.read_text()[:40] if out.exists() else 'none'!r}")
    begin = time.monotonic()
    folders = [place.home / name for name in (*PEOPLE, *(f"clones-{name}" for name in (*MACHINES, *ODD)))]

    def is_quiet() -> bool:
        return not (place.has_work() or any(working_in(folder.resolve()) for folder in folders if folder.exists()))

    if not soon(is_quiet, _ORPHANS_S):
        found.wrong.append(f"processes are left after {_ORPHANS_S:.0f} s")
    found.orphans_s = round(time.monotonic() - begin, 1)


def judge_notices(place: Place, found: Result) -> None:
    """Add the messages about the runs of a schedule. Those about later schedules stay; all others count."""
    runs = [(asked, known(place.url, asked)) for asked in place.runs if asked.seed >= found.seed]
    stages = in_pools(place.url) if place.pool else []
    newer = [run.id for asked, run in runs if run and asked.seed > found.seed]
    newer += [run.id for seed, run in stages if seed > found.seed]
    messages = [each for each in place.receiver.messages if not any(id in str(each[1].get("link")) for id in newer)]
    mine = [run for seed, run in stages if seed == found.seed]
    told = judge([each for each in runs if each[0].seed == found.seed], messages, place.outages, mine)
    for each in messages:
        place.receiver.messages.remove(each)
    found.notices, found.false_notices, found.missing_notices = told.notices, told.false, told.missing
    found.excused_notices, found.slowest_notice_s = told.excused, told.slowest_s
    found.wrong += [*(f"false notice: {each}" for each in told.false), *told.left]


def spans(folder: Path, seed: int) -> list[tuple[float, float]]:
    """The first and the last sign of each execution, in seconds since 1970."""
    found = []
    for path in folder.glob(f"{seed}-*"):
        times = [float(line) for line in path.read_text().splitlines() if len(line) > 10]
        found += [(times[0], times[-1])] if times else []
    return found
