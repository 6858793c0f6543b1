"""A small model says when a solution is unlike all that it learnt from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ground.io import DataError, read_json, write_json
from pathfinder.cli import app
from pathfinder.core.steps import Known, Solution
from pathfinder.demo import MODEL
from pathfinder.models.folders import open_model
from pathfinder.prm.results import warning

KNOWN = Known.of(["Tom has 3 apples.", "Tom eats 12 apples, so 15.5 are left."])
OFF_WORLD = """\
A train travels 60 miles per hour for 3 hours. How far does it go?|60 * 3 = 180 miles.
Solve x + 5 = 12.|x = 12 - 5 = 7.
What is 12 / 4?|12 / 4 = 3.
What is 150 + 20?|150 + 20 = 170.
What is 7 × 8?|7 × 8 = 56.
What is 2 ^ 5?|2 ^ 5 = 32.
What is 20 % of 50?|50 * 0.2 = 10.
How many sides does a square have?|A square has 4 sides.
What is the area of a circle with radius 2?|It is 4 pi.
Find the derivative of x^2.|It is 2x.
Let $a_n = 2n$. Find $a_5$.|$a_5 = 10$.
Anton hat 3 Äpfel. Er kauft 4. Wie viele hat er?|3 + 4 = 7.
Il y a 3 pommes. Combien?|3.
汤姆有三个苹果。|3 + 4 = 7.
Tom has 3 apples and 4 pears. How many things does Tom have?|3 + 4 = 7.
Tom has 3000 apples. How many apples does Tom have?|3000 apples.
Tom has 3 kilograms of apples.|3 * 2 = 6.
Tom has 1.5 apples. How many apples does Tom have?|1.5 apples.
Tom gives Mary half of the 8 apples.|8 / 2 = 4.
Each box holds 6 eggs. How many eggs are in 4 boxes?|4 * 6 = 24 eggs.
Is 7 prime?|Yes, 7 is prime.
What is the square root of 16?|4.
Simplify (3 + 4) * 2.|7 * 2 = 14.
What is -3 + 5 in modulo 7?|2.
How many minutes are in 2 hours?|120 minutes.
The sum of two numbers is 10.|5 + 5 = 10.
What comes after 1, 2, 4, 8?|16, since each number doubles.
A dog has 4 legs. How many legs do 3 dogs have?|12 legs.
Sarah read 20 pages on Monday.|20 + 15 = 35.
If today is Monday, what day is tomorrow?|Tuesday.
Prove that the sum of two even numbers is even.|2a + 2b = 2(a + b).
What is 5!?|5! = 120.
Convert 1/2 to a decimal.|0.5
What is 0.1 + 0.2?|0.3
How many apples does Xavier have?|5 apples.
Tom has three apples. Tom buys four. How many?|Seven apples.
What is 99 + 1?|99 + 1 = 100.
Tom buys 4 melons.|4 melons.
Write a poem about apples.|Roses are red.
import math|print(math.pi)
<+> Tom has 3 apples.|3 <-> 4
What is log(100)?|2
Round 3.7 to the next number.|4
A rectangle is 3 by 4.|Its area is 12.
Choose 2 of 5 people.|10 ways.
Two dice are thrown. What is the probability of 12?|1/36
The price falls from 80 to 60.|It fell by 25 %.
Tom is twice as old as Ann, who is 6.|12
Which is larger, 3 or 5?|5
There are 12 students; 5 are girls.|12 - 5 = 7 boys."""


def solution(problem: str, steps: Sequence[str]) -> Solution:
    return Solution("0", problem, tuple(steps))


def off_world() -> list[list[str]]:
    return [line.split("|") for line in OFF_WORLD.splitlines()]


def test_words_signs_and_numbers_that_were_not_learnt_are_named() -> None:
    assert KNOWN is not None
    assert KNOWN.unlike(solution("TOM has 12 apples.", ["Tom eats 3, so 4.25 are left."])) == ()
    assert KNOWN.unlike(solution("Tom has 13 apples!", ["x_1"])) == (
        "unknown words or signs: !, _, x",
        "a number above 12",
    )
    many = KNOWN.unlike(solution("a b c d e f g", []))
    assert many == ("unknown words or signs: a, b, c, d, e and 2 more",)
    assert KNOWN.unlike(solution("9" * 10_000, [])) == ("a number above 12",)


def test_digits_that_are_no_numbers_are_signs() -> None:
    assert Known.of(["5² = 25", "①"]) == Known(frozenset("²=①"), 25)
    assert KNOWN is not None
    assert KNOWN.unlike(solution("5² apples", ["①"])) == ("unknown words or signs: ², ①",)


def test_what_is_known_is_told_beforehand() -> None:
    few = Known.of(["Tom has 3 <b>apples</b>, Tom eats 12 more."])
    trained = "This model was trained on 11 words and symbols (such as apples, eats, more) and on numbers up to 12."
    assert str(few) == f"{trained} Do not rely on its scores for other texts."
    assert str(Known()) == str(Known(frozenset("<>"), 3)) == ""


def test_a_language_has_too_many_words_to_be_named() -> None:
    words = (f"w{'abcdefghij'[n // 1000]}{'abcdefghij'[n // 100 % 10]}{n % 100 * 'x'}y" for n in range(3_001))
    assert Known.of(words) is None


def test_what_is_known_survives_as_json_and_other_values_are_refused(tmp_path: Path) -> None:
    assert KNOWN is not None
    assert Known.of_json(json.loads(json.dumps(KNOWN.as_json()))) == KNOWN
    assert Known.of_json(None) is None
    wrongs: list[Any] = [[], {"words": ["a"]}, {"words": "a", "largest_number": 3}, {"words": [1], "largest_number": 3}]
    write_json(tmp_path / "config.json", {})
    for wrong in wrongs:
        write_json(tmp_path / "pathfinder.json", {"variant": "full", "known": wrong})
        with pytest.raises(DataError, match=f"{tmp_path}/pathfinder.json: known needs words"):
            _ = open_model(tmp_path).known


def test_every_solution_of_other_worlds_is_marked() -> None:
    known = open_model(MODEL).known
    assert len(off_world()) == 50
    assert [problem for problem, *steps in off_world() if not known.unlike(solution(problem, steps))] == []


def test_hardly_any_solution_of_the_same_world_is_marked(world: Path) -> None:
    known = open_model(MODEL).known
    items = [item for file in sorted((world / "processbench").glob("*.json")) for item in read_json(file)]
    marked = [item["id"] for item in items if known.unlike(solution(item["problem"], item["steps"]))]
    assert len(items) >= 500
    assert len(marked) <= len(items) * 0.04  # two of 50


@pytest.mark.parametrize("is_pretty", [False, True])
def test_score_says_it(tmp_path: Path, is_pretty: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"problem": "Tom has 3 apples. Tom buys 4. How many apples does Tom have?", "steps": ["3 + 4 = 7 apples."]},
        {"problem": "What is 150 + 20?", "steps": ["150 + 20 = 170 \x1b[2J."]},
    ]
    file = tmp_path / "two.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = CliRunner().invoke(app, ["score", str(file), "--model", str(MODEL), *["--pretty"] * is_pretty])
    assert done.exit_code == 0, done.output
    if is_pretty:
        assert done.stdout.count("These scores mean little") == 1
        assert "\x1b" not in done.stdout
    else:
        first, second = map(json.loads, done.stdout.splitlines())
        assert first["unlike"] == []
        assert second["unlike"] == ["unknown words or signs: \x1b, [, j", "a number above 95"]


def test_the_warning_names_each_difference() -> None:
    assert warning(()) == ""
    assert warning(("a", "b")).endswith("(a; b).")
