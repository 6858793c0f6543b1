from __future__ import annotations

import pytest

from ground.io import text_digest
from pathfinder.core import prompts
from pathfinder.core.prompts import VARIANTS, assistant_turn, judge_context, judge_prompt, policy_prompt, user_turn


@pytest.mark.parametrize("name", sorted(prompts.DIGESTS))
def test_published_texts_are_the_published_texts(name: str) -> None:
    assert text_digest(getattr(prompts, name)) == prompts.DIGESTS[name]


def test_every_published_text_is_pinned() -> None:
    constants = {name for name in vars(prompts) if name.endswith("_PROMPT") or name.startswith("SYSTEM_")}
    assert constants == set(prompts.DIGESTS)


def test_judge_context_has_the_published_frame_and_indentation() -> None:
    context = judge_context("P", ["a", "b"], "c", indent=16)
    pad = " " * 16
    assert context == (
        f"\n{pad}[Math Problem]\n{pad}P\n{pad}[Partial Solution]\n{pad}<previous_steps>\n{pad}a\n\nb\n{pad}"
        f"</previous_steps>\n{pad}<current_step>\n{pad}c\n{pad}</current_step>\n{pad}"
    )


def test_braces_in_a_problem_stay_as_they_are() -> None:
    hostile = r"{context} {0} \boxed{1} left-brackets {{x}}"
    assert hostile in judge_prompt(hostile, [], "step")
    prompt = policy_prompt(hostile, ["{question}"])
    assert hostile in prompt
    assert prompt.endswith("{question}\n\n")
    assert "within \\boxed{}." in prompt


def test_training_and_search_prompts_as_published() -> None:
    assert user_turn("Q") == prompts.SYSTEM_TRAINING + "\n\n Question: Q"
    first = assistant_turn([], "s", [("Math reasoning", "<extra>"), ("Consistency", "<extra>")])
    assert first == "Current Step: s Math reasoning: <extra>, Consistency: <extra>"
    third = assistant_turn(["a", "b"], "s", [("Correctness", "<+>")])
    assert third == "a\n\nb\n\nCurrent Step: s Correctness: <+>"
    assert assistant_turn([""], "s", []).startswith("Current Step: s"), "build_dataset.py tests the joined text"
    assert assistant_turn([""], "s", [], counts_steps=True).startswith("\n\nCurrent Step: s")
    assert assistant_turn([], "s", [], counts_steps=True).startswith("Current Step: s")
    assert assistant_turn(["", ""], "s", []).startswith("\n\n\n\nCurrent Step: s")


def test_variants_name_their_labels() -> None:
    published = {
        "full": ["math", "consistency", "correctness"],
        "no_error_categories": ["error_free", "correctness"],
        "no_subtasks": ["correctness"],
        "plain_error": ["error_free"],
        "typed_three": ["math", "consistency", "optimality"],
        "autoregressive": ["math", "consistency", "correctness"],
    }
    assert {name: [m.label for m in (*VARIANTS[name].first, *VARIANTS[name].second)] for name in published} == published
    assert [name for name, variant in VARIANTS.items() if variant.sequential] == ["autoregressive"]
