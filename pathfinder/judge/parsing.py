"""Parse the judge's answer into three binary scores or a named reason, without ever guessing.

Source: paper appendix "Data Annotation Prompt"; the preset "official" uses the expression of the published
``run_inference.py``. The rules are in docs/parser.md.
"""

from __future__ import annotations

import re
from typing import Literal

from pathfinder.core.labels import Scores
from pathfinder.core.params import Preset

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


def outside_thinking(text: str) -> tuple[str, bool]:
    """Return ``text`` without its thinking sections, and whether the last section is unfinished.

    A closing tag without an opening one ends a section that the prompt opened.
    """
    kept: list[str] = []
    start, thinking = 0, False
    for tag in _THINKING.finditer(text):
        closes = bool(tag[1])
        if closes and not thinking:
            kept.clear()
        elif not thinking:
            kept.append(text[start : tag.start()])
        thinking, start = not closes, tag.end()
    if not thinking:
        kept.append(text[start:])
    return "\n".join(kept), thinking


def parse_scores(text: str) -> Scores | Reason:
    """Parse the scores of a judge answer, or return the reason why it has none.

    The last block "Score A … Score B … Score C …" outside thinking sections counts. If a later block starts and breaks
    off, no block counts.
    """
    visible, unfinished = outside_thinking(text)
    mentions = list(_MENTION.finditer(visible))
    letters = [mention["letter"].upper() for mention in mentions]
    values = [(mention["value"] or "")[:1] for mention in mentions]
    at = "".join(letters).rfind("ABC")
    if at < 0:
        return "unfinished_thinking" if unfinished else "incomplete" if mentions else "no_scores"
    end = at + 3
    block, later = values[at:end], list(zip(letters[end:], values[end:], strict=True))
    if "" in block:
        return "not_binary"
    stated = dict(zip("ABC", block, strict=True))
    if any(value not in ("", stated[letter]) for letter, value in later):
        return "contradicted"
    if "A" in letters[end:] or _BEGINNING.search(visible, mentions[end - 1].end()):
        return "incomplete"
    return Scores(*map(int, block))


def official_scores(text: str) -> tuple[int, int, float] | None:
    """Apply the published expression: digits 0-9 for A and B, a fraction below 2 for C; thinking counts too."""
    matches = _OFFICIAL.findall(text.strip())
    if not matches:
        return None
    math, consistency, optimality = matches[-1]
    return int(math), int(consistency), float(optimality)


def read_scores(text: str, preset: Preset, cut: bool) -> tuple[Scores | None, str]:
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
