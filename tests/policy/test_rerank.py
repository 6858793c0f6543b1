"""Best of n over anyone's candidates, from the file to the printed row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ground.io import DataError
from pathfinder.cli import app
from pathfinder.core.given import read_given
from pathfinder.core.steps import PRM, RoundScorer, Solution, StepScore
from pathfinder.policy.choosing import RULES, SCORES, WEIGHTED
from pathfinder.policy.rerank import read_candidates, reranked
from tests.prm.test_scoring import save_prm

WEIGHTED_RULES = [rule for rule, (way, _) in RULES.items() if way == WEIGHTED]


class Rewards(PRM):
    """Gives each step the number that it is, in tenths; a step "long" has no scores."""

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        return [
            [] if "long" in one.steps else [StepScore({}, float(step) / 10) for step in one.steps] for one in solutions
        ]

    def rounds(self) -> RoundScorer:
        raise NotImplementedError


def write(folder: Path, *rows: Any) -> str:
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "in.jsonl")


def chosen(folder: Path, row: Any) -> dict[str, int | None]:
    (found,) = reranked(Rewards(), read_candidates(read_given(write(folder, row))))
    assert list(found["chosen"]) == [*RULES, "vote"]
    return dict(found["chosen"])


def test_each_rule_chooses_its_own_candidate(tmp_path: Path) -> None:
    row = {"problem": "P", "solutions": [["5", "5"], ["9", "4", "9"], ["1", "9"]], "answers": ["1", "2", "2"]}
    found = chosen(tmp_path, row)
    expected = {"min": 0, "product": 1, "last": 1, "mean": 1, "vote": 1} | dict.fromkeys(WEIGHTED_RULES, 1)
    assert found == expected | {"weighted_min": 0}, ".5 against .4 + .1: the first of equals"


def test_equal_answers_vote_together_however_they_are_spelled(tmp_path: Path) -> None:
    row = {"problem": "P", "solutions": [["6"], ["4"], ["3"]], "answers": ["1", "1/2", "0.5"]}
    assert chosen(tmp_path, row) == dict.fromkeys(SCORES, 0) | dict.fromkeys(WEIGHTED_RULES, 1) | {"vote": 1}


def test_the_first_of_equal_solutions_is_chosen(tmp_path: Path) -> None:
    """A reward depends on the place in a batch, in the last digits."""

    class Rounding(Rewards):
        def score(self, solutions: Sequence[Solution], on_done: Any = None) -> list[list[StepScore]]:
            return [[StepScore({}, 0.5 + place / 1e8) for _ in one.steps] for place, one in enumerate(solutions)]

    given = write(tmp_path, {"problem": "P", "solutions": [["1", "2"]] * 3, "answers": ["1", "1", "1"]})
    (found,) = reranked(Rounding(), read_candidates(read_given(given)))
    assert found["chosen"] == dict.fromkeys([*RULES, "vote"], 0)
    assert found["rewards"] == [[0.5, 0.5]] * 3


def test_texts_are_split_and_their_answers_read(tmp_path: Path) -> None:
    row = {"question": "P", "candidates": ["1\n\n2 \\boxed{7}", "3"], "id": 4}
    (found,) = read_candidates(read_given(write(tmp_path, row)))
    assert (found.id, found.steps, found.answers) == ("4", (("1", "2 \\boxed{7}"), ("3",)), ("7", None))
    row = {"problem": "P", "solutions": ["1\r\n\r\n2", "1\n \t\n2", "1\n\n2"]}
    assert read_candidates(read_given(write(tmp_path, row)))[0].steps == (("1", "2"),) * 3


def test_candidates_without_answer_or_scores(tmp_path: Path) -> None:
    few = {"problem": "P", "solutions": [["9"], ["5"]], "answers": [None, "1"]}
    assert chosen(tmp_path, few) == dict.fromkeys(RULES, 1) | {"vote": 1}
    empty = {"problem": "P", "solutions": [["9"], ["9"], ["5"]], "answers": ["", " ", "1"]}
    assert chosen(tmp_path, empty) == dict.fromkeys(RULES, 2) | {"vote": 2}, "an empty answer has no vote"
    none = {"problem": "P", "solutions": [["5"], ["9"], []]}
    assert chosen(tmp_path, none) == dict.fromkeys(RULES, 1) | {"vote": None}
    long = {"problem": "P", "solutions": [["long"], ["2"]]}
    assert chosen(tmp_path, long) == dict.fromkeys(RULES, 1) | {"vote": None}
    (row,) = reranked(
        Rewards(), read_candidates(read_given(write(tmp_path, {"problem": "P", "solutions": [["long"], [], ["2"]]})))
    )
    assert row["rewards"] == [None, None, [0.2]], "an empty list would pass for rewards"
    given = {"problem": "P", "solutions": [["nan"], ["2"]]}
    (row,) = reranked(Rewards(), read_candidates(read_given(write(tmp_path, given))))
    assert row["rewards"] == [[0.0], [0.2]], "no JSON holds a NaN"


@pytest.mark.parametrize(
    "row",
    [
        [],
        {"problem": "P"},
        {"problem": "P", "solutions": []},
        {"problem": "P", "solutions": [[1]]},
        {"problem": 1, "solutions": ["a"]},
        {"problem": "P", "solutions": ["a"], "answers": []},
        {"problem": "P", "solutions": ["a"], "answers": [True]},
    ],
)
def test_bad_rows_are_named(tmp_path: Path, row: Any) -> None:
    with pytest.raises(DataError, match=r"in\.jsonl: row 2: "):
        read_candidates(read_given(write(tmp_path, {"problem": "P", "solutions": ["a"]}, row)))


def test_the_command_prints_a_row_per_problem(tmp_path: Path) -> None:
    save_prm(tmp_path / "model")
    source = write(tmp_path, {"problem": "1+1?", "solutions": ["It is 2.\n\n\\boxed{2}", "It is 3. \\boxed{3}"]})
    done = CliRunner().invoke(app, ["rerank", source, "--model", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert [len(rewards) for rewards in row["rewards"]] == [2, 1]
    best = max((0, 1), key=lambda place: math.prod(row["rewards"][place]))
    assert row["chosen"]["product"] == best


def test_rows_with_one_solution_of_the_same_problem_are_its_candidates(tmp_path: Path) -> None:
    rows = [{"question": problem, "answer": f"{number}"} for number, problem in enumerate(("P", "Q", "P"), start=4)]
    found = read_candidates(read_given(write(tmp_path, *rows)))
    assert [(one.id, one.problem, one.steps) for one in found] == [
        ("1", "P", (("4",), ("6",))),
        ("2", "Q", (("5",),)),
    ]
    with pytest.raises(DataError, match=r"in\.jsonl: no problem has several solutions; give more, or use"):
        read_candidates(read_given(write(tmp_path, *rows[:2])))


def test_the_answers_of_rows_with_one_solution_are_joined(tmp_path: Path) -> None:
    rows = [{"q": "P", "s": [step], "a": [answer]} for step, answer in (("4", "7"), ("6", None))]
    (found,) = read_candidates(read_given(write(tmp_path, *rows), columns="problem=q,solutions=s,answers=a"))
    assert (found.steps, found.answers) == ((("4",), ("6",)), ("7", None))


def test_completions_of_search_and_learn_are_candidates(tmp_path: Path) -> None:
    row = {
        "problem": "P",
        "answer": "7",
        "completions": ["1\n\n2 \\boxed{7}", "", "3"],
        "scores": [[0.5, 0.5], [], [0.5]],
    }
    (found,) = read_candidates(read_given(write(tmp_path, row)))
    assert (found.steps, found.answers) == ((("1", "2 \\boxed{7}"), (), ("3",)), ("7", None, None))


def test_the_command_draws_the_candidates_with_the_rewards_of_a_mode(tmp_path: Path) -> None:
    save_prm(tmp_path / "model")
    solutions = [["It is 2.", "\\boxed{2}"], ["It is 3."], []]
    source = write(tmp_path, {"problem": "1+1?", "solutions": solutions, "id": "q"})
    call = ["rerank", source, "--model", str(tmp_path / "model")]
    row, other = (json.loads(CliRunner().invoke(app, [*call, "--mode", mode]).stdout) for mode in ("both", "all"))
    assert row["rewards"] != other["rewards"]
    done = CliRunner().invoke(app, [*call, "--mode", "all", "--pretty"])
    assert done.exit_code == 0, done.output
    name, problem, _, head, *lines = done.stdout.splitlines()
    assert (name, problem) == ("q:", "1+1?")
    assert head.split() == ["answer", *SCORES, "chosen", "by"]
    first = [f"{score(other['rewards'][0]):.2f}" for score in SCORES.values()]
    assert lines[0].split() == ["0", "2", *first, "all"], "only this one has an answer"
    assert [line.split() for line in lines[1:3]] == [
        ["1", "–", *[f"{other['rewards'][1][0]:.2f}"] * 4],
        ["2", *["–"] * 5],
    ]
    assert CliRunner().invoke(app, [*call, "--mode", "pass1"]).exit_code == 2, "it gives no rewards"
