from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ground.io import read_jsonl
from pathfinder.core.prompts import without_captions
from pathfinder.data.monte_carlo import clean_step, read_monte_carlo
from pathfinder.data.upstream import UnreadableError


def talk(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"conversations": [{"role": role, "content": content} for role, content in turns]}


def test_a_conversation_is_read_as_question_steps_and_ratings() -> None:
    value = talk(
        ("user", "What is 2 + 2? Step 1: Add. See Step 9: later"),
        ("assistant", "+"),
        ("user", "Step 2: So 5.\nStep 3: Done"),
        ("assistant", " - "),
        ("user", "Step 4: End"),
    )
    reading = read_monte_carlo(value, "repaired")
    assert (reading.source, reading.problem) == ("rlhflow_mistral", "What is 2 + 2?")
    assert reading.trunk == ["Add. See Step 9: later", "So 5.\nDone", "End"]
    assert [r.rating for r in reading.records] == [1, -1, None]
    official = read_monte_carlo(value["conversations"], "official")
    assert official.trunk == ["Step 1:Add. See Step 9: later", "Step 2: So 5.\nStep 3: Done", "Step 4: End"]
    assert [without_captions(step) for step in official.trunk] == ["Add. See later", "So 5.\n\nDone", "End"]
    assert [r.rating for r in official.records] == [1, -1, None]


def test_an_unknown_rating_is_set_aside_and_its_step_is_followed() -> None:
    value = talk(("user", "Q Step 1: a"), ("assistant", "?"), ("user", "Step 2: b"), ("assistant", "+"))
    reading = read_monte_carlo(value, "repaired")
    assert reading.set_aside == [(0, 0, "bad_rating", "'?'")]
    assert reading.records == [(1, 0, 1, "b", 1)]
    assert reading.trunk == ["a", "b"]
    assert [r.rating for r in read_monte_carlo(value, "official").records] == [-1, 1]


def test_an_unreadable_step_ends_the_repaired_trunk() -> None:
    value = talk(
        ("user", "Q Step 1: a"),
        ("assistant", "+"),
        ("user", None),
        ("assistant", "+"),
        ("user", "c"),
        ("assistant", "-"),
    )
    reading = read_monte_carlo(value, "repaired")
    assert reading.trunk == ["a"]
    assert reading.set_aside == [(1, 0, "null_text", "None")]
    assert reading.lost == [(2, 0, "after_unreadable_step", "")]
    assert reading.dropped == {"after_unreadable_step": 1}
    official = read_monte_carlo(value, "official")
    assert official.trunk == ["Step 1:a", "c"]
    assert [(r.position, r.step_index) for r in official.records] == [(0, 0), (2, 1)]
    assert len(reading.records) + len(reading.set_aside) + reading.dropped.total() == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"other": 1}, "unknown_shape"),
        ("text", "unknown_shape"),
        ([], "bad_conversation"),
        ([{"role": "user", "content": "Q Step 1: a"}], "bad_conversation"),
        (talk(("assistant", "Q Step 1: a"), ("user", "+")), "bad_roles"),
        (talk(("user", "Q Step 1: a"), ("assistant", "+"), ("assistant", "Step 2: b")), "bad_roles"),
        (talk(("user", None), ("assistant", "+")), "problem_null_text"),
        ([{"role": "user", "content": "Q Step 1: a"}, "+"], "bad_conversation"),
        ({"conversations": {"0": "a", "1": "b"}}, "bad_conversation"),
        ({"input": 1, "label": "+"}, "not_text"),
        ({"input": "Q Step 1: a ки", "label": None}, "not_text"),
        ({"input": " ", "label": " "}, "no_first_step"),
        ({"input": "Q Step 1: a ки"}, "unknown_shape"),
        (talk(("user", "no steps"), ("assistant", "+")), "no_first_step"),
        (talk(("user", "Step 1: a"), ("assistant", "+")), "problem_empty_text"),
        ({"input": "Q Step 1: a ки", "label": "Q Step 1: b +"}, "label_mismatch"),
        ({"input": "Q Step 1: a ки", "label": "Q Step 1: a + more"}, "label_mismatch"),
    ],
)
def test_a_broken_line_has_a_reason(value: Any, reason: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read_monte_carlo(value, "repaired")
    assert caught.value.reason == reason


def test_shepherd_placeholders_are_found_even_if_a_step_contains_one() -> None:
    value = {"input": "Q Step 1: ки is a word ки\nStep 2: b ки", "label": "Q Step 1: ки is a word +\nStep 2: b -"}
    reading = read_monte_carlo(value, "repaired")
    assert (reading.problem, reading.trunk) == ("Q", ["ки is a word", "b"])
    assert [r.rating for r in reading.records] == [1, -1]


def test_text_after_the_last_placeholder_is_a_step_without_a_rating() -> None:
    value = {"input": "Q Step 1: a ки\nStep 2: b", "label": "Q Step 1: a +\nStep 2: b"}
    reading = read_monte_carlo(value, "repaired")
    assert (reading.source, reading.trunk, [r.rating for r in reading.records]) == (
        "math_shepherd",
        ["a", "b"],
        [1, None],
    )
    ended = read_monte_carlo({name: f"{text}\n" for name, text in value.items()}, "official")
    assert ended.trunk == ["Step 1:a", "Step 2: b"]


def test_a_rating_directly_before_the_next_step_is_one_character() -> None:
    value = {"input": "Q Step 1: a киStep 2: b ки", "label": "Q Step 1: a +Step 2: b -"}
    assert [r.rating for r in read_monte_carlo(value, "repaired").records] == [1, -1]


def test_only_repaired_finds_a_first_step_in_lower_case() -> None:
    value = talk(("user", "Q step 1: a"), ("assistant", "+"))
    repaired, official = read_monte_carlo(value, "repaired"), read_monte_carlo(value, "official")
    assert (repaired.problem, repaired.trunk) == ("Q", ["a"])
    assert (official.problem, official.trunk) == ("Q step 1: a", [""])


def test_the_value_of_an_unreadable_step_is_kept() -> None:
    value = talk(("user", "Q Step 1: a"), ("assistant", "+"), ("user", 5), ("assistant", "+"))
    assert read_monte_carlo(value, "repaired").set_aside == [(1, 0, "not_text", "5")]


def test_only_official_keeps_a_question_without_a_first_step() -> None:
    reading = read_monte_carlo(talk(("user", "no steps"), ("assistant", "+")), "official")
    assert (reading.problem, reading.trunk) == ("no steps", [""])
    assert reading.records == [(0, 0, 0, "", 1)]


def test_cleaning_follows_the_preset() -> None:
    text = "Step 3: as in Step 1: we add\n\n step 4 : done"
    assert clean_step(text, "repaired") == "as in Step 1: we add\n\ndone"
    assert clean_step(text, "official") == text, "the judge sees the captions"
    assert without_captions(text) == "as in we add\n\nstep 4 : done"


def test_real_shepherd_samples_are_read(mirror: Path) -> None:
    readings = [
        read_monte_carlo(value, "repaired")
        for _, value in read_jsonl(mirror / "mistral" / "math_shepherd_samples.jsonl")
    ]
    assert len(readings) == 7
    assert sum(len(reading.records) for reading in readings) == 25
    assert not any(reading.set_aside for reading in readings)
    assert not any(
        "ки" in text or "Step 1" in text for reading in readings for text in (reading.problem, *reading.trunk)
    )
