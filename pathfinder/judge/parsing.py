"""Parse the judge's answer into three binary scores or a named reason, without ever guessing.

Source: paper appendix "Data Annotation Prompt"; the preset "official" uses the expression of the published
``run_inference.py``. The rules are in docs/judge.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pathfinder.core.labels import ERROR_TYPES, Scores
from pathfinder.core.params import Preset

Reason = Literal["no_scores", "unfinished_thinking", "incomplete", "not_binary", "contradicted"]
CUT = "cut"
"""The reason why an answer that reached the token limit has no scores."""

_LETTERS = "".join(kind.letter for kind in ERROR_TYPES)
_ANY = f"(?P<letter>[{_LETTERS}])"

_THINKING = re.compile(r"<(/?)(?:think(?:ing)?|thought|reasoning|reflection|scratchpad)>", re.IGNORECASE)

# "Score A", a caption without a separator or a further score, a separator, decoration, the value.
_MENTION = re.compile(
    r"(?<![A-Za-z])score[\s_*`(\[]{0,8}"
    + _ANY
    + r"""(?![A-Za-z0-9])
        (?:(?!score)[^\n:=|：]){0,80}
        [:=|：]
        (?:[\s*_`'"“”{}\[\]()$\\|>#:]|boxed|text|[-•][ \t]+(?<=\n[-•][ \t]))*
        (?P<value>[01](?:\.0+)?(?!(?!score)[\w%]|[.,/]\d|\s*(?:or(?:\s+(?:maybe|perhaps|possibly))?|vs\.?|to|/|–|-)\s*\d
            |[ \t]*(?:%|(?:[+×÷=→⇒]|[-=]>)[ \t]*\d|(?:out\s+)?of\s*(?!1\b)\d)
            |[ \t*_`~]+\d|[ \t*_`~]*(?:\||\[[ xX✓✔]?\])[ \t*_`~]*\d))?""",
    re.IGNORECASE | re.VERBOSE,
)
# After a digit that has a separate line: a numbered list, not a value.
_NUMBERED = re.compile(r"[.)][ \t]+(?!score)\w", re.IGNORECASE)
# A score that a sentence after the block states: "Score B should be 0".
_STATED = re.compile(
    r"score[\s_*`(\[]{0,8}" + _ANY + r"(?![A-Za-z0-9])(?:(?!score)[^\n\d.:=|：]){1,40}(?<!\w)(?P<value>[01])"
    r"(?![\w%]|[.,/]\d)",
    re.IGNORECASE,
)
# A different value in the line of a score: "1, no wait, 0".
_CORRECTED = re.compile(
    r"\b(?:wait|actually|rather|correction|instead|sorry|so|thus|hence|therefore|finally|revised|changed?)\b"
    r"[^\n\d]{0,60}(?<!\w)(?P<value>[01])(?![\w%]|[.,/]\d)",
    re.IGNORECASE,
)
# A line of second thoughts after the block, and the values in it: "Revised scores: A=0, B=0, C=0".
_SECOND_THOUGHT = re.compile(
    r"\b(?:scores?|correct(?:ions?|ed)|revis\w+|reflection|actually|wait|final(?:ly)?)\b", re.IGNORECASE
)
_LETTER = re.compile(
    r"(?<![A-Za-z])" + _ANY + r"[\s*_`]{0,4}(?:[:=]|(?:should|must) be|is|to)[\s*_`]{0,4}(?P<value>[01])"
    r"(?![\w%]|[.,/]\d)"
)
# Three values without letters: "Revised scores: 0, 1, 1".
_TRIPLE = re.compile(
    r"(?<![\w.,/])" + r"[\s,;/|]{1,4}(?:and\s)?".join(["([01])"] * len(_LETTERS)) + r"(?![\w%]|[\s,;/|]{0,4}\d|\.\d)"
)
# A line of a block quotation; a sentence that opens a quotation just before a score.
_BLOCK_QUOTATION = re.compile(r"\s*>")
_CITATION = re.compile(r"\w[^\w\n]*[\"'„«‘][\s>*_`]*$")
_NEAR = 200
"""Characters before a score in which a sentence can open its quotation; whole lines would take quadratic time."""
_KEY_QUOTES = ('"', "'")
_QUOTES = frozenset("\"'“”„«»‘’><")
# "Score A" at the start of a line, after decoration, with or without a value: the start of a block.
_BEGINNING = re.compile(
    r"^(?:[^\w\n]|_){0,12}(?:\d{1,3}[.)](?:[^\w\n]|_){0,8})?score[\s*_`(\[]{0,8}" + _LETTERS[0] + r"(?![A-Za-z0-9])",
    re.IGNORECASE | re.MULTILINE,
)
_OFFICIAL = re.compile(r"\s*".join(rf"Score {kind.letter}:\s*({kind.official})" for kind in ERROR_TYPES), re.DOTALL)


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
    """Parse the scores of a judge answer, or return the reason why there are none.

    The last block "Score A … Score B … Score C …" outside thinking sections counts. If a later block starts and breaks
    off, no block counts. A quoted block after an unquoted block with different scores contradicts it.
    """
    visible, unfinished = outside_thinking(text)
    mentions = list(_MENTION.finditer(visible))
    letters = [mention["letter"].upper() for mention in mentions]
    values = [_value(visible, mention) for mention in mentions]
    at = "".join(letters).rfind(_LETTERS)
    if at < 0:
        return "unfinished_thinking" if unfinished else "incomplete" if mentions else "no_scores"
    end = at + len(_LETTERS)
    block, later = values[at:end], list(zip(letters[end:], values[end:], strict=True))
    if "" in block:
        return "not_binary"
    stated = dict(zip(_LETTERS, block, strict=True))
    if any(value not in ("", stated[letter]) for letter, value in later):
        return "contradicted"
    if _LETTERS[0] in letters[end:] or _BEGINNING.search(visible, mentions[end - 1].end()):
        return "incomplete"
    if _is_corrected(visible, mentions[at:end], stated):
        return "contradicted"
    if _is_quoted(visible, mentions[at].start()):
        earlier = _own_blocks(visible, mentions[:at], letters, values)
        if any("" not in own != block for own in earlier):
            return "contradicted"
    if _is_cited(visible, mentions[at]) and block not in _own_blocks(visible, mentions[:at], letters, values):
        return "no_scores"  # the judge's own scores may have an unknown form
    return Scores(*map(int, block))


def _value(visible: str, mention: re.Match[str]) -> str:
    """The digit of a mention; empty if there is none, or if it numbers a list below the mention."""
    value = mention["value"] or ""
    if (
        value
        and "\n" in visible[mention.end("letter") : mention.start("value")]
        and _NUMBERED.match(visible, mention.end())
    ):
        return ""
    return value[:1]


def _is_corrected(visible: str, block: list[re.Match[str]], stated: Mapping[str, str]) -> bool:
    """True if words in the line of a score, or a sentence after the block, state a different value."""
    if any(found["value"] != stated[found["letter"].upper()] for found in _STATED.finditer(visible, block[-1].end())):
        return True
    thoughts = list(filter(_SECOND_THOUGHT.search, visible[block[-1].end() :].split("\n")))
    if any(found["value"] != stated[found["letter"]] for line in thoughts for found in _LETTER.finditer(line)):
        return True
    if any(found != (*stated.values(),) for line in thoughts for found in _TRIPLE.findall(line)):
        return True
    ends = [mention.start() for mention in block[1:]] + [len(visible)]
    for mention, end in zip(block, ends, strict=True):
        line = visible[mention.end() : end].partition("\n")[0].partition("Score")[0]
        if any(found["value"] != stated[mention["letter"].upper()] for found in _CORRECTED.finditer(line)):
            return True
    return False


def _own_blocks(visible: str, mentions: list[re.Match[str]], letters: list[str], values: list[str]) -> list[list[str]]:
    """The values of each block in ``mentions`` that is not a citation."""
    size = len(_LETTERS)
    return [
        values[start : start + size]
        for start in range(len(mentions) - size + 1)
        if letters[start : start + size] == [*_LETTERS] and not _is_cited(visible, mentions[start])
    ]


def _is_cited(visible: str, mention: re.Match[str]) -> bool:
    """True if a mention is in a block quotation, or in the quotation marks of a sentence. A JSON key is not."""
    start = mention.start()
    begin = visible.rfind("\n", 0, start) + 1
    if _BLOCK_QUOTATION.match(visible, begin, start):
        return True
    if found := _CITATION.search(visible, max(begin, start - _NEAR), start):
        return not (found[0].endswith(_KEY_QUOTES) and visible.startswith(_KEY_QUOTES, mention.end("letter")))
    is_open = visible.rfind("“", 0, start) > visible.rfind("”", 0, start)
    return is_open and "”" in visible[start:]


def _is_quoted(visible: str, start: int) -> bool:
    """True if the text at ``start`` is inside a sentence, a quotation or a code block."""
    before = visible[visible.rfind("\n", 0, start) + 1 : start].strip().removeprefix('{"')  # JSON
    is_inside = any(character in _QUOTES or character.isalpha() for character in before)
    return is_inside or visible.count("```", 0, start) % 2 == 1


def official_scores(text: str) -> tuple[float, ...] | None:
    """Apply the published expression: digits 0-9 for A and B, a fraction below 2 for C; thinking counts too."""
    matches = _OFFICIAL.findall(text.strip())
    return tuple(map(float, matches[-1])) if matches else None


def read_scores(text: str, preset: Preset, cut: bool) -> tuple[Scores | None, str]:
    """Read the scores of an answer, and the reason if there are none or if they were changed.

    ``cut`` marks an answer that reached the token limit. The block it contains may be a draft or a quotation, so
    ``repaired`` does not read it. ``official`` does, and turns digits 2-9 and fractions into 0, as the published
    training set does (``<->``).
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
