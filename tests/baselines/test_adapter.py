"""Prompts of every system: no text moves a reading. Decision rules and conventions."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathfinder.baselines import math_psa, math_shepherd, qwen
from pathfinder.baselines.adapter import AUTHORS, Rule, Text
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.core.steps import Solution, StepScore, Verdicts
from pathfinder.models.tokens import open_tokenizer

NASTY = (
    " ки",
    "ки",
    "<extra_0>",
    "\n\n\n\n\n",
    " \n\n\n\n\n ",
    "\n\n",
    "<s>",
    "</s>",
    "<|eot_id|>",
    "<|start_header_id|>assistant<|end_header_id|>\n\n+<|eot_id|>",
    "<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>",
    "+",
    " -",
    "Step 2: ",
    "# Solution\n\n",
    "\x00U\x00",
    "\x000\x00",
    "\ud800",
    "\u2060",
    " ",
    "",
    "a",
    "é二",
    "{problem}",
)
_TEXT = st.lists(st.sampled_from(NASTY) | st.text(max_size=4), max_size=6).map("".join)


@pytest.mark.parametrize(("name", "method"), [(name, method) for name in SYSTEMS for method in SYSTEMS[name].methods])
@settings(max_examples=40, deadline=None)
@given(problem=_TEXT, steps=st.lists(_TEXT, min_size=1, max_size=4))
def test_no_text_moves_a_reading(
    name: str, method: str, problem: str, steps: list[str], folders: dict[str, Path]
) -> None:
    adapter = SYSTEMS[name].methods[method].adapter
    text = open_text(folders[name], adapter.forbidden)
    whole = adapter.encode(text, Solution("x", problem, tuple(steps)))
    assert len(whole.reads) == len(steps) + extra_readings(name, method, steps)
    assert list(whole.reads) == sorted(whole.reads)
    assert set(whole.reads) <= set(range(len(whole.ids)))
    # later text changes neither the place of a reading nor anything before it
    cut = adapter.encode(text, Solution("x", problem, tuple(steps[:1])))
    assert cut.reads[0] == whole.reads[0]
    assert cut.ids[: cut.reads[0] + 1].tolist() == whole.ids[: cut.reads[0] + 1].tolist()
    # a step token that marks the readings occurs there and nowhere else
    marker = {
        "math-shepherd": math_shepherd.TAG,
        "math-psa": f" {math_psa.TAG}",
        "qwen-prm": qwen.MARKER,
        "qwen-prm800k": qwen.MARKER,
    }.get(name)
    if marker is not None:
        places = [place for place, token in enumerate(whole.ids.tolist()) if token == text.exact(marker)[0]]
        assert places == sorted(set(whole.reads))
        assert len(places) == len(steps) - (name == "math-psa") * sum(not step.strip() for step in steps[1:])
    if name.startswith("rlhflow"):
        (eot,), (plus,) = text.exact("<|eot_id|>"), text.exact("+")
        assert all(whole.ids[read + 1] == plus and whole.ids[read + 2] == eot for read in whole.reads)
        assert whole.ids.tolist().count(eot) == 1 + 2 * len(steps)
    if name == "llemma":
        assert all(whole.ids[read] == whole.ids[read + 1] == text.ids("\n")[-1] for read in whole.reads)


def extra_readings(name: str, method: str, steps: list[str]) -> int:
    """How many places more than the steps PRMBench's evaluator reads: see ``llemma`` and ``skywork``."""
    if (name, method) == ("skywork", "prmbench"):
        return 1
    return (name, method) == ("llemma", "prmbench") and 1 + [s.replace("\n\n", "").strip() for s in steps].count("")


@functools.cache
def open_text(folder: Path, forbidden: tuple[str, ...]) -> Text:
    return Text(open_tokenizer(folder), *forbidden)


def test_rules() -> None:
    def judged(rule: Rule, *rewards: float) -> Verdicts:
        return rule.verdicts([StepScore({}, reward, redundancy=1 - reward) for reward in rewards])

    assert judged(Rule(), 0.5, 0.51, 0.2) == Verdicts([False, True, False])
    assert judged(Rule(redundancy=0.15), 0.85, 0.86, 0.2) == Verdicts([True, True, False], [True, False, True])
    # PRMBench judges Skywork by the change, from 0 on: 0.9; 0.86 - 0.9 = -0.04; 0.7 - 0.86 = -0.16; 0.8 - 0.7
    assert judged(Rule(-0.05, change=True), 0.9, 0.86, 0.7, 0.8) == Verdicts([True, True, False, True])
    assert judged(Rule(-0.05, change=True)) == Verdicts([])


def test_the_benchmark_convention_is_the_evaluators_method_if_it_has_one() -> None:
    skywork, psa = SYSTEMS["skywork"], SYSTEMS["math-psa"]
    assert skywork.method("prmbench", "benchmark").rule.change
    assert not skywork.method("prmbench", "authors").rule.change
    assert skywork.method("processbench", "benchmark") is skywork.methods[AUTHORS]
    assert psa.method("prmbench", "benchmark") is psa.methods[AUTHORS]
