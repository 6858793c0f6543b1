"""The simulated team at a small size: nothing is computed twice at once, everybody gets all, and a seed repeats."""

from __future__ import annotations

import math
from unittest.mock import patch

from flows.team.pools import away, lease, leases
from tests.campaigns.fleet.__main__ import row
from tests.campaigns.fleet.model import Plan, Team

SMALL = Plan(stages=8, workers=4, people=3, width=2, minutes=4.0, worker_h=0.4, run_h=0.4, outages=3, seed=2)


def test_every_stage_is_computed_and_none_twice_at_once() -> None:
    first, again = Team(SMALL).night(), Team(SMALL).night()
    assert first.counts["worker killed"] > 0
    assert first.counts["person killed"] > 0
    assert {len(has) for has in first.has.values()} == {SMALL.stages}
    assert (first.counts["twice"], first.twice_s) == (0, 0.0)
    assert (row(first), first.store.counts, first.prefect) == (row(again), again.store.counts, again.prefect)


def test_waiting_for_others_takes_no_workers() -> None:
    """A worker gives its place back while another computes the stage, and the run that asked waits without one."""
    plan = Plan(stages=4, workers=4, people=4, width=4, shared=1.0, minutes=5.0, outages=0)
    busy_s = {}
    for patience_s in (lease.GONE_S, math.inf):
        with patch.object(leases, "GONE_S", patience_s):
            busy_s[patience_s] = Team(plan).night().busy_s
    assert busy_s[lease.GONE_S] < busy_s[math.inf] / 2


def test_a_look_at_a_run_is_rare_while_it_waits() -> None:
    assert [away.pause_s(waited_s, True) for waited_s in (0.0, 100.0, 6000.0)] == [1.0, 5.0, 30.0]
    assert [away.pause_s(waited_s, False) for waited_s in (0.0, 60.0, 6000.0)] == [1.0, 3.0, leases.LOOK_S]
