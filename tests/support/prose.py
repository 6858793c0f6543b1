"""Marked constructs: turns of phrase that a native technical writer would not use, counted per 1,000 words.

Run     python -m tests.support.prose [PATH …]   list them with their rate; default: the code, README and docs/
        python -m tests.support.prose --count    only the rate of each kind, in the code and in the pages

Prose means Markdown outside code blocks, and the comments, docstrings and messages of Python and YAML files. The list
grew from this project's own text. It catches habits, not every clumsy sentence.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_UNIT = "core|step|label|line|row|record|problem|epoch|token|item|file|stage|run|page|solution|server|prompt|call|bit"
_COUNT = r"one|two|three|\d+|rows?|lines?|trees?|files?|calls?|loss|tokens|seconds|bytes|entry|passes"
_MARKS = {
    "stand / lie": r"\b(stands?|stood|standing|lies|lie|lay)\b(?! (for|in for)\b)(?!-ins?\b)",
    "go on": r"\b(go|goes|went|gone|going) on\b",
    "beside": r"\bbeside\b",
    "mend": r"\bmend(s|ed|ing)?\b",
    "somebody": r"\b(somebody|anybody|other people's)\b",
    "where there is none": r"\bwhere (there )?(is|are|was|were) (none|no such|any)\b|\bwhere it has none\b",
    "alone": r"(?<![-\w])alone\b",
    "a for per": rf"\b({_COUNT}) an? ({_UNIT})\b",
    "come to / of": r"\b(comes?|came) (to|of|out|from it|as|with it)\b|\bwhat (became|becomes) of\b",
    "is there": r"\b(is|are|was|were|be) (not )?there\b(?! (is|are|was|were|a|an|any|no)\b)",
    "pass over": r"\bpass(es|ed)? over\b(?! (a tree|an example|some trees))",
    "told / said": r"\b(is|are|was|were) (told|said)\b|\bsays so\b|\btells the whole\b|\bsay(s|ing)? so\b",
    "headless clause": (
        r"(?:^|[.;:] )(What|Whatever|Whoever) (?!is |are |does |do |if |to )"
        r"[a-z][^?.]*\b(is|are|was|has|have|makes?|stays?|needs?)\b[^?]*$"
    ),
    "of first": r"(?:^|[.;:] )Of (its|the|these|those|which|each|all|both) ",
    "lacks, alone": r"\black(s|ed)?[,.;:)]",
    "but for": r"\b(but for|all but|nothing but)\b",
    "archaism": r"\b(nought|thereof|therein|wherein|whence|hither|likewise|thereby|betimes|meanwhile)\b",
    "borne / held against": r"\b(borne out|(held|holds?|hold) against)\b",
    "begun clause": r"\bthat (is|are) to be\b|\bis as (it|they) (is|are)\b",
    "that of": r"\b(those|that) of\b",
    "other for different": (
        r"\b(another form|other bytes)\b"
        r"|(?<!the )(?<!all )(?<!any )(?<!its )(?<!whose )\bother (keys?|texts?|values?)\b"
    ),
    "shall": r"\bshall\b",
}
_HEADLESS = re.compile(r"(What|Whether|Of) [^?]*$")
"""The beginning of a docstring without a verb or a subject."""
MARKS = {name: re.compile(pattern, re.IGNORECASE if name != "of first" else 0) for name, pattern in _MARKS.items()}
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")
_CODE = re.compile(r"``[^`]*``|`[^`]*`|https?://\S+")
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"' r"|'''(?:\\.|[^\\])*?'''|'(?:\\.|[^'\\\n])*'|(#[^\n]*)", re.DOTALL
)
"""A string, as Python 3.11 finds its end, or a comment, which is the group. Tokenizing takes much longer."""


class Text(NamedTuple):
    """A line of prose, its code spans removed, and where it is."""

    file: str
    line: int
    text: str
    opens_docstring: bool = False


class Mark(NamedTuple):
    """A marked construct, and where it is."""

    file: str
    line: int
    kind: str
    text: str


def prose_of(path: Path) -> Iterator[Text]:
    """The lines of prose in a file."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    source = path.read_text(encoding="utf-8")
    found = {".py": _python, ".md": _markdown}.get(path.suffix, _comments)(source)
    for line, text, opens_docstring in found:
        if clean := _CODE.sub(" ", text).strip():
            yield Text(name, line, clean, opens_docstring)


def marks_in(texts: Iterable[Text]) -> Iterator[Mark]:
    """Every marked construct."""
    for text in texts:
        for kind, pattern in MARKS.items():
            for _ in pattern.finditer(text.text):
                yield Mark(text.file, text.line, kind, text.text)
        if text.opens_docstring and _HEADLESS.match(text.text):
            yield Mark(text.file, text.line, "headless docstring", text.text)


def words_in(texts: Iterable[Text]) -> int:
    """How many words."""
    return sum(len(_WORD.findall(text.text)) for text in texts)


def sources() -> list[Path]:
    """The Python and pipeline files of the product."""
    folders = ("ground", "pathfinder", "stages", "evidence", "extras", "flows", "infra", "world")
    code = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*code, ROOT / "dvc.yaml", *(ROOT / "infra").glob("*/dvc.yaml"), ROOT / "Makefile"]


def pages() -> list[Path]:
    """The README and the documentation, without its notes."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _python(source: str) -> Iterator[tuple[int, str, bool]]:
    number, end = 1, 0
    for found in _STRING_OR_COMMENT.finditer(source):
        number, end = number + source.count("\n", end, found.start()), found.start()
        if comment := found[1]:
            yield number, comment.lstrip("# "), False
    docstrings = set()
    for node in ast.walk(ast.parse(source)):  # a parent before its children
        if isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line, offset == 0 and id(node) in docstrings


def _markdown(source: str) -> Iterator[tuple[int, str, bool]]:
    fenced = False
    for number, line in enumerate(source.splitlines(), start=1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line, False


def _comments(source: str) -> Iterator[tuple[int, str, bool]]:
    for number, line in enumerate(source.splitlines(), start=1):
        if (found := re.search(r"(?:#|\bdesc:)\s?(.*)", line)) is not None:
            yield number, found[1], False


def checks() -> list[Path]:
    """The tests and campaigns, without the two files that list the marks."""
    return [path for path in sorted((ROOT / "tests").rglob("*.py")) if "prose" not in path.name]


def _count(title: str, texts: list[Text]) -> None:
    words, kinds = words_in(texts), Counter(mark.kind for mark in marks_in(texts))
    print(f"{title}: {words:,} words, {kinds.total()} marks, {1000 * kinds.total() / words:.2f} per 1,000")
    for kind, number in kinds.most_common():
        print(f"  {kind:22} {number:4} {1000 * number / words:6.2f}")


def main() -> None:
    """List the marks and the rate, or count the kinds."""
    if sys.argv[1:] == ["--count"]:
        for title, paths in (("code", sources()), ("tests", checks()), ("pages", pages())):
            _count(title, [text for path in paths for text in prose_of(path)])
        return
    named = [Path(word).resolve() for word in sys.argv[1:]]
    paths = [file for path in named for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    texts = [text for path in paths or [*sources(), *pages()] for text in prose_of(path)]
    marks = list(marks_in(texts))
    for mark in marks:
        print(f"{mark.file}:{mark.line}: {mark.kind}: {mark.text[:110]}")
    words = words_in(texts)
    print(f"{len(marks)} marks in {words:,} words, {1000 * len(marks) / max(words, 1):.2f} per 1,000")


if __name__ == "__main__":
    main()
