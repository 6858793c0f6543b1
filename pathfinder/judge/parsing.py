"""Parse the judge's answer into three binary scores or a named reason, without ever guessing.

The last block "Score A … Score B … Score C …" outside thinking sections counts, and it must be complete: after a block
that starts and breaks off, an earlier draft does not count. Formatting around the digits (bold, bullets, braces,
quotes, blank lines, a caption in brackets) is ignored. Digits other than 0 and 1, fractions and an echo of the template
are not scores. See docs/parser.md.

Source: paper appendix "Data Annotation Prompt"; ``official_scores`` uses the expression of the published
``run_inference.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pathfinder.core.labels import Scores

AnswerPreset = Literal["repaired", "official"]
"""How a judge is asked and its answers are read: with our corrections, or exactly as in the published scripts."""
Reason = Literal["no_scores", "unfinished_thinking", "incomplete", "not_binary", "contradicted"]
CUT = "cut"
"""The reason why an answer that reached the token limit has no scores."""

_THINKING = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)

# "Score A", a caption without a separator or another score, a separator, decoration, the value.
_MENTION = re.compile(
    r"""(?<![A-Za-z])score[\s_*`(\[]{0,8}(?P<letter>[ABC])(?![A-Za-z0-9])
        (?:(?!score)[^\n:=|：]){0,80}
        [:=|：]
        (?:[\s*_`'"“”{}\[\]()$\\|>#:]|boxed|text|[-•][ \t]+(?<=\n[-•][ \t]))*
        (?P<value>[01](?:\.0+)?(?!(?!score)[\w%]|[.,/]\d|\s*(?:or|to|/|–|-)\s*\d))?""",
    re.IGNORECASE | re.VERBOSE,
)
# "Score A" at the start of a line, after decoration, with or without a value: the start of a block.
_BEGINNING = re.compile(
    r"^(?:[^\w\n]|_){0,12}(?:\d{1,3}[.)](?:[^\w\n]|_){0,8})?score[\s*_`(\[]{0,8}A(?![A-Za-z0-9])",
    re.IGNORECASE | re.MULTILINE,
)
_OFFICIAL = re.compile(r"Score A:\s*(\d)\s*Score B:\s*(\d)\s*Score C:\s*([01](?:\.\d+)?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Mention:
    letter: str
    value: int | None
    end: int


def outside_thinking(text: str) -> tuple[str, bool]:
    """Return ``text`` without its thinking sections, and whether the last section is unfinished.

    A closing tag without an opening one ends a section that the prompt opened.
    """
    kept: list[str] = []
    start, thinking = 0, False
    for tag in _THINKING.finditer(text):
        if not tag.group(1):
            if not thinking:
                kept.append(text[start : tag.start()])
            thinking = True
        else:
            if not thinking:
                kept.clear()
            thinking, start = False, tag.end()
    if not thinking:
        kept.append(text[start:])
    return "\n".join(kept), thinking


def parse_scores(text: str) -> Scores | Reason:
    """Parse the scores of a judge answer, or return the reason why it has none."""
    visible, unfinished = outside_thinking(text)
    mentions = [_read(match) for match in _MENTION.finditer(visible)]
    if not mentions:
        return "unfinished_thinking" if unfinished else "no_scores"
    for at in range(len(mentions) - 3, -1, -1):
        block = mentions[at : at + 3]
        if [mention.letter for mention in block] == ["A", "B", "C"]:
            later = mentions[at + 3 :]
            broken_off = any(mention.letter == "A" for mention in later) or _BEGINNING.search(visible, block[-1].end)
            return _settle(block, later, broken_off=bool(broken_off))
    return "unfinished_thinking" if unfinished else "incomplete"


def official_scores(text: str) -> tuple[int, int, float] | None:
    """Apply the published expression: digits 0-9 for A and B, a fraction below 2 for C; thinking counts too."""
    matches = _OFFICIAL.findall(text.strip())
    if not matches:
        return None
    math, consistency, optimality = matches[-1]
    return int(math), int(consistency), float(optimality)


def read_scores(text: str, preset: AnswerPreset, cut: bool) -> tuple[Scores | None, str]:
    """Read the scores of an answer, and the reason if there are none or if they were changed.

    ``cut`` marks an answer that reached the token limit. The block it contains may be a draft or a quotation, so
    ``repaired`` does not read it. ``official`` does, and turns digits 2-9 and fractions into 0, which is what the
    published training set makes of them (``<->``).
    """
    if preset == "official":
        official = official_scores(text)
        if official is None:
            return None, "no_scores"
        is_binary = all(score in (0, 1) for score in official)
        return Scores(*(int(score == 1) for score in official)), "" if is_binary else "not_binary"
    if cut:
        return None, CUT
    scores = parse_scores(text)
    return (scores, "") if isinstance(scores, Scores) else (None, scores)


def _read(match: re.Match[str]) -> _Mention:
    value = match["value"]
    return _Mention(match["letter"].upper(), None if value is None else int(value[0]), match.end())


def _settle(block: list[_Mention], later: list[_Mention], broken_off: bool) -> Scores | Reason:
    math, consistency, optimality = (mention.value for mention in block)
    if math is None or consistency is None or optimality is None:
        return "not_binary"
    stated = {mention.letter: mention.value for mention in block}
    if any(mention.value is not None and mention.value != stated[mention.letter] for mention in later):
        return "contradicted"
    if broken_off:
        return "incomplete"
    return Scores(math, consistency, optimality)
