"""The published grading of final answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from math_verify import parse, verify

from tests.published.sources import Source

GRADING = "src/evaluation/reward_guided_search/eval_results.py"
SETS = ("math", "amc23", "aime24", "college_math", "olympiadbench", "minerva_math")
PAIRS = (
    ("7", "7"), ("7", "8"), ("7", "7.0"), ("27.0", "27"), ("1/2", r"\frac{1}{2}"), ("0.5", r"\frac12"), ("", ""),
    ("x", ""), ("(1, 2)", "(1,2)"), ("1,2", "2,1"), ("[1, 2]", "(1, 2]"), (r"\sqrt{8}", r"2\sqrt{2}"), ("3", "x = 3"),
    ("['2']", "2"), ("['2']", "['2']"), (r"\text{yes}", "yes"), ("A", r"\text{A}"), ("50", r"50\%"), (r"50\%", "0.5"),
    ("1,000", "1000"), ("10", "10 cm"), (r"90^\circ", "90"), ("$5$", "5"), (r"\pi", "3.14159"), ("-1", "- 1"),
    (r"\{1,2\}", r"\{2,1\}"), ("x^2+1", "1+x^2"), ("(x-1)(x+1)", "x^2-1"), ("2^{10}", "1024"), ("\\infty", "∞"),
    ("{", "}"), ("\\boxed{3}", "3"), ("3", "\\boxed{3}"), ("1e3", "1000"), ("½", "0.5"), ("a=1, b=2", "1, 2"),
)  # fmt: skip
KEYS = (7, 7.0, "7", "$7$", ["7"], ["7", "8"], r"so \boxed{7}", r"\boxed{7} or \boxed{8}", r"\frac{14}{2}", "x")
ANSWERS = ("7", "7.0", "8", r"\frac{14}{2}", "['7']", "7, 8", None, "", "x")


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Verdicts on pairs, Minerva's keys, and whole result folders."""
    source = sources["declare-lab/PathFinder-PRM"]
    script = source.parts(GRADING, ["verify_ans", "extract_boxed"], parse=parse, verify=verify)
    given: list[Any] = [list(pair) for pair in PAIRS]
    whole = [_results(Random(number)) for number in range(2)]
    return [
        source.recorded(GRADING, "verify_ans", lambda pair: script.verify_ans(*pair), given),
        source.recorded(GRADING, "extract_boxed", script.extract_boxed, [str(key) for key in KEYS]),
        source.recorded(GRADING, "", lambda rows: _graded(source, rows), whole),
    ]


def _results(rng: Random) -> dict[str, Any]:
    """The rows of a results folder; a column of one file has one type, as in the published data."""
    found = {}
    for name in SETS:
        kinds = {"olympiadbench": list, "aime24": int, "amc23": float}
        keys = [key for key in KEYS if type(key) is kinds.get(name, str)]
        answers = [rng.choice(ANSWERS) for _ in range(rng.randint(2, 5))]
        found[name] = [
            {"question": f"{name} {number}", "gt_answer": rng.choice(keys), "pred_answer": answer}
            for number, answer in enumerate(["7", *answers])
        ]
    return found


def _graded(source: Source, given: dict[str, Any]) -> Any:
    """The whole script on a folder of results."""
    for name, rows in given.items():
        path = Path("results") / name / "result-0-None.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, indent=2))
    before, sys.argv = sys.argv, ["script", "--results_dir", "results"]
    try:
        source.module(GRADING)
    finally:
        sys.argv = before
    return json.loads(Path("results/results.json").read_text())
