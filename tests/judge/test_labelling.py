from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from pathfinder.core.labels import OUTCOMES, Scores
from pathfinder.core.params import Label
from pathfinder.core.records import STEPS, TRAJECTORIES
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import BudgetSpentError, Meter
from pathfinder.engines.sampling import Failure, ServerSampling
from pathfinder.engines.sampling import Reply as Answer
from pathfinder.judge.judge import ServerJudge
from pathfinder.judge.labelling import Labelling, Prompts, Verdicts, choose
from tests.judge.test_judge import params

ONES = "Score A: 1 Score B: 1 Score C: 1"
MIXED = "Score A: 0 Score B: 1 Score C: 1"
Reply = Callable[[str, int], str | dict[str, Any] | None]


class Verdict(NamedTuple):
    outcome: str
    scores: Scores | None = None
    attempts: tuple[int, ...] = ()


class Scripted(ServerJudge):
    """A judge that answers by a rule and needs no server; it uses the journal like the others."""

    def __init__(self, reply: Reply) -> None:
        self.identity, self.specials = {"engine": "scripted"}, ("<|im_end|>", "<+>")
        self.reply = reply
        self.waves: list[list[str]] = []

    def ask(
        self, keys: Sequence[str], prompt_of: Callable[[str], str], journal: Journal, meter: Meter
    ) -> dict[str, str]:
        self.waves.append(list(keys))
        failed = {}
        for key in keys:
            answer = self.reply(prompt_of(key), int(key.partition(":")[2]))
            if answer is None:
                failed[key] = "server error"
            elif key not in journal:
                given = answer if isinstance(answer, dict) else {"text": answer, "tokens": 3, "finish": "stop"}
                journal.append({key: given})
        return failed


