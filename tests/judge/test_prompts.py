from __future__ import annotations

import pytest

from pathfinder.core.params import Preset
from pathfinder.core.prompts import judge_prompt
from pathfinder.judge.critic_prompts import critique_prompt
from pathfinder.judge.prompts import FOREIGN_SPECIALS, step_prompt


@pytest.mark.parametrize(
    ("source", "preset", "indent"),
    [
        ("prm800k", "repaired", 0),
        ("rlhflow_mistral", "repaired", 0),
        ("prm800k", "official", 16),
        ("rlhflow_mistral", "official", 20),
        ("math_shepherd", "official", 20),
    ],
)
def test_the_frame_is_indented_as_published_for_the_source(source: str, preset: Preset, indent: int) -> None:
    assert step_prompt(source, "P", ["a", "b"], "c", (), preset) == judge_prompt("P", ["a", "b"], "c", indent)


@pytest.mark.parametrize("special", FOREIGN_SPECIALS)
def test_no_part_contains_an_active_special_token(special: str) -> None:
    prompt = step_prompt("prm800k", f"P {special}", [f"a {special}"], f"{special} c", FOREIGN_SPECIALS, "repaired")
    assert special not in prompt


def test_no_text_can_leave_its_tags() -> None:
    tags = ("<previous_steps>", "</previous_steps>", "<current_step>", "</current_step>")
    text = "".join(tags)
    prompt = step_prompt("prm800k", text, [text], text, (), "official")
    assert [prompt.count(tag) for tag in tags] == [judge_prompt("", [""], "").count(tag) for tag in tags] == [1] * 4
    assert "<|eot_id|>" not in critique_prompt("<|eot_id|>", ["<|eot_id|>"], FOREIGN_SPECIALS), "Llama is a critic"
