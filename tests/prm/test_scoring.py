"""The scorer in process: trees, passes, modes and rounds against separate prompts of the same model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ground.io import DataError, write_json
from pathfinder.core import prompts
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Candidates, Solution, StepScore
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.models.tokens import add_label_tokens
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.steps import Stop, refuse_other_tokens
from pathfinder.tree.attention import read_logits
from pathfinder.tree.layout import TreeBatch
from pathfinder.tree.packing import split
from pathfinder.tree.passes import PRESETS, Mode, Prompter, Query
from tests.support.models import (
    plain_tokenizer,
    separate_logits,
    small_model,
)
from tests.tree.test_logits import PROBLEMS, queries_of


def save_prm(folder: Path, variant: str = "full", make: Any = plain_tokenizer) -> tuple[Any, Any]:
    tokenizer = make()
    add_label_tokens(tokenizer)
    model = small_model(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / MODEL_FILE, {"variant": variant})
    return model, tokenizer


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize(
    ("preset", "backend"),
    [("default", "cascade"), ("official-prmbench", "cascade"), ("official-search", "cascade"), ("default", "flex")],
)
@torch.no_grad()
def test_scores_follow_the_two_passes(variant: str, preset: str, backend: Any, tmp_path: Path) -> None:
    model, tokenizer = save_prm(tmp_path, variant)
    scorer = Scorer(open_model(tmp_path), preset, backend=backend)
    solutions = [Solution(str(i), problem, tuple(steps)) for i, (problem, steps) in enumerate(PROBLEMS)]
    heard: list[int] = []
    scores = scorer.score(solutions, heard.append)
    assert sum(heard) == len(solutions)
    prompter = Prompter(tokenizer, VARIANTS[variant], PRESETS[preset])
    for (problem, steps), scored in zip(PROBLEMS, scores, strict=True):
        for query, score in zip(queries_of(problem, steps), scored, strict=True):
            predicted: list[bool] = []
            for one in prompter.passes:
                logits = separate_logits(model, tokenizer, prompter, query, predicted[: len(one.given)], one.asked)
                for mark, row in zip(one.asked, logits, strict=True):
                    two = row[[prompter.ids.good, prompter.ids.bad]]
                    full = preset == "official-prmbench"
                    p = (row.softmax(-1)[prompter.ids.good] if full else two.softmax(-1)[0]).item()
                    label = prompter.labels[mark]
                    got = score.reward if label == "correctness" else score.first[label]
                    assert got == pytest.approx(p, abs=1e-5)
                    predicted.append(bool(two[0] >= two[1]))


@pytest.mark.parametrize("variant", ["full", "autoregressive"])
@torch.no_grad()
def test_other_modes_ask_less_or_more(variant: str, tmp_path: Path) -> None:
    model, tokenizer = save_prm(tmp_path, variant)
    prompter = Prompter(tokenizer, VARIANTS[variant])
    solutions = [Solution(str(i), problem, tuple(steps)) for i, (problem, steps) in enumerate(PROBLEMS[1:2])]
    by_mode = {mode: Scorer(open_model(tmp_path), mode=mode).score(solutions) for mode in Mode}
    marks = range(len(prompter.labels))

    def positive(query: Query, given: tuple[bool, ...], mark: int) -> float:
        asked = next(one.asked for one in prompter.passes if mark in one.asked)
        row = separate_logits(model, tokenizer, prompter, query, given, asked)[asked.index(mark)]
        return float(row[[prompter.ids.good, prompter.ids.bad]].softmax(-1)[0])

    for number, (problem, steps) in enumerate(PROBLEMS[1:2]):
        for place, query in enumerate(queries_of(problem, steps)):
            both, first, sure, every = (by_mode[mode][number][place] for mode in Mode)
            assert first.first == pytest.approx(both.first, abs=1e-6)
            assert math.isnan(first.reward) == bool(both.labels)
            given = {mark: len(one.given) for one in prompter.passes for mark in one.asked}
            yes = (True,) * given[marks[-1]]
            assert sure.reward == pytest.approx(positive(query, yes, marks[-1]), abs=1e-5)
            total = 0.0
            for labels in itertools.product((True, False), repeat=given[marks[-1]]):
                weight = 1.0
                for mark, label in enumerate(labels):
                    p = positive(query, labels[: given[mark]], mark)
                    weight *= p if label else 1 - p
                total += weight * positive(query, labels, marks[-1])
            assert every.reward == pytest.approx(total, abs=1e-5)


def stop_at(places: Sequence[int]) -> Stop:
    """End each solution after the step at its place; -1 scores all steps."""
    left = [place + 1 for place in places]

    def stop(number: int, _: StepScore) -> bool:
        left[number] -= 1
        return left[number] == 0

    return stop


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_waves_stop_where_all_steps_would(variant: str, tmp_path: Path) -> None:
    save_prm(tmp_path, variant)
    scorer = Scorer(open_model(tmp_path))
    solutions = [Solution(str(i), problem, tuple(steps * (i + 1))) for i, (problem, steps) in enumerate(PROBLEMS)]
    solutions.append(Solution("none", "P", ()))
    whole = scorer.score(solutions)
    middle = sorted(score.reward for scores in whole for score in scores)[6]
    heard: list[int] = []
    found = scorer.score(solutions, heard.append, lambda _, score: score.reward <= middle + 1e-6)
    assert sum(heard) == len(solutions)
    cut = 0
    for mine, scores in zip(found, whole, strict=True):
        low = [place for place, score in enumerate(scores) if score.reward <= middle + 1e-6]
        assert len(mine) == (low[0] + 1 if low else len(scores))
        assert [s.reward for s in mine] == pytest.approx([s.reward for s in scores[: len(mine)]], abs=1e-5)
        cut += len(scores) - len(mine)
    assert cut


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens in each forward pass."""
    counts: list[int] = []

    def counted(model: Any, batch: TreeBatch, kept: Any = None) -> torch.Tensor:
        counts.append(batch.input_ids.shape[1])
        return read_logits(model, batch, kept)

    monkeypatch.setattr("pathfinder.prm.scoring.read_logits", counted)
    return counts


