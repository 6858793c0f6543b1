"""All rows of a file have their solutions in one field, whatever other fields a row has; blank steps are no text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.core.given import read_given


def test_a_right_answer_is_not_read_as_the_solution_of_a_failed_generation(tmp_path: Path) -> None:
    first = {"problem": "What is 12 + 7?", "response": "12 + 7 = 19.", "answer": "19"}
    rows = [first, first | {"response": None}, {"problem": "p", "response": None}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert [row.solutions for row in read_given(str(path)).rows] == [(("12 + 7 = 19.",),), ((),), ((),)]
    for others in ([rows[1], first], [first, {"problem": "p", "answer": "19"}]):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in others))
        with pytest.raises(DataError, match=r"row 2: the solution would be \w+, but it is \w+ in the first row"):
            read_given(str(path))


@pytest.mark.parametrize("steps", [[], [" "], ["", "\n"]])
def test_a_solution_without_text_has_no_steps(tmp_path: Path, steps: list[str]) -> None:
    path = tmp_path / "rows.jsonl"
    for row in ({"problem": "p", "steps": steps}, {"problem": "p", "solutions": [steps, ["a"]]}):
        path.write_text(json.dumps(row))
        assert next(read_given(str(path)).each()).steps == ()
