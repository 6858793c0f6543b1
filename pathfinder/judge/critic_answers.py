"""Read an LLM judge's answer: the first incorrect paragraph (ProcessBench), or two scores per step (PRMBench).

Preset ``official`` reads like the published scripts. ``repaired`` accepts only complete answers: an integer that names
an existing paragraph or none, or a finite score in [-1, 1] for every step. An answer that reached the token limit or
whose thinking section is unfinished counts as no answer.

Sources: QwenLM/ProcessBench ``code/run_eval.py``; ssmisya/PRMBench ``mr_eval/utils/model_utils.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathfinder.benchmarks.grading import boxes, majority
from pathfinder.benchmarks.processbench import NO_ERROR
from pathfinder.core.params import Preset

_BOX = "\\boxed{"
_NUMBER = re.compile(r"-?[0-9]{1,6}")
_MARKUP = re.compile(r"\\text(?:bf|rm|it)?|\\math(?:bf|rm)|</?paragraph_|paragraph_?|index|[{}<>$]", re.IGNORECASE)
_BRACE = re.compile(r"[{}]")
_OBJECT = re.compile(r'\{\s*"(?:validity|redundancy)"\s*:')
_COMMENT = re.compile(r"//.*?$|#.*?$", re.MULTILINE)
_DECODER = json.JSONDecoder()
_TRIES = 16  # the number of an answer's JSON objects to try, last first


@dataclass(frozen=True, slots=True)
class StepScores:
    """The validity and the redundancy of each step, in [-1, 1]; 0 is undecided.

    A step is valid, or redundant, if its score is above 0. Source: PRMBench's prompt.
    """

    validity: tuple[float, ...]
    redundancy: tuple[float, ...]


def official_box(text: str) -> str | None:
    r"""Return the text of the last ``\boxed{`` up to its first ``}``, the last match of ``\\boxed\{([^}]*)\}``."""
    for before_brace in reversed(text.split("}")[:-1]):
        _, box, inside = before_brace.partition(_BOX)
        if box:
            return inside.strip()
    return None


def paragraph(text: str, paragraphs: int, cut: bool) -> int | None:
    """Read the paragraph (from 0) named in the last box, -1 for no error, under the rules of ``repaired``."""
    found = boxes(_complete_answer(text, cut))
    number = _MARKUP.sub(" ", found[-1].replace("\u2212", "-")).strip() if found else ""
    return int(number) if _NUMBER.fullmatch(number) and NO_ERROR <= int(number) < paragraphs else None


def official_vote(texts: Sequence[str]) -> int | None:
    """Apply the published majority vote over the texts in the boxes; the winner is then read as a number."""
    try:
        return int(majority([official_box(text) for text in texts]) or "")
    except ValueError:
        return None


def step_scores(text: str, steps: int, cut: bool, preset: Preset) -> StepScores | None:
    """Read the scores of an answer, or ``None``.

    ``official`` reads the first brace block that is JSON after removing comments, with lists of any length.
    ``repaired`` reads the last object with both lists, which must have a score for each of ``steps``.
    """
    if preset == "official":
        return _official_scores(text)
    answer = _complete_answer(text, cut)
    for start in reversed([match.start() for match in _OBJECT.finditer(answer)][-_TRIES:]):
        found = _read(answer[start:]) or _read(_COMMENT.sub("", answer[start:]))
        if found is not None and {"validity", "redundancy"} <= set(found):
            validity, redundancy = _strict(found["validity"], steps), _strict(found["redundancy"], steps)
            return None if validity is None or redundancy is None else StepScores(validity, redundancy)
    return None


def mean_scores(answers: Sequence[StepScores]) -> StepScores | None:
    """Average each step's scores over the answers, up to the number of steps in the shortest answer."""
    if not answers:
        return None
    return StepScores(_mean([a.validity for a in answers]), _mean([a.redundancy for a in answers]))


def _mean(scores: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(step) / len(step) for step in zip(*scores, strict=False))


def _complete_answer(text: str, cut: bool) -> str:
    """The answer after its thinking section; empty if it was cut or that section is unfinished."""
    after = text.rpartition("</think>")[2]
    return "" if cut or "<think>" in after else after


def _official_scores(text: str) -> StepScores | None:
    """Like ``extract_nested_json`` and its callers; an exception means no answer."""
    depth, start = 0, 0
    for brace in _BRACE.finditer(text):
        depth += 1 if brace[0] == "{" else -1
        if depth < 0:
            return None
        if depth == 1 and brace[0] == "{":
            start = brace.start()
        if depth == 0:
            try:
                found = json.loads(_COMMENT.sub("", text[start : brace.end()]))
                lists = [list(found["validity"]), list(found["redundancy"])]
                numbers = all(isinstance(score, int | float) for scores in lists for score in scores)
                return StepScores(*(tuple(map(float, scores)) for scores in lists)) if numbers else None
            except json.JSONDecodeError:
                continue
            except (ValueError, RecursionError, KeyError, TypeError, OverflowError):
                return None
    return None


def _strict(scores: Any, steps: int) -> tuple[float, ...] | None:
    if not isinstance(scores, list) or len(scores) != steps:
        return None
    is_valid = all(isinstance(s, int | float) and not isinstance(s, bool) and -1 <= s <= 1 for s in scores)
    return tuple(map(float, scores)) if is_valid else None


def _read(text: str) -> dict[str, Any] | None:
    """The JSON object at the start of ``text``."""
    try:
        found = _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
