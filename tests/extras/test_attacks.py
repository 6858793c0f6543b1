"""Attacks on a PRM: with the oracle in its place, reward and truth must agree, and a naive PRM must be gamed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from extras.experiment import attacks
from extras.experiment.attacks import (
    DRESSED,
    DRESSINGS,
    HEADS,
    best_of_n,
    dressed,
    dressed_faults,
    dressed_rows,
    of_best,
    places,
    pleased,
    rows_of,
    truth_of,
)
from extras.experiment.material import KINDS
from ground.io import write_json
from pathfinder.core.steps import PRM, RoundScorer, Solution, StepScore
from pathfinder.engines.generate import Generator
from pathfinder.pages.page import markdown_table
from world import tiny
from world.oracle import assess_all, begin
from world.steps import Habits, write_solution
from world.story import WORLDS, read_story

WIDE = WORLDS["wide"]


class Oracle(PRM):
    """A PRM that knows the truth; quality is low for steps that do not help."""

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        out = []
        for solution in solutions:
            verdicts = assess_all(read_story(solution.problem), solution.steps)
            labels = [v.labels if v else (0, 0, 0) for v in verdicts]
            out.append([StepScore({"math": m, "consistency": c}, float(m and c and o)) for m, c, o in labels])
        return out

    def rounds(self) -> RoundScorer:
        raise NotImplementedError


class Naive(Oracle):
    """A PRM that likes short steps, whatever they say."""

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        values = [[1 / (1 + len(step)) for step in solution.steps] for solution in solutions]
        return [[StepScore({"math": v, "consistency": 1.0}, v) for v in row] for row in values]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "model"
    tokenizer = tiny.build_tokenizer(next(iter(WIDE.values())).language)
    tiny.save(tiny.build_model(tokenizer, hidden=36, layers=1, heads=2, feed=32, seed=1), tokenizer, folder)
    return folder


def test_every_dressing_keeps_the_fault_and_adds_no_error() -> None:
    problems = attacks.drawn_problems(WIDE, 40, "held_out", "test")
    seen = set()
    for problem, prefix, state in places(problems, random.Random(0)):
        for kind, dressing in itertools.product(KINDS, DRESSINGS):
            if found := dressed(problem, state, kind, dressing, "seed"):
                steps, at = found
                verdicts = assess_all(problem, [*prefix, *steps])
                assert all(verdicts)
                errors = [place for place, v in enumerate(verdicts) if v and not v.is_correct]
                assert errors[0] == len(prefix) + at, (dressing, kind, steps)
                seen.add((dressing, kind))
    assert {dressing for dressing, _ in seen} == set(DRESSINGS)
    assert {kind for _, kind in seen} == set(KINDS)


def test_the_oracle_accepts_no_dressed_fault_and_pays_for_padding_only_by_the_mean() -> None:
    problems = attacks.drawn_problems(WIDE, 40, "held_out", "test")
    rows = dressed_faults(Oracle(), problems, {"soundness": 0.5, "quality": 0.5})
    plain, padded = (rows[name]["arithmetic"] for name in ("plain", "padded"))
    for row in (*rows["plain"].values(), *rows["padded"].values()):
        assert row["soundness"]["accepted"] == 0 == row["soundness"]["min"]
    assert padded["soundness"]["mean"] > plain["soundness"]["mean"]
    assert padded["quality"]["mean"] <= plain["quality"]["mean"]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_best_of_n_is_the_mean_over_all_choices(n: int) -> None:
    rng = np.random.default_rng(1)
    reward, value = rng.integers(0, 4, (2, 5)).astype(float), rng.random((2, 5))
    expected = []
    for row, values in zip(reward, value, strict=True):
        for chosen in itertools.combinations(range(5), n):
            best = max(row[list(chosen)])
            ties = [values[i] for i in range(5) if row[i] == best]
            expected.append(float(np.mean(ties)))
    assert of_best(reward, value, n) == pytest.approx(np.mean(expected))


def test_more_samples_help_under_the_oracle_and_not_under_a_naive_prm(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def solve(_: Generator, problems: Sequence[object], keys: Sequence[str], *__: float) -> list[list[str]]:
        habits = Habits(misread=0.6, slip=0.2)
        return [
            [v.text for v in write_solution(p, random.Random(k), habits)]  # type: ignore[arg-type]
            for p, k in zip(problems, keys, strict=True)
        ]

    monkeypatch.setattr(attacks, "sample_solutions", solve)
    problems, generator = attacks.drawn_problems(WIDE, 20, "search", "test"), Generator(policy)
    rows = best_of_n(Oracle(), generator, problems, 16, 1.0, ["soundness"])
    sound = [row["sound"] for row in rows if row["reduction"] == "min"]
    assert [row["n"] for row in rows if row["reduction"] == "min"] == [1, 2, 4, 8, 16]
    assert sound == sorted(sound)
    assert sound[-1] > sound[0] + 20
    naive = best_of_n(Naive(), generator, problems, 16, 1.0, ["soundness"])
    rewards = [row["reward"] for row in naive if row["reduction"] == "mean"]
    assert rewards == sorted(rewards)


def test_truth_asks_for_every_step_and_the_answer() -> None:
    problem = attacks.drawn_problems(WIDE, 1, "held_out", "test")[0]
    steps = [v.text for v in write_solution(problem, random.Random(0), Habits())]
    assert truth_of(problem, steps) == (True, True)
    assert truth_of(problem, steps[:-1]) == (False, False)
    assert truth_of(problem, [steps[-1]]) == (False, True)
    assert truth_of(problem, ["no step", steps[-1]]) == (False, True)


def test_a_policy_learns_what_its_prm_rewards(policy: Path, tmp_path: Path) -> None:
    rows = pleased(Naive(), policy, WIDE, "soundness", "mean", 2, tmp_path / "model", rate=1e-2, problems=1)
    assert [row["step"] for row in rows] == [0, 1]
    assert rows[-1]["reward"] != rows[0]["reward"]
    assert all(row["sound"] == 0 for row in rows)
    again = pleased(Naive(), policy, WIDE, "soundness", "mean", 2, tmp_path / "model", rate=1e-2, problems=1)
    assert again == rows


def test_the_state_of_a_place_follows_its_prefix() -> None:
    for problem, prefix, state in places(attacks.drawn_problems(WIDE, 20, "held_out", "test"), random.Random(1)):
        last = assess_all(problem, prefix)[-1] if prefix else None
        assert state == (last.after if last else begin(problem))


def test_a_table_has_the_dressings_in_order_and_only_the_kinds_that_all_have(tmp_path: Path) -> None:
    found = {d: {"amount": {"n": 1, "quality": {"accepted": i}}} for i, d in enumerate(DRESSINGS)}
    found["plain"]["early"] = {"n": 9, "quality": {"accepted": 100}}
    write_json(tmp_path / "a2-no_subtasks-500-s1/dressed.json", found)
    assert dressed_rows(tmp_path) == [("a2-no_subtasks-500-s1", "quality", *(f"{i}.0" for i in range(len(DRESSINGS))))]


def test_a_table_has_the_ends_of_a_policy_and_the_sizes_of_best_of_n(tmp_path: Path) -> None:
    steps = [{"step": i, "reward": i / 100, "sound": i, "right": 2 * i} for i in range(30)]
    write_json(tmp_path / "a2-full-500-s1/soundness-min.json", steps)
    best = [
        {"n": n, "reading": "quality", "reduction": r, "reward": 0.5, "sound": n, "right": n}
        for r in ("min", "mean")
        for n in (1, 2, 4, 8, 16)
    ]
    write_json(tmp_path / "a2-full-500-s1/best_of_n.json", best)
    rows = rows_of(tmp_path)
    assert [row[1:3] for row in rows[:5]] == [("quality-min", f"best of {n}") for n in (1, 2, 4, 8, 16)]
    assert rows[5][1:] == ("soundness-min", "first 10 of 30 steps", "0.045", "4.5", "9.0")
    assert rows[6][1:] == ("soundness-min", "last 10 of 30 steps", "0.245", "24.5", "49.0")


def test_the_published_tables_and_picture_show_the_stored_attacks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from docs.tools import experiment

    monkeypatch.chdir(root)
    stored = root / "infra/experiment/attacks"
    page = experiment.PAGE.read_text(encoding="utf-8")
    assert markdown_table(HEADS, rows_of(stored)) in page
    assert markdown_table(DRESSED, dressed_rows(stored)) in page
    assert experiment.draw() == experiment.PICTURE.read_text(encoding="utf-8")
