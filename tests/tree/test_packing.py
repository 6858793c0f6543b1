"""Packs keep the token budget, and processes share the trees of a step in few passes of similar size."""

from __future__ import annotations

import random

import pytest

from pathfinder.tree.packing import balance, pack, passes_of, used_share


def test_packs_keep_the_budget_and_contain_everything_once() -> None:
    sizes = [5, 300, 7, 8, 100, 3, 3]
    groups = pack(sizes, 200)
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    assert all(len(g) == 1 or sum(sizes[i] for i in g) <= 200 for g in groups)
    assert groups == [[1], [4, 3, 2, 0, 5, 6]], "a row has no padding, so items of different sizes share it"
    assert pack([], 10) == []


def test_packs_at_their_limits() -> None:
    assert pack([10] * 5, 40) == [[0, 1, 2, 3], [4]]
    assert pack([10] * 5, 39) == [[0, 1, 2], [3, 4]]
    assert pack([30, 9, 1], 40) == [[0, 1, 2]]
    assert pack([30, 9, 2], 40) == [[0, 1], [2]]


def test_trees_are_balanced_over_processes() -> None:
    sizes = [900, 20, 30, 400, 410, 90, 5]
    for processes in (1, 2, 3, 9):
        shares = balance(sizes, processes)
        assert sorted(item for share in shares for item in share) == list(range(len(sizes)))
        loads = [sum(sizes[item] for item in share) for share in shares]
        assert max(loads) <= max(max(sizes), sum(sizes) / processes * 4 / 3)
    assert balance(sizes, 1) == [list(range(len(sizes)))]


@pytest.mark.parametrize("processes", [2, 3, 8, 16])
@pytest.mark.parametrize("budget", [100, 1_000, 20_000])
def test_processes_share_every_tree_once_and_keep_the_budget(processes: int, budget: int) -> None:
    rng = random.Random(processes * budget)
    for count in (1, processes - 1, processes, 50):
        sizes = [rng.choice([30, 90, 400, 900, 2500]) for _ in range(count)]
        shares = passes_of(sizes, processes, budget)
        assert len(shares) == processes
        groups = [items for share in shares for items in share]
        assert sorted(item for items in groups for item in items) == list(range(count))
        assert all(items for items in groups), "no pass without a tree"
        assert all(sum(sizes[i] for i in items) <= budget or len(items) == 1 for items in groups)


def test_one_process_packs_trees_within_the_budget() -> None:
    sizes = [900, 20, 30, 1400, 410, 90, 5]
    assert passes_of(sizes, 1, 2048) == [pack(sizes, 2048)]


def test_several_processes_take_one_turn_if_the_budget_allows() -> None:
    """Passes of one process that differ in size would be turns in which the other processes wait."""
    sizes = [2000, 1900, 1200, 1100, 700, 600, 300, 200]
    assert [len(share) for share in passes_of(sizes, 2, 16384)] == [1, 1]
    assert [len(share) for share in passes_of(sizes, 2, 2100)] == [2, 2]
    assert used_share(sizes, 2, 16384) == 1.0
    assert used_share(sizes, 1, 16384) == 1.0
    assert used_share([900, 100], 4, 1000) == pytest.approx(1000 / 3600)
