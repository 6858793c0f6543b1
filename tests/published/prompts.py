"""The texts that the PRM and the policy read: the turns of ``build_dataset.py`` and of the published search."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ground.io import text_digest
from tests.published.sources import Differs, Source, absent

BUILD = "src/data_generation/build_dataset.py"
SEARCH = "src/evaluation/reward_guided_search"
SCRIPT = f"{SEARCH}/Greedy-Seach-Zero-Shot.py"
PREFIXES: tuple[list[str], ...] = (
    [], [""], ["", ""], ["", "a"], ["a", ""], ["a"], ["a", "b\nc"], [" "], ["\n\n"], ["", "", "x = 1"],
)  # fmt: skip
STEPS = ("s", "", " ", "\n\n", "Current Step: s", "so <+> Math reasoning: <->", "x\u2028y\r\n")
QUESTIONS = ("How many?", "", "a\n\nb {question}", "{context} \\boxed{} Question: ")


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The training samples, and the prompts of one round of the search."""
    source = sources["declare-lab/PathFinder-PRM"]
    script = search_script(source)
    return [_training(source), _reward(source, script), _policy(source, script)]


def search_script(source: Source) -> Any:
    """The published search, which imports its prompt and its PRM from its own folder."""
    with absent("vllm", "openai", "datasets", "colorlog"):
        return source.package(SEARCH, "Greedy-Seach-Zero-Shot")


def _training(source: Source) -> dict[str, Any]:
    names = ("GOOD_TOKEN", "BAD_TOKEN", "SEPARATOR_TOKEN", "SYSTEM_PROMPT", "build_data_sample", "build_conversation")
    script = source.parts(BUILD, names)
    scores: list[Any] = [*itertools.product((0, 1), repeat=3), (-1, -1, -1), (1, 1, 0.5), (2, 1, 1)]
    inputs = [
        {
            "question": QUESTIONS[number % len(QUESTIONS)],
            "prev_steps": "\n\n".join(prefix),
            "curr_step": step,
            **dict(zip(("score_A", "score_B", "score_C"), scores[number % len(scores)], strict=True)),
        }
        for number, (prefix, step) in enumerate(itertools.product(PREFIXES, STEPS))
    ]
    inputs += [
        inputs[0] | {"discarded": True},
        {key: inputs[0][key] for key in ("question", "prev_steps", "curr_step")},
    ]
    slots = {"SYSTEM_TRAINING": script.SYSTEM_PROMPT}
    return source.recorded(BUILD, "build_data_sample", script.build_data_sample, inputs, slots)


def _reward(source: Source, script: Any) -> dict[str, Any]:
    def prompt(given: dict[str, Any]) -> Any:
        reader = SimpleNamespace(inference_single=lambda messages: messages)
        return script.get_reward(reader, given["question"], given["prefix"], given["step"])

    inputs = [
        {"question": QUESTIONS[number % len(QUESTIONS)], "prefix": prefix, "step": step}
        for number, (prefix, step) in enumerate(itertools.product(PREFIXES, STEPS))
    ]
    return source.recorded(SCRIPT, "get_reward", prompt, inputs, {"SYSTEM_SEARCH": script.SYSTEM_PROMPT})


def _policy(source: Source, script: Any) -> dict[str, Any]:
    """The digest of the prompt that the policy continues; its long text is published."""

    def prompt(given: dict[str, Any]) -> str:
        seen: list[str] = []

        def generate(text: str, _: Any) -> list[Any]:
            seen.append(text)
            return [SimpleNamespace(outputs=[])]

        policy = SimpleNamespace(generate=generate)
        script.get_next_step(policy, given["question"], given["prefix"], script.Qwen_Policy_Prompt, 0.7)
        return text_digest(seen[0])

    inputs: list[Any] = [{"question": question, "prefix": prefix} for question in QUESTIONS for prefix in PREFIXES]
    replaced = Differs(
        {"question": "left-brackets", "prefix": ["a"]},
        "docs/fidelity.md: this project replaces them only in the prompt",
    )
    return source.recorded(SCRIPT, "get_next_step", prompt, [*inputs, replaced])
