"""Scripted answers of the judge, the critics and the policy to the problems of ``records``: sums, one term a step.

The judge checks the sum of a step; one answer in twenty has no scores at first, and some hold scores in their thoughts.
The policy adds the next term; some of its steps are wrong, empty, endless or without a separator.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

SLOW = "Explain at length."
"""A problem with these words gets long steps that never end, so that its path outgrows the PRM's positions."""
_SUM = re.compile(r"(\d+) \+ (\d+) = (\d+)")
_PROBLEM = re.compile(r"Compute (\d+(?: \+ \d+)+)\.")
_LINE = "We look at every term once more before the next step, because a slip here would spoil the sum. "


def chat_answer(turns: Sequence[dict[str, Any]], seed: int) -> str:
    """The answer of a judge or a critic."""
    text = str(turns[-1]["content"])
    if "<paragraph_0>" in text:
        paragraphs = re.findall(r"<paragraph_(\d+)>\n(.*?)\n</paragraph_\1>", text, re.DOTALL)
        wrong = next((number for number, step in paragraphs if not _is_right(step)), "-1")
        return f"Paragraph by paragraph: checked.\n\nThe answer is \\boxed{{{wrong}}}."
    if "Solutions: Step 1:" in text:
        steps = re.split(r"Step \d+: ", text.partition("Solutions: ")[2])[1:]
        validity = [1 if _is_right(step) else -1 for step in steps]
        return json.dumps({"validity": validity, "redundancy": [-1] * len(steps)})
    step = text.rpartition("<current_step>")[2].partition("</current_step>")[0]
    draw = _draw(text, seed)
    if draw < 13:
        return "<think>\nThe step\n</think>\n\nI cannot decide this."
    is_right = _is_right(step)
    thoughts = "Score A: 0\nWait, let me check again.\n" if draw < 80 else ""
    scores = "\n".join(f"Score {name}: \n{int(is_right or name == 'C')}" for name in "ABC")
    return f"{thoughts}The sum holds: {is_right}.\n</think>\n\nReasoning:\nChecked.\n\nFinal answers:\n{scores}\n"


def completion(prompt: str, seed: int, stops: Sequence[str], include_stop: bool) -> str:
    """The policy's continuation of a solution, up to the first of ``stops``."""
    _, _, solution = prompt.rpartition("<|im_start|>assistant\n")
    problem = prompt.rpartition("<|im_start|>user\n")[2]
    found = _PROBLEM.findall(problem)
    terms = [int(term) for term in found[-1].split(" + ")] if found else [1, 1]
    done, text, number = _SUM.findall(solution), "", 0
    totals = [int(total) for _, _, total in done]
    while not (at := len(totals)) or at < len(terms):
        draw = _draw(f"{prompt}{number}", seed)
        total = totals[-1] if totals else terms[0]
        if at >= len(terms) - 1 and SLOW not in problem:
            text += f"The answer is \\boxed{{{total}}}."
            break
        term = terms[min(at + 1, len(terms) - 1)]
        result = total + term + (draw < 26)
        filler = _LINE * 24 if SLOW in problem else ""
        text += f"{filler}Add the next term: {total} + {term} = {result}.\n\n"
        totals.append(result)
        number += 1
        if number > 20:
            break
    ends = [(text.index(stop), stop) for stop in stops if stop in text]
    if not ends:
        return text
    place, stop = min(ends)
    return text[:place] + (stop if include_stop else "")


def _is_right(step: str) -> bool:
    return all(int(a) + int(b) == int(c) for a, b, c in _SUM.findall(step))


def _draw(text: str, seed: int) -> int:
    """A number from 0 to 255 that text and seed determine."""
    return hashlib.sha256(f"{seed}/{text}".encode("utf-8", "replace")).digest()[0]
