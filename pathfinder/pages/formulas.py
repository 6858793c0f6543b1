"""Formulas of untrusted texts as MathML, which browsers draw without a script.

Two things are converted. The first is what is delimited as mathematics: ``$…$``, ``$$…$$``, ``\\(…\\)``,
``\\[…\\]`` and the environments of aligned rows. As in Pandoc, a dollar opens a formula only before a character that is
no space. It closes one only after such a character, and not before a digit, so prices stay prices. The second is a
known command outside delimiters with its arguments and exponents, because solutions often end with a bare
``\\boxed{…}``. Whatever is between ``\\left`` and ``\\right`` is one formula, also if it contains such commands.

The converter's own text is not safe: it does not escape its input, and it takes addresses and styles from it. This
module writes the converter's elements itself: known names and attributes, every text escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from markupsafe import Markup

LONGEST, MOST_BYTES, BUDGET = 300, 6_000, 60_000
"""Characters of a formula, and bytes of MathML for one formula and for a page. Beyond them the text is shown."""
_DEEPEST = 24
_GROUP = r"\{[^{}$\n]*+\}"  # possessive: the search never returns to an earlier brace, so it takes linear time
for _ in range(3):  # braces nested four deep
    _GROUP = rf"\{{(?:[^{{}}$\n]++|{_GROUP})*+\}}"
_BRACKET = r" ?(?:[()\[\]|./]|\\(?:[{}|]|[lr](?:floor|ceil|angle|vert)(?![A-Za-z])))"
_CONTENT = r"[^\\$\n]|\\(?!(?:left|right)(?![A-Za-z]))[^$\n]"
_FENCED = rf"\\left{_BRACKET}(?:{_CONTENT})*+\\right{_BRACKET}"
for _ in range(2):  # brackets nested three deep
    _FENCED = rf"\\left{_BRACKET}(?:{_CONTENT}|{_FENCED})*+\\right{_BRACKET}"
_SYMBOLS = (
    "times|cdot|div|pm|leq?|geq?|neq?|approx|equiv|infty|pi|theta|alpha|beta|gamma|lambda|ldots|cdots|dots|therefore"
    "|implies|Rightarrow|rightarrow|to"
)
_ROWS = r"(?:align(?:ed)?|gather(?:ed)?|eqnarray|equation|split)\*?"
_FORMULA = re.compile(
    r"\$\$(?P<display>[^$]+)\$\$|\$(?=\S)(?P<inline>[^$\n]*?[^\s$\\])\$(?!\d)"
    r"|(?<!\\)\\\((?P<round>(?:[^\\]|\\[^()])+)\\\)|(?<!\\)\\\[(?P<square>(?:[^\\]|\\[^\[\]])+)\\\]"
    rf"|(?<!\\)(?P<rows>\\begin\{{(?P<name>{_ROWS})\}}(?:[^\\]|\\(?!begin|end))*+\\end\{{(?P=name)\}})"
    rf"|(?<!\\)(?P<bare>\\(?:(?:boxed|fbox|sqrt(?:\[\d\])?|overline){_GROUP}|(?:[dt]?frac|binom){_GROUP}{_GROUP}"
    rf"|(?:{_SYMBOLS})(?![A-Za-z]))(?:[_^](?:{_GROUP}|\w))*+)"
    rf"|(?<!\\)(?P<fenced>{_FENCED}(?:[_^](?:{_GROUP}|\w))*+)"
)
"""No delimiter occurs twice before the other one, so the search takes linear time."""
_ENVIRONMENT = re.compile(rf"\\(begin|end)\{{{_ROWS}\}}")
_ELEMENTS = re.compile(
    "math|mrow|mi|mo|mn|mtext|mspace|mfrac|msqrt|mroot|msub|msup|msubsup|munder|mover|munderover|mtable|mtr|mtd|mstyle"
    "|mpadded|menclose"
)
_ATTRIBUTES = {
    "accent": "true|false",
    "columnalign": "[a-z ]{1,60}",
    "display": "block",
    "displaystyle": "true|false",
    "fence": "true|false",
    "form": "[a-z]{1,10}",
    "largeop": "true|false",
    "linebreak": "newline",
    "linethickness": "0(?:px|em)?",
    "mathvariant": "[a-z-]{1,30}",
    "movablelimits": "true|false",
    "notation": "[a-z ]{1,40}",
    "scriptlevel": "[0-2]",
    "separator": "true|false",
    "stretchy": "true|false",
    "width": r"[0-2](?:\.\d{1,4})?em",
}


@dataclass(slots=True)
class Formulas:
    """Converts the formulas of one page, as long as the page has room for them; ``escape`` makes a text safe."""

    escape: Callable[[str], str]
    left: int = BUDGET  # bytes of MathML; a formula that cannot be converted counts with its length

    def __call__(self, text: str) -> Markup:
        """The text as HTML, with its formulas as MathML; a formula that cannot be converted stays as it is written."""
        return Markup("".join(self._parts(text)))  # noqa: S704 - every part is escaped or was written by ``_written``

    def _parts(self, text: str) -> Iterator[str]:
        end = 0
        for found in _FORMULA.finditer(text):
            made = self._made(found)
            self.left -= len(made or found[0][:LONGEST])
            if made is None:
                continue
            yield self.escape(text[end : found.start()])
            yield made
            end = found.end()
        yield self.escape(text[end:])

    def _made(self, found: re.Match[str]) -> str | None:
        """The MathML of a formula; ``None`` if it is too long, the page is full, or the converter refuses it."""
        from latex2mathml.converter import convert_to_element

        formula = next(part for part in found.groups() if part is not None)
        if len(formula) > LONGEST or self.left <= 0:
            return None
        formula = _ENVIRONMENT.sub(r"\\\1{align*}", formula)  # the one that the converter knows without numbers of rows
        display = "block" if found.lastgroup in ("display", "square", "rows") else "inline"
        try:
            made = self._written(convert_to_element(formula, display=display))
        except Exception:  # the converter has no common class of errors, and untrusted text can cause any of them
            return None
        return made if len(made) <= min(MOST_BYTES, self.left) else None

    def _written(self, element: Element, depth: int = 0) -> str:
        """An element as text. Raises ``ValueError`` for an element that is not known, or that is nested too deeply."""
        if not _ELEMENTS.fullmatch(element.tag) or depth > _DEEPEST:
            raise ValueError(element.tag)
        given = ((name, str(value)) for name, value in element.attrib.items() if name in _ATTRIBUTES)
        kept = "".join(f' {name}="{value}"' for name, value in given if re.fullmatch(_ATTRIBUTES[name], value))
        inner = "".join(self._written(child, depth + 1) for child in element)
        if element.tag == "mrow" and len(element) == 1 and not element.text:
            return inner  # a row of one element draws the same
        text = self.escape(html.unescape(element.text or ""))
        return f"<{element.tag}{kept}>{text}{inner}</{element.tag}>"
