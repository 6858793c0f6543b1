from __future__ import annotations

from typing import Any

from ground.io import text_digest
from pathfinder.core.prompts import VARIANTS, policy_prompt
from pathfinder.data.export import paper_rows
from pathfinder.tree.passes import PRESETS, Prompter, Query
from tests.published.kept import cases, differences
from tests.support.models import plain_tokenizer

JOINER = "\u2060"
"""Breaks up a special token in a text from outside; the published code inserts such texts as they are."""


def turns(prompter: Prompter, problem: str, prefix: list[str], step: str) -> list[str]:
    found = prompter.turns(Query("q", problem, tuple(prefix), step), ["<extra>", "<extra>"])
    return [text.replace(JOINER, "") for text in found]


def test_training_samples_are_those_of_build_dataset() -> None:
    def samples(given: dict[str, Any]) -> Any:
        scores = [given.get(f"score_{letter}", -1) for letter in "ABC"]
        if given.get("discarded") or scores[0] == -1:
            return None  # the filter drops the record
        labels = [int(score == 1) for score in scores]
        branch = dict(zip(("math", "consistency"), labels, strict=False)) | {"correctness": int(all(labels))}
        prefix = [given["prev_steps"]] if given["prev_steps"] else []
        tree = {"problem": given["question"], "steps": prefix, "source": "prm800k"}
        rows = paper_rows(tree | {"branches": [branch | {"step_index": len(prefix), "step": given["curr_step"]}]})
        return [{"labels": labels, "inputs": inputs} for inputs, labels, _ in rows]

    assert not differences(cases("prompts", "build_data_sample"), samples)


def test_the_search_prompts_the_prm_as_published() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"], PRESETS["official-search"])

    def prompt(given: dict[str, Any]) -> list[dict[str, str]]:
        user, answer = turns(prompter, given["question"], given["prefix"], given["step"])
        role = prompter.preset.answer_role
        return [{"role": "user", "content": user}, {"role": role, "content": answer}]

    assert not differences(cases("prompts", "get_reward"), prompt)


def test_the_search_prompts_the_policy_as_published_but_keeps_the_words_of_a_problem() -> None:
    def prompt(given: dict[str, Any]) -> str:
        return text_digest(policy_prompt(given["question"], given["prefix"]))

    assert not differences(cases("prompts", "get_next_step"), prompt)
