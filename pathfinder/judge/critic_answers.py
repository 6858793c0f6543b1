"""What an LLM judge's answer says: the first wrong paragraph (ProcessBench), two scores a step (PRMBench).

Preset ``official`` reads as the published scripts do. ``repaired`` takes an answer only where it is one: one whole
number of a paragraph that exists, or of none; one finite score in [-1, 1] a step. An answer that the token limit cut,
or that thinks aloud without an end, says nothing.

Sources: QwenLM/ProcessBench ``code/run_eval.py``; ssmisya/PRMBench ``mr_eval/utils/model_utils.py``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pathfinder.benchmarks.grading import Preset, boxes

NO_ERROR = -1
_BOX = "\\boxed{"
_NUMBER = re.compile(r"-?[0-9]{1,6}")
_DRESS = re.compile(r"\\text(?:bf|rm|it)?|\\math(?:bf|rm)|</?paragraph_|paragraph_?|index|[{}<>$]", re.IGNORECASE)
_OBJECT = re.compile(r'\{\s*"(?:validity|redundancy)"\s*:')
_COMMENT = re.compile(r"//.*?$|#.*?$", re.MULTILINE)
_DECODER = json.JSONDecoder()
_TRIES = 16  # objects of one answer that are looked at, from the last


@dataclass(frozen=True, slots=True)
class StepScores:
    """What the judge thinks of each step: how valid and how redundant, in [-1, 1]; 0 is undecided.

    Source: PRMBench's prompt. A step is valid, or redundant, where its score is above 0.
    """

    validity: tuple[float, ...]
    redundancy: tuple[float, ...]


def official_box(text: str) -> str | None:
    r"""What stands in the last ``\boxed{`` up to its first ``}``: the last of ``findall(r"\\boxed\{([^}]*)\}")``."""
    last = None
    start = text.find(_BOX)
    while start >= 0 and (end := text.find("}", start)) >= 0:
        last = text[start + len(_BOX) : end].strip()
        start = text.find(_BOX, end)
    return last


def paragraph(text: str, paragraphs: int, cut: bool) -> int | None:
    """Repaired: the paragraph (from 0) that the last box names, -1 for none of them; ``None`` for anything else."""
    said = spoken(text)
    if cut or said is None:
        return None
    found = boxes(said)
    if not found:
        return None
    number = _DRESS.sub(" ", found[-1].replace("\u2212", "-")).strip()
    if not _NUMBER.fullmatch(number):
        return None
    return int(number) if NO_ERROR <= int(number) < paragraphs else None


def official_vote(texts: Sequence[str]) -> int | None:
    """The published majority: over what the boxes hold as text, the earliest of equals, then read as a number."""
    said = [box for text in texts if (box := official_box(text)) is not None]
    if not said:
        return None
    try:
        return int(Counter(said).most_common(1)[0][0])
    except ValueError:
        return None


def vote(votes: Sequence[int | None]) -> int | None:
    """The paragraph named most often, the earliest vote of equals; ``None`` where nobody voted."""
    counted = Counter(vote for vote in votes if vote is not None)
    return counted.most_common(1)[0][0] if counted else None


def step_scores(text: str, steps: int, cut: bool, preset: Preset) -> StepScores | None:
    """The scores of an answer; ``None`` where it has none.

    ``official``: from the first brace block that is JSON (comments taken off), of any length. ``repaired``: from the
    last one with both lists that has a score for each of ``steps``.
    """
    if preset == "official":
        return _official_scores(text)
    said = spoken(text)
    if cut or said is None:
        return None
    for start in reversed([match.start() for match in _OBJECT.finditer(said)][-_TRIES:]):
        found = _read(said[start:]) or _read(_COMMENT.sub("", said[start:]))
        if found is not None and {"validity", "redundancy"} <= set(found):
            validity, redundancy = _strict(found["validity"], steps), _strict(found["redundancy"], steps)
            return None if validity is None or redundancy is None else StepScores(validity, redundancy)
    return None


def mean_scores(answers: Sequence[StepScores]) -> StepScores | None:
    """Of several answers the mean score of each step (of as many as all have); of one answer, itself."""
    if not answers:
        return None
    steps = min(len(answer.validity) for answer in answers), min(len(answer.redundancy) for answer in answers)
    return StepScores(
        tuple(sum(a.validity[at] for a in answers) / len(answers) for at in range(steps[0])),
        tuple(sum(a.redundancy[at] for a in answers) / len(answers) for at in range(steps[1])),
    )


def spoken(text: str) -> str | None:
    """The answer without the thinking before it; ``None`` where the thinking has no end."""
    after = text.rpartition("</think>")[2]
    return None if "<think>" in after else after


def _official_scores(text: str) -> StepScores | None:
    """As ``extract_nested_json`` and its callers, where whatever raises is no answer."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        if character == "{":
            start = at if not depth else start
            depth += 1
        elif character == "}":
            if not depth:
                return None
            depth -= 1
            if not depth:
                try:
                    return _loose(json.loads(_COMMENT.sub("", text[start : at + 1])))
                except json.JSONDecodeError:
                    continue
                except (ValueError, RecursionError):
                    return None
    return None


def _loose(found: dict[str, Any]) -> StepScores | None:
    try:
        validity, redundancy = list(found["validity"]), list(found["redundancy"])
        numbers = all(isinstance(score, int | float) for score in (*validity, *redundancy))
        return StepScores(tuple(map(float, validity)), tuple(map(float, redundancy))) if numbers else None
    except (KeyError, TypeError, OverflowError):
        return None


def _strict(scores: Any, steps: int) -> tuple[float, ...] | None:
    if not isinstance(scores, list) or len(scores) != steps:
        return None
    fine = all(isinstance(s, int | float) and not isinstance(s, bool) and -1 <= s <= 1 for s in scores)
    return tuple(map(float, scores)) if fine else None


def _read(text: str) -> dict[str, Any] | None:
    """The object that ``text`` begins with."""
    try:
        found = _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
