"""docs/paper.md has the commands of every GPU profile, and its figures are the plan's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pathfinder.core.runs import parse_runs
from pathfinder.models.needs import LONGEST_RECORD
from pathfinder.planning import estimates, gpu_plan, plan_text, profiles
from tests.planning.test_profiles import GPU_PROFILES

_BLOCK = re.compile(r"^```console (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs/paper.md").read_text(encoding="utf-8")


def test_every_gpu_profile_has_its_commands(page: str) -> None:
    blocks = dict(_BLOCK.findall(page))
    assert set(blocks) - {"setup", "elsewhere", "paper-nodes-second-machine"} == set(GPU_PROFILES)
    for name in GPU_PROFILES:
        first, *_, last = blocks[name].splitlines()
        assert first == f"$ pathfinder profile {name}"
        assert re.search(r"make run|pathfinder run", last)
        assert f"## {name}\n" in page


def test_the_table_is_that_of_the_plan(root: Path, page: str) -> None:
    plans = {name: plan.as_json() for name, plan in gpu_plan.plans(root).items()}
    machines = {name: profiles.summary(root, name).machine for name in plans}
    for row in plan_text.overview(plans, machines)[1]:
        assert f"| {' | '.join(row)} |" in page


def test_the_second_machine_joins_every_run_in_the_order_of_the_first(root: Path, page: str) -> None:
    joined = [name for names in re.findall(r"for run in ([^;]+);", page) for name in names.split()]
    assert joined == sorted(run.name for run in parse_runs(profiles.load(root, "paper-nodes").runs))


def test_the_assumptions_are_those_of_the_estimates(root: Path, page: str) -> None:
    params = profiles.load(root, "paper")
    mixes = [estimates.trees_of(params, mix) for mix in ("prm800k", "400k", "550k")]
    figures = [
        f"| {estimates.LEARN_SHARE:.0%}, {estimates.READ_SHARE:.0%}, {estimates.WRITE_SHARE:.0%} |".replace("%", " %"),
        f"| {estimates.NEGATIVE_STEPS:,} |",
        f"| {estimates.ATTEMPTS} |",
        f"| {estimates.JUDGE_READS:,}, {estimates.JUDGE_WRITES:,} |",
        f"| {', '.join(f'{trees.tokens_per_record:.0f}' for trees in mixes)} |",
        f"| {', '.join(f'{tokens / 1e6} M' for tokens in estimates.BOTH_PASSES.values())} |",
        f"| {estimates.ROUNDS}, {estimates.STEP_TOKENS}, {estimates.SOLUTION_TOKENS} |",
        f"| {LONGEST_RECORD:,} tokens |",
    ]
    assert [figure for figure in figures if figure not in page] == []