def table(*rows: tuple[str, int | None, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One trajectory with two trunk steps; each row is (source, rating, step) after the first trunk step."""
    steps = pl.DataFrame(
        [(f"r{n}", "t", source, 1, n, step, rating) for n, (source, rating, step) in enumerate(rows)],
        schema=STEPS,
        orient="row",
    )
    trajectory = ("t", "prm800k", "f", 1, "p", "What <|im_end|> now?", ["first", "second"])
    return steps, pl.DataFrame([trajectory], schema=TRAJECTORIES, orient="row")


def run(
    tmp_path: Path, reply: Reply, rows: list[tuple[str, int | None, str]], settings: Label
) -> tuple[Verdicts, Scripted, Labelling]:
    steps, trajectories = table(*rows)
    judge = Scripted(reply)
    chosen = choose(steps, settings)
    prompts = Prompts(steps, trajectories, chosen, judge, settings.preset)
    with Journal(tmp_path / "j") as journal:
        labelling = Labelling(steps, prompts, judge, journal, settings, chosen, Meter(settings))
        labelling.run()
    return chosen, judge, labelling


def decided(verdicts: Verdicts) -> dict[int, Verdict]:
    """The verdicts by row, without the open rows."""
    return {
        row: Verdict(
            OUTCOMES[outcome],
            Scores(*map(int, verdicts.scores[row])) if verdicts.scores[row, 0] >= 0 else None,
            verdicts.attempts(row),
        )
        for row, outcome in enumerate(verdicts.outcomes.tolist())
        if outcome >= 0
    }


def test_ratings_decide_and_the_judge_is_asked_only_about_the_others(tmp_path: Path) -> None:
    rows = [("prm800k", 1, "a"), ("prm800k", 0, "b"), ("prm800k", None, "c"), ("prm800k", -1, "d")]
    verdicts, judge, _ = run(tmp_path, lambda *_: MIXED, rows, params())
    assert [(v.outcome, v.scores) for v in decided(verdicts).values()] == [
        ("given", Scores(1, 1, 1)),
        ("given", Scores(1, 1, 0)),
        ("unrated", None),
        ("parsed", Scores(0, 1, 1)),
    ]
    assert [len(wave) for wave in judge.waves] == [1]


def test_unparsed_answers_are_asked_again_up_to_the_limit(tmp_path: Path) -> None:
    verdicts, judge, _ = run(tmp_path, lambda *_: "no idea", [("rlhflow_mistral", 1, "a")], params(parse_attempts=3))
    assert decided(verdicts)[0] == Verdict("unparsed", None, (0, 1, 2))
    assert len(judge.waves) == 3


@pytest.mark.parametrize(("preset", "expected"), [("repaired", "unparsed"), ("official", "parsed")])
def test_an_answer_that_reached_the_token_limit_gives_no_scores(tmp_path: Path, preset: str, expected: str) -> None:
    cut = {"text": MIXED, "tokens": 3, "finish": "length"}
    settings = params(parse_attempts=2, disagreement_rounds=0, preset=preset)
    verdicts, _, labelling = run(tmp_path, lambda *_: cut, [("prm800k", -1, "a")], settings)
    assert decided(verdicts)[0].outcome == expected
    with Journal(tmp_path / "j") as journal:
        labelling.journal = journal
        assert labelling.answer(0, 0).detail == ("cut" if preset == "repaired" else "")


def test_all_ones_against_minus_one_is_asked_again_in_rounds_of_attempts(tmp_path: Path) -> None:
    answers = {0: ONES, 3: "?", 4: ONES, 6: MIXED}
    settings = params(parse_attempts=3, disagreement_rounds=2)
    verdicts, _, _ = run(tmp_path, lambda _, attempt: answers[attempt], [("prm800k", -1, "a")], settings)
    assert decided(verdicts) == {0: Verdict("parsed", Scores(0, 1, 1), (0, 3, 4, 6))}


def test_a_lasting_disagreement_keeps_its_scores_for_the_filter_to_drop(tmp_path: Path) -> None:
    settings = params(parse_attempts=2, disagreement_rounds=2)
    verdicts, _, _ = run(tmp_path, lambda *_: ONES, [("prm800k", -1, "a"), ("rlhflow_mistral", -1, "b")], settings)
    ones = Scores(1, 1, 1)
    assert decided(verdicts) == {0: Verdict("parsed", ones, (0, 2, 4)), 1: Verdict("parsed", ones, (0,))}


@pytest.mark.parametrize("outcome", ["too_long", "refused"])
def test_outcomes_never_become_scores(tmp_path: Path, outcome: str) -> None:
    rows: list[tuple[str, int | None, str]] = [("prm800k", -1, "a"), ("prm800k", -1, "b")]
    verdicts, _, labelling = run(
        tmp_path,
        lambda prompt, _: {"outcome": outcome, "message": "m"} if "<current_step>\na\n" in prompt else MIXED,
        rows,
        params(),
    )
    assert [(v.outcome, v.scores) for v in decided(verdicts).values()] == [(outcome, None), ("parsed", Scores(0, 1, 1))]
    with Journal(tmp_path / "j") as journal:
        labelling.journal = journal
        assert labelling.answer(0, 0).detail == "m"


def test_engine_errors_are_outcomes_too(tmp_path: Path) -> None:
    verdicts, _, _ = run(tmp_path, lambda *_: None, [("prm800k", -1, "a")], params())
    assert decided(verdicts) == {0: Verdict("engine_error", None, (0,))}


class Failing:
    """A client whose first call fails; every other answer cannot be parsed."""

    def __init__(self) -> None:
        self.calls, self.failed = 0, False

    def chat(self, requests: Any, _sampling: Any, sink: Any, _before: Any) -> None:
        for key, _ in requests:
            if not self.failed:
                self.failed = True
                sink(key, Failure("engine_error", "down"))
            else:
                self.calls += 1
                sink(key, Answer("no idea", 1, "stop", 1))


def test_answers_of_later_waves_count_before_a_failed_call_is_repeated(tmp_path: Path) -> None:
    steps, trajectories = table(*[("prm800k", -1, str(n)) for n in range(10)])
    settings, client = params(max_calls=14, parse_attempts=2), Failing()
    for _ in range(2):
        judge, chosen = ServerJudge(lambda: client, {}, ServerSampling(1.0, 1.0, 5)), choose(steps, settings)  # type: ignore[arg-type,return-value]
        prompts = Prompts(steps, trajectories, chosen, judge, settings.preset)
        with Journal(tmp_path / "j") as journal:
            meter = Meter(settings)
            with pytest.raises(BudgetSpentError, match="Paid so far: 14 calls"):
                Labelling(steps, prompts, judge, journal, settings, chosen, meter).run()
        assert (client.calls, meter.calls, meter.tokens) == (14, 14, 28)


def test_equal_prompts_are_paid_for_once(tmp_path: Path) -> None:
    rows: list[tuple[str, int | None, str]] = [
        ("prm800k", -1, "same"),
        ("prm800k", -1, "same"),
        ("prm800k", -1, "other"),
    ]
    _, judge, _ = run(tmp_path, lambda *_: MIXED, rows, params())
    assert [len(wave) for wave in judge.waves] == [2]


def test_prompts_contain_the_prefix_and_no_active_special_token(tmp_path: Path) -> None:
    prompts: list[str] = []

    def reply(prompt: str, _: int) -> str:
        prompts.append(prompt)
        return MIXED

    run(tmp_path, reply, [("prm800k", -1, "then <+> <|im_end|> Score A: 1")], params())
    (prompt,) = prompts
    assert "<previous_steps>\nfirst\n</previous_steps>" in prompt
    assert "<|im_end|>" not in prompt
    assert "<+>" not in prompt
    assert "then <\u2060+>" in prompt


def test_the_choice_among_monte_carlo_steps_is_the_published_one() -> None:
    rng = random.Random(5)
    rows: list[tuple[str, int | None, str]] = [("rlhflow_mistral", rng.choice((1, -1)), str(n)) for n in range(100)]
    steps, _ = table(*rows)
    chosen = choose(steps, params(mistral_per_rating=20, seed=42))
    published = random.Random(42)
    picked = []
    for rating in (1, -1):
        picked += published.sample([n for n, row in enumerate(rows) if row[1] == rating], 20)
    assert np.flatnonzero(chosen.outcomes == -1).tolist() == sorted(picked)
    assert {v.outcome for v in decided(chosen).values()} == {"not_sampled"}


def test_a_limit_on_human_steps_is_a_seeded_choice() -> None:
    steps, _ = table(*[("prm800k", -1, str(n)) for n in range(50)], ("prm800k", 1, "x"))
    chosen = [choose(steps, params(prm800k_limit=10, seed=seed)) for seed in (1, 1, 2)]
    asked = [np.flatnonzero(verdicts.outcomes == -1).tolist() for verdicts in chosen]
    assert asked[0] == asked[1] != asked[2]
    assert len(asked[0]) == 10


def test_the_official_preset_reads_and_asks_as_the_published_scripts_do(tmp_path: Path) -> None:
    prompts: list[str] = []

    def reply(prompt: str, attempt: int) -> str:
        prompts.append(prompt)
        if "<current_step>\n                    lost\n" in prompt:
            return "no idea"  # a Mistral step: three rounds of three
        if "thought" in prompt:
            return "<think>Score A: 0 Score B: 1 Score C: 1</think> **Score A:** 1 **Score B:** 1 **Score C:** 1"
        return "Score A: 7 Score B: 1 Score C: 0.5" if "digits" in prompt else ONES

    rows: list[tuple[str, int | None, str]] = [
        ("prm800k", -1, "thought"),
        ("prm800k", -1, "digits"),
        ("prm800k", -1, "ones"),
        ("rlhflow_mistral", 1, "lost"),
    ]
    settings = params(preset="official", parse_attempts=3, disagreement_rounds=2)
    verdicts, _, labelling = run(tmp_path, reply, rows, settings)
    assert list(decided(verdicts).values()) == [
        Verdict("parsed", Scores(0, 1, 1), (0,)),
        Verdict("parsed", Scores(0, 1, 0), (0,)),
        Verdict("parsed", Scores(1, 1, 1), (0, 3, 6)),
        Verdict("unparsed", None, tuple(range(9))),
    ]
    assert any("\n                [Math Problem]\n" in prompt for prompt in prompts)  # 16 spaces, 20 for Mistral
    with Journal(tmp_path / "j") as journal:
        labelling.journal = journal
        assert [labelling.answer(place, 0).detail for place in range(4)] == ["", "not_binary", "", "no_scores"]


def test_a_place_is_found_by_its_prompt_and_equal_prompts_by_their_first_place(tmp_path: Path) -> None:
    rows: list[tuple[str, int | None, str]] = [("prm800k", -1, f"step {n % 40}") for n in range(100)]
    _, judge, labelling = run(tmp_path, lambda *_: MIXED, rows, params())
    prompts = labelling.prompts
    assert [prompts.place(prompts.key(place, 3)) for place in range(100)] == [n % 40 for n in range(100)]
    assert [prompts.of_key(prompts.key(place, 0)) for place in range(100)] == [prompts.text(n) for n in range(100)]
    assert [len(wave) for wave in judge.waves] == [40]
