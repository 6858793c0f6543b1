from __future__ import annotations

import asyncio
import random
import time

from hypothesis import given
from hypothesis import strategies as st

from pathfinder.engines.replicas import Replica, Replicas


def test_the_limit_doubles_with_each_round_until_the_first_failure() -> None:
    replica = Replica("u", 256)
    for expected in (16, 32, 64, 128, 256, 256):
        for _ in range(replica.free):
            replica.succeeded()
        assert replica.free == expected


def test_one_congestion_halves_the_limit_once_and_growth_is_slow() -> None:
    replica = Replica("u", 256)
    replica.limit = 64.0
    for _ in range(2):
        replica.failed(began=1.0, now=5.0)
    assert replica.limit == 32.0
    for _ in range(20):  # the other calls that were in flight
        replica.failed(began=2.0, now=5.0)
    assert (replica.limit, replica.failures) == (32.0, 1)
    replica.succeeded()
    replica.failed(began=5.0, now=6.0)
    assert replica.limit == (32 + 1 / 32) / 2
    before = replica.limit
    for _ in range(int(before)):
        replica.succeeded()
    assert before < replica.limit <= before + 1


def test_a_replica_that_keeps_failing_rests_and_is_then_tried_with_one_call() -> None:
    replicas = Replicas(["a", "b"], 8)
    dead, alive = replicas.all
    now = time.monotonic()
    for _ in range(3):
        dead.failed(now, now)

    async def take(count: int) -> list[Replica]:
        return [await replicas.acquire() for _ in range(count)]

    assert asyncio.run(take(8)) == [alive] * 8
    dead.rests_until = float("-inf")
    assert asyncio.run(take(1)) == [dead]
    assert dead.free == 0
    rests = []
    for _ in range(9):
        dead.failed(now, now)
        rests.append(dead.rests_until)
    assert rests == sorted(rests)
    assert rests[-1] == now + 60.0


def test_if_all_replicas_rest_all_are_tried() -> None:
    replicas = Replicas(["a"], 8)
    for _ in range(5):
        replicas.all[0].failed(time.monotonic(), time.monotonic())
    assert asyncio.run(replicas.acquire()) is replicas.all[0]


@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 120), st.randoms(use_true_random=False))
def test_every_call_is_served_and_no_replica_exceeds_its_maximum(
    most: int, servers: int, calls: int, rng: random.Random
) -> None:
    replicas = Replicas([f"u{n}" for n in range(servers)], most)
    seen = 0

    async def call() -> None:
        nonlocal seen
        replica = await replicas.acquire()
        assert replica.in_flight <= most
        await asyncio.sleep(0)
        seen += 1
        replicas.release(replica, time.monotonic(), rng.choice((True, True, False, None)))

    async def all_calls() -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for _ in range(calls):
                group.create_task(call())

    asyncio.run(all_calls())
    assert seen == calls
    assert all(replica.in_flight == 0 and 1 <= replica.limit <= most for replica in replicas.all)
