"""The simulated team at a small size: nothing is computed twice at once, everybody gets all, and a seed repeats."""

from __future__ import annotations

import math
from pathlib import Path
from unittest.mock import patch

import pytest

from flows.local import storage
from flows.team.pools import away, lease, leases
from ground.remote import READ_S
from tests.campaigns.fleet.__main__ import row
from tests.campaigns.fleet.clock import Owner
from tests.campaigns.fleet.model import NEEDS, Held, Plan, Team

SMALL = Plan(stages=8, workers=4, people=3, width=2, minutes=4.0, worker_h=0.4, run_h=0.4, outages=3, seed=2)


def test_every_stage_is_computed_and_none_twice_at_once() -> None:
    first, again = Team(SMALL).night(), Team(SMALL).night()
    assert first.counts["worker killed"] > 0
    assert first.counts["person killed"] > 0
    assert {len(has) for has in first.has.values()} == {SMALL.stages}
    assert (first.counts["twice"], first.twice_s) == (0, 0.0)
    assert (row(first), first.store.counts, first.prefect) == (row(again), again.store.counts, again.prefect)


@pytest.mark.parametrize(("read_s", "is_alone"), [(storage.SIGN_S, True), (READ_S, False)])
def test_a_store_that_loses_requests_does_not_let_two_compute(read_s: float, is_alone: bool) -> None:
    """With the patience of other requests, a holder is heard only after someone else has taken its lease."""
    team, spans = Team(Plan(workers=0, people=0, outages=0)), list[tuple[float, float]]()
    clock, team.store.outages, team.store.silent, team.store.read_s = team.clock, [(100.0, 125.0)], True, read_s

    def compute(start_s: float, seconds: float) -> None:
        clock.sleep(start_s)
        held = Held(team, f"run {start_s}")
        with held.held("stage", False, NEEDS, print):
            begin = clock.now
            clock.sleep(seconds)
            spans.append((begin, clock.now))
        held.close()

    with team.in_virtual_time():
        for start_s, seconds in ((0.0, 150.0), (126.0, 100.0)):
            clock.spawn(Owner("worker"), compute, start_s, seconds)
        clock.run(lambda: len(spans) == 2)
    (_, first_end), (second_begin, _) = sorted(spans)
    assert (first_end < second_begin) == is_alone


def test_waiting_for_others_takes_no_workers() -> None:
    """A worker gives its place back while another computes the stage, and the run that asked waits without one."""
    plan = Plan(stages=4, workers=4, people=4, width=4, shared=1.0, minutes=5.0, outages=0)
    busy_s = {}
    for patience_s in (lease.GONE_S, math.inf):
        with patch.object(leases, "GONE_S", patience_s):
            busy_s[patience_s] = Team(plan).night().busy_s
    assert busy_s[lease.GONE_S] < busy_s[math.inf] / 2


@pytest.mark.parametrize(("folder", "read_s"), [(storage.LEASES, storage.SIGN_S), ("unfinished", READ_S)])
def test_a_lease_waits_less_for_a_silent_store(folder: str, read_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.REMOTE, "s3://bucket/team")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    store = storage.shared(Path(), folder)
    assert store is not None
    assert store._client.meta.config.read_timeout == read_s  # type: ignore[union-attr]


def test_a_look_at_a_run_is_rare_while_it_waits() -> None:
    assert [away.pause_s(waited_s, True) for waited_s in (0.0, 100.0, 6000.0)] == [1.0, 5.0, 30.0]
    assert [away.pause_s(waited_s, False) for waited_s in (0.0, 60.0, 6000.0)] == [1.0, 3.0, leases.LOOK_S]
