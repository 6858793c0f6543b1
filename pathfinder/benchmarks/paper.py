"""The numbers of the paper's result tables ("Error Typing for Smarter Rewards"), in percent as printed.

Columns are named by our metric keys. Rows that the authors trained themselves are found by ``ours``.
"""

from __future__ import annotations

from dataclasses import dataclass

_FULL, _PRM800K = "PathFinder-PRM-7B", "PathFinder-PRM-7B-PRM800K"
_ABLATIONS = {
    "full": "",
    "no_error_categories": " w/o Separate Error Categories",
    "no_subtasks": " w/o Separate Subtask Prediction",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A system and its numbers, one a column; ``samples`` is the paper's "# Samples"."""

    name: str
    values: tuple[float, ...]
    samples: str = ""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table of the paper; ``label`` is its LaTeX label."""

    label: str
    caption: str
    columns: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row | None:
        """The row of a system."""
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """A data mix and the three averages that came of it."""

    name: str
    samples: str
    mistral_samples: str
    values: tuple[float, float, float]


def ours(variant: str, mix: str) -> str:
    """The paper's name for one of our variants on a data mix; no row has it where the paper has no such model."""
    base = {"400k": _FULL, "prm800k": _PRM800K}.get(mix, f"{_FULL}-{mix}")
    return base + _ABLATIONS.get(variant, f" {variant}")


_JUDGES = (
    Row("GPT-4o", (79.2, 63.6, 51.4, 53.5, 61.9), "unk"),
    Row("o1-mini", (93.2, 88.9, 87.2, 82.4, 87.9), "unk"),
    Row("Llama-3.3-70B-Instruct", (82.9, 59.4, 46.7, 43.0, 58.0), "unk"),
    Row("Qwen2.5-Math-72B-Instruct", (65.8, 52.1, 32.5, 31.7, 45.5), "unk"),
    Row("Qwen2.5-72B-Instruct", (76.2, 61.8, 54.6, 52.2, 61.2), "unk"),
)
_PROCESSBENCH = (
    Row("Math-Shepherd-7B", (47.9, 29.5, 24.8, 23.8, 31.5), "445K"),
    Row("RLHFlow-Mistral-8B", (50.4, 33.4, 13.8, 15.8, 28.4), "273K"),
    Row("RLHFlow-DeepSeek-8B", (38.8, 33.8, 16.9, 16.9, 26.6), "253K"),
    Row("Qwen2.5-Math-PRM-7B", (82.4, 77.6, 67.5, 66.3, 73.5), "~1.5M"),
    Row("Llemma-PRM800K-7B", (48.4, 43.1, 28.5, 33.4, 38.4), "~350K"),
    Row("ReasonEval-7B", (41.0, 48.9, 36.7, 37.4, 41.0), "~350K"),
    Row("Qwen2.5-Math-7B-PRM800K", (68.2, 62.6, 50.7, 44.3, 58.5), "264K"),
    Row("PathFinder-PRM-7B-PRM800K", (74.1, 71.3, 58.7, 56.6, 65.2), "~350K"),
    Row("PathFinder-PRM-7B-PRM800K w/o Separate Subtask Prediction", (71.4, 71.1, 59.2, 58.0, 64.9)),
    Row("Math-PSA-7B", (62.4, 41.9, 31.5, 25.2, 40.3), "~860K"),
    Row("Skywork-PRM-7B", (70.8, 53.6, 22.9, 21.0, 42.1), "unk"),
    Row("PathFinder-PRM-7B", (77.9, 75.3, 65.0, 59.7, 69.5), "~400K"),
    Row("PathFinder-PRM-7B w/o Separate Error Categories", (76.1, 73.8, 61.4, 56.6, 67.0)),
    Row("PathFinder-PRM-7B w/o Separate Subtask Prediction", (73.9, 72.6, 63.9, 59.9, 67.6)),
)
_PRMBENCH = (
    Row("Qwen-2.5-Math-72B", (55.3, 54.9, 55.1, 55.5, 71.6, 58.1, 59.1, 61.1, 47.4, 53.8, 100.0, 67.1, 57.4)),
    Row("QwQ-Preview-32B", (57.2, 55.6, 56.4, 67.4, 72.3, 66.2, 66.9, 68.2, 57.8, 62.7, 100.0, 73.5, 63.6)),
    Row("GPT-4o", (57.0, 62.4, 59.7, 72.0, 69.7, 70.7, 71.1, 70.9, 62.5, 65.7, 99.2, 75.8, 66.8)),
    Row("Gemini-2.0-flash-exp", (67.2, 58.1, 62.7, 70.4, 65.7, 66.0, 67.3, 67.3, 61.8, 66.2, 98.2, 75.4, 66.0)),
    Row("Gemini-2.0-thinking-exp-1219", (68.5, 63.8, 66.2, 72.9, 71.3, 71.0, 71.8, 71.8, 60.3, 65.7, 99.8, 75.3, 68.8)),
    Row("Math-Shepherd-7B", (44.0, 50.3, 47.1, 49.4, 44.5, 41.3, 47.7, 45.7, 47.2, 48.6, 86.1, 60.7, 47.0)),
    Row("Math-PSA-7B", (47.6, 55.1, 51.3, 56.5, 49.4, 47.1, 54.2, 51.8, 51.7, 54.1, 88.9, 64.9, 52.3)),
    Row("RLHFlow-Mistral-8B", (46.1, 47.3, 46.7, 56.6, 55.1, 54.4, 63.8, 57.5, 51.5, 56.2, 97.9, 68.5, 54.4)),
    Row("RLHFlow-DeepSeek-8B", (46.4, 48.9, 47.6, 55.7, 55.0, 53.2, 66.2, 57.5, 49.0, 55.4, 99.8, 68.1, 54.2)),
    Row("Lemma-PRM800k-7B", (49.3, 53.4, 51.4, 56.4, 47.1, 46.7, 53.3, 50.9, 51.0, 53.5, 93.6, 66.0, 52.0)),
    Row("Skywork-PRM-7B", (35.7, 41.2, 38.4, 36.7, 29.1, 30.6, 34.4, 32.7, 36.8, 37.4, 88.8, 54.3, 36.2)),
    Row("ReasonEval-7B", (61.0, 50.1, 55.5, 62.1, 65.9, 61.5, 66.0, 63.9, 55.6, 58.0, 99.5, 71.0, 60.0)),
    Row("Qwen2.5-Math-7B-PRM800K", (48.6, 47.8, 48.2, 62.1, 59.4, 58.7, 68.5, 62.2, 52.9, 64.0, 99.8, 72.2, 58.3)),
    Row("Qwen2.5-Math-PRM-7B", (49.0, 55.1, 52.1, 71.8, 67.3, 66.3, 78.5, 71.0, 57.6, 69.1, 99.7, 75.5, 65.5)),
    Row("PathFinder-PRM-7B-PRM800K", (51.5, 61.3, 56.4, 69.7, 67.6, 65.9, 71.9, 68.8, 58.7, 66.6, 99.4, 74.9, 65.0)),
    Row(
        "PathFinder-PRM-7B-PRM800K w/o Separate Subtask Prediction",
        (58.9, 66.7, 62.8, 68.6, 62.4, 62.4, 66.7, 65.0, 60.2, 64.9, 97.8, 74.3, 64.4),
    ),
    Row("PathFinder-PRM-7B", (52.1, 65.8, 58.9, 73.1, 68.7, 66.3, 75.0, 70.8, 61.7, 69.8, 99.2, 76.9, 67.7)),
    Row(
        "PathFinder-PRM-7B w/o Separate Error Categories",
        (51.7, 62.0, 56.9, 73.2, 70.0, 66.9, 75.8, 71.5, 60.3, 69.2, 99.6, 76.4, 67.3),
    ),
    Row(
        "PathFinder-PRM-7B w/o Separate Subtask Prediction",
        (57.9, 66.4, 62.1, 69.1, 62.6, 62.2, 68.7, 65.7, 61.0, 65.4, 98.2, 74.9, 64.9),
    ),
)
_SEARCH = (
    Row("pass@1", (11.2, 47.8, 73.0, 38.0, 38.6, 37.2, 41.0)),
    Row("major@8", (20.0, 57.5, 79.6, 47.0, 41.5, 42.7, 48.0)),
    Row("pass@8", (33.3, 82.5, 88.8, 58.5, 47.5, 57.7, 61.4)),
    Row("Math-Shepherd-7B", (13.3, 52.5, 74.6, 38.5, 36.5, 41.2, 42.8)),
    Row("Math-PSA-7B", (6.7, 57.5, 79.8, 42.5, 41.0, 39.3, 44.5)),
    Row("RLHFlow-PRM-Mistral-8B", (10.0, 57.5, 73.4, 37.5, 38.0, 41.2, 42.9)),
    Row("RLHFlow-PRM-DeepSeek-8B", (13.3, 52.5, 74.8, 39.5, 37.0, 40.8, 43.0)),
    Row("Lemma-PRM800k-7B", (13.3, 57.5, 73.8, 40.0, 36.5, 38.2, 43.2)),
    Row("Skywork-PRM-7B", (10.0, 57.5, 77.8, 41.5, 39.0, 43.4, 44.9)),
    Row("ReasonEval-7B", (3.3, 55.0, 73.0, 37.5, 35.5, 37.9, 40.4)),
    Row("Qwen2.5-Math-7B-PRM800K", (23.3, 45.0, 78.2, 42.0, 35.5, 38.6, 43.8)),
    Row("Qwen2.5-Math-PRM-7B", (16.7, 60.0, 81.0, 43.5, 39.0, 40.4, 46.8)),
    Row("PathFinder-PRM-7B-PRM800K", (20.0, 55.0, 79.0, 36.0, 55.0, 36.4, 46.9)),
    Row("PathFinder-PRM-7B-PRM800K w/o Separate Subtask Prediction", (6.6, 55.0, 82.2, 36.0, 53.5, 36.0, 45.0)),
    Row("PathFinder-PRM-7B", (20.0, 62.5, 78.8, 36.5, 55.0, 36.7, 48.3)),
    Row("PathFinder-PRM-7B w/o Separate Error Categories", (13.3, 52.5, 80.4, 35.5, 53.5, 37.5, 45.4)),
    Row("PathFinder-PRM-7B w/o Separate Subtask Prediction", (10.0, 55.0, 81.6, 37.0, 53.5, 36.0, 45.5)),
)

_SUBSETS = ("gsm8k", "math", "olympiadbench", "omnimath", "mean_f1")
_SUBSET_HEADINGS = ("GSM8K", "MATH", "OlympiadBench", "OmniMath", "Avg. F1")
PROCESSBENCH = PaperTable(
    "tab:process_bench_main", "Performance (F1) on ProcessBench", _SUBSETS, _SUBSET_HEADINGS, _PROCESSBENCH
)
PROCESSBENCH_FULL = PaperTable(
    "tab:process_bench_full",
    "Performance (F1) on ProcessBench, with LLM judges",
    _SUBSETS,
    _SUBSET_HEADINGS,
    _JUDGES + _PROCESSBENCH,
)
PRMBENCH = PaperTable(
    "tab:prmbench_main",
    "Performance on PRMBench",
    (
        "redundency",
        "circular",
        "simplicity",
        "counterfactual",
        "step_contradiction",
        "domain_inconsistency",
        "confidence",
        "soundness",
        "missing_condition",
        "deception",
        "multi_solutions",
        "sensitivity",
        "overall",
    ),
    ("NR", "NCL", "Simpl.", "ES", "SC", "DC", "CI", "Sound.", "PS", "DR", "MS", "Sens.", "Overall"),
    _PRMBENCH,
)
SEARCH = PaperTable(
    "tab:greedy-guide-main",
    "PRM-guided greedy search (prm@8), policy Qwen2.5-7B-Instruct",
    ("aime24", "amc23", "math", "olympiadbench", "college_math", "minerva_math", "average"),
    ("AIME24", "AMC23", "MATH", "OlympiadBench", "College MATH", "Minerva MATH", "Avg."),
    _SEARCH,
)
SCALE_LABEL = "tab:data_scale_results"
SCALE = (
    ScaleRow("PathFinder-PRM-7B-PRM800K", "350K", "0", (65.2, 65.0, 46.9)),
    ScaleRow("PathFinder-PRM-7B", "400K", "50K", (69.5, 67.7, 48.3)),
    ScaleRow("PathFinder-PRM-7B", "550K", "200K", (68.75, 67.4, 47.5)),
)
