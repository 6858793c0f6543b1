"""The published search: its rules for candidates, and whole searches with a policy and rewards that a case gives."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.published.prompts import SCRIPT, search_script
from tests.published.sources import Differs, Source

EOS = "<|im_end|>"
BOXES = (
    r"\boxed{7}", r"\boxed{}", r"\boxed{\frac{1}{2}}", r"\boxed{1} \boxed{2}", r"\boxed{1", r"\boxed{1}}", "no box",
    "", r"\boxed {7}", r"\boxed{a}\boxed{b", r"\boxed{\boxed{3}}", r"\boxed{{x}", r"\fbox{4}", r"\boxed{7}" + EOS,
    "\\boxed{\n8\n}", r"\boxed{\}", r"\boxed{{}{}} and", r"\Boxed{1}", r"\\boxed{5}",
)  # fmt: skip
CHARACTERS = (
    "aZé αΩπ 0٣½ +-*/=^_'\".,:;?!(){}[]\\$%<>|&@#√∞±×÷° \t\r\n\u00a0\u2028"
    "~`≤≥≠∑∫→⇒·–—“”’…€£²ₙй中あ한🙂\ufffd\u200b\u2060\x00"
)
ROUND = (
    "a\n\n", "b\n\n", " a \n\n", "\n\n", "c", r"so \boxed{7}", r"so \boxed{8}.", r"\boxed{1} or \boxed{2}",
    "x ≤ 1\n\n", "a", r"then \boxed{9}" + "\n\n", "“q”", "\n", "d\n\n\n", "e \n\n",
)  # fmt: skip
REWARDS = (-1.0, 0.0, 0.25, 0.5, 0.5, 0.75, 0.9, 1.0)
END = r"the end \boxed{3}"
DRAWS, SEARCHES = 8, 60


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Single rules, then whole searches as the script runs them."""
    source = sources["declare-lab/PathFinder-PRM"]
    script = search_script(source)
    searches: list[Any] = [_search(Random(number)) for number in range(SEARCHES)]
    nothing = {"draws": [["中"] * DRAWS], "rewards": {}}
    searches.append(Differs(nothing, "docs/fidelity.md: an empty row"))
    return [
        source.recorded(SCRIPT, "extract_boxed", script.extract_boxed, BOXES),
        source.recorded(SCRIPT, "is_math_answer_valid", script.is_math_answer_valid, list(CHARACTERS)),
        source.recorded(SCRIPT, "main", lambda given: _run(script, given), searches),
    ]


def _search(rng: Random) -> dict[str, Any]:
    """The texts of up to six rounds, of which the last repeats and mostly ends the search, and a reward for each."""
    draws = [[rng.choice(ROUND) for _ in range(DRAWS)] for _ in range(rng.randint(0, 5))]
    draws.append([END if rng.random() < 0.9 else "c", *rng.choices(ROUND, k=DRAWS - 1)])
    texts = itertools.chain.from_iterable(draws)
    steps = sorted({text.removesuffix("\n\n").strip() if text.endswith("\n\n") else text for text in texts})
    return {"draws": draws, "rewards": {step: rng.choice(REWARDS) for step in steps} | {END: 1.0}}


def _run(script: Any, given: dict[str, Any]) -> Any:
    rounds = itertools.chain(given["draws"], itertools.repeat(given["draws"][-1]))
    row = {"problem": "Q?", "answer": "3"}
    script.load_dataset = lambda *_, **__: [row]
    script.LLM = lambda **_: SimpleNamespace(generate=lambda *_: [_outputs(rounds)])
    script.PathFinderPRM = lambda *_: SimpleNamespace(inference_single=lambda turns: _reward(turns, given["rewards"]))
    before, sys.argv = sys.argv, ["script", "--policy_model_path", "p", "--reward_model_path", "r"]
    sys.argv += ["--data", "math", "--output_dir", "out"]
    try:
        script.main()
    finally:
        sys.argv = before
    return json.loads(Path("out/result-0-None.json").read_text(encoding="utf-8"))


def _outputs(rounds: Iterator[Sequence[str]]) -> Any:
    return SimpleNamespace(outputs=[SimpleNamespace(text=text) for text in next(rounds)])


def _reward(turns: Sequence[Mapping[str, str]], rewards: Mapping[str, float]) -> float:
    step = (
        turns[-1]["content"]
        .rpartition("Current Step: ")[2]
        .removesuffix(" Math reasoning: <extra>, Consistency: <extra>")
    )
    return rewards[step]