def test_solutions_of_one_problem_share_a_tree(tmp_path: Path, slots: list[int]) -> None:
    save_prm(tmp_path)
    steps = tuple(f"step {i} says something long enough to count" * 3 for i in range(5))
    solutions = [Solution("a", "P", steps), Solution("b", "Q", ("x",)), Solution("c", "P", (*steps[:3], "an end", "y"))]
    scorer = Scorer(open_model(tmp_path))
    apart = [scorer.score([one])[0] for one in solutions]
    alone = sum(slots)
    slots.clear()
    together = scorer.score(solutions)
    assert sum(slots) < 0.8 * alone
    for mine, other in zip(together, apart, strict=True):
        assert [s.reward for s in mine] == pytest.approx([s.reward for s in other], abs=1e-5)


WAYS = ("one way", "another way", "one way or none")


@pytest.mark.parametrize("backend", ["cascade", "flex"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_candidates_over_kept_trunks_score_as_solutions_do(variant: str, backend: Any, tmp_path: Path) -> None:
    save_prm(tmp_path, variant)
    scorer = Scorer(open_model(tmp_path))
    rounds = Scorer(open_model(tmp_path), token_budget=400, backend=backend).rounds()
    prefixes: dict[str, list[str]] = {str(number): [] for number in range(len(PROBLEMS))}
    for turn in range(4):
        asked = {
            key: Candidates(PROBLEMS[int(key)][0], tuple(steps), WAYS[: 1 + (turn + int(key)) % 3])
            for key, steps in prefixes.items()
        }
        scored = rounds(asked)
        assert scored.keys() == asked.keys()
        for key, one in asked.items():
            for step, score in zip(one.steps, scored[key], strict=True):
                alone = scorer.score([Solution("x", one.problem, (*one.prefix, step))])[0][-1]
                assert score is not None
                assert score.reward == pytest.approx(alone.reward, abs=1e-5)
                assert score.first == pytest.approx(alone.first, abs=1e-5)
        for key, steps in prefixes.items():
            if (turn, key) != (1, "0"):  # a round without a choice repeats the prefix
                steps.append(PROBLEMS[int(key)][1][turn] if turn < len(PROBLEMS[int(key)][1]) else asked[key].steps[-1])
        if turn == 2:
            del prefixes["1"]


def test_a_round_costs_its_own_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_prm(tmp_path)
    rounds = Scorer(open_model(tmp_path)).rounds()
    slots: list[int] = []

    def counted(model: Any, batch: TreeBatch, kept: Any = None) -> torch.Tensor:
        slots.append(batch.input_ids.shape[1])
        return read_logits(model, batch, kept)

    def cost(asked: dict[str, Candidates]) -> int:
        slots.clear()
        rounds(asked)
        return sum(slots)

    monkeypatch.setattr("pathfinder.prm.scoring.read_logits", counted)
    problem = "a long story " * 100
    first, second, third = (cost({"p": Candidates(problem, ("one step",) * turn, WAYS)}) for turn in range(3))
    assert first > 3 * second
    assert third < 1.2 * second
    other = cost({"p": Candidates("another story", (), WAYS), "none": Candidates("x", (), ())})
    assert other < first
    assert cost({"p": Candidates(problem, (), WAYS)}) > 3 * second  # only the opening of the other story is known


def test_the_system_text_is_computed_once(tmp_path: Path, slots: list[int]) -> None:
    save_prm(tmp_path)
    scorer = Scorer(open_model(tmp_path))
    costs, found = [], []
    for _ in range(2):
        slots.clear()
        found.append(scorer.rounds()({key: Candidates(key, (), WAYS) for key in ("P", "Q")}))
        costs.append(sum(slots))
    opening = scorer._reader.opening.ids
    assert costs[0] - costs[1] == len(opening) > 50
    assert np.array_equal(opening, scorer._reader.prompter.encode([Query("", "Z", (), "Z")])[0][0][: len(opening)])
    assert found[0] == found[1]


def test_published_prompts_to_the_letter() -> None:
    tokenizer = plain_tokenizer()
    query = Query("q", "Q?", ("Step 1. one", "step 2. two"), "3. three")
    marks = ["<extra>", "<extra>"]
    prmbench = Prompter(tokenizer, VARIANTS["full"], PRESETS["official-prmbench"]).turns(query, marks)
    assert prmbench == (
        f"{prompts.SYSTEM_PRMBENCH}\n\n Question: Q?",
        "one\n\ntwo\n\nCurrent step: three Math reasoning: <extra>, Consistency: <extra>",
    )
    search = Prompter(tokenizer, VARIANTS["full"], PRESETS["official-search"])
    assert search.turns(query, marks) == (
        f"{prompts.SYSTEM_SEARCH}\n\n Question: Q?",
        "Step 1. one\n\nstep 2. two\n\nCurrent Step: 3. three Math reasoning: <extra>, Consistency: <extra>",
    )
    assert search.preset.answer_role == "user"


def test_literal_label_tokens_never_move_a_label() -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    problem, steps = PROBLEMS[2]
    for ids, slots in prompter.encode(queries_of(problem, steps)):
        assert len(slots) == 3
        tail = str(tokenizer.decode(ids[slots[0] - 12 :]))
        assert tail.endswith("Math reasoning: <extra>, Consistency: <extra>, Correctness: <extra><|im_end|>\n")


def test_an_unknown_preset_is_named(tmp_path: Path) -> None:
    save_prm(tmp_path)
    with pytest.raises(DataError, match="unknown preset 'best'; expected one of default"):
        Scorer(open_model(tmp_path), "best")


@pytest.mark.parametrize("stop", [None, lambda _, score: False])
def test_a_solution_longer_than_the_context_has_no_scores(tmp_path: Path, stop: Stop | None) -> None:
    """Fails if one long solution ends the evaluation of thousands."""
    save_prm(tmp_path)
    scorer, done = Scorer(open_model(tmp_path)), list[int]()
    short, long = Solution("short", "P", ("a", "b")), Solution("long", "P", ("a", "b " * 5000, "c"))
    found = scorer.score([short, long, short], done.append, stop)
    assert (len(found[0]), found[1], len(found[2])) == (2, [], 2)
    assert sum(done) == 3
    scored = scorer.rounds()(
        {"1": Candidates("P", ("a",), ("b", "b " * 5000)), "2": Candidates("P", long.steps, ("d",))}
    )
    assert [score is None for score in scored["1"]] == [False, True]
    assert scored["2"] == [None]
    assert scored["1"][0] is not None
    assert scored["1"][0].reward == pytest.approx(found[0][1].reward, abs=1e-6)


def test_a_strict_preset_refuses_other_tokens(tmp_path: Path) -> None:
    save_prm(tmp_path)  # a label token is hardly ever the likeliest of a random model
    with pytest.raises(DataError, match="neither"):
        Scorer(open_model(tmp_path), "official-processbench").score([Solution("s", "P", ("a", "b", "c"))])


def test_other_tokens_are_refused_up_to_the_first_error_as_published() -> None:
    tokenizer = plain_tokenizer()
    add_label_tokens(tokenizer)
    strict, default = (
        Prompter(tokenizer, VARIANTS["full"], PRESETS[name]) for name in ("official-processbench", "default")
    )
    sound, wrong = StepScore({"math": 0.9, "consistency": 0.9}, 0.9), StepScore({"math": 0.1, "consistency": 0.9}, 0.1)
    other = StepScore({"math": 0.1, "consistency": 0.9}, 0.1, other="math")
    solution = Solution("s", "P", ("a", "b", "c"))
    refuse_other_tokens(strict, [solution], [[sound, wrong, other]])
    refuse_other_tokens(default, [solution], [[other, wrong, other]])
    with pytest.raises(DataError, match="s, step 1: the most likely token at math is neither"):
        refuse_other_tokens(strict, [solution], [[sound, other, wrong]])


def test_parts_fit_into_the_budget_and_keep_the_order() -> None:
    assert split({3: 4, 1: 6, 7: 1, 2: 30, 5: 9}, 10) == [[3, 1], [7], [2], [5]]
    assert split({}, 10) == []


def test_scores_do_not_depend_on_budget_or_order(tmp_path: Path) -> None:
    save_prm(tmp_path)
    solutions = [Solution(str(i), problem, tuple(steps)) for i, (problem, steps) in enumerate(PROBLEMS)]
    one = Scorer(open_model(tmp_path), token_budget=64).score(solutions)
    other = Scorer(open_model(tmp_path), token_budget=8192).score(solutions[::-1])[::-1]
    assert np.allclose([s.reward for x in one for s in x], [s.reward for x in other for s in x], atol=1e-5)
