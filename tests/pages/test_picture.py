"""The picture of typed step scores as text, SVG, HTML and Markdown: the same content, and no text as markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from docs.tools.picture import as_svg
from pathfinder.core.steps import ScoredStep
from pathfinder.pages.page import Page, Section, to_html, to_markdown
from pathfinder.pages.picture import as_text, picture_of

STEPS = (
    ScoredStep("fine", {"math": 0.9, "consistency": 0.8}, 0.7),
    ScoredStep("<script>&\x1b[2J", {"math": 0.1, "consistency": 0.2}, 0.03),
    ScoredStep("doubted", {"math": 0.9, "consistency": 0.9}, 0.3),
)
PICTURE = picture_of("a\n<b>", STEPS)


def test_columns_badges_and_the_first_error_are_those_of_the_steps() -> None:
    assert PICTURE.columns == ("no math error", "consistent", "reward")
    assert [row.badges for row in PICTURE.rows] == [
        (),
        ("first error", "math error", "consistency error"),
        ("low reward",),
    ]
    single = picture_of("p", [ScoredStep("x", {"error_free": 0.4}, None)], {0: ["flagged"]})
    assert single.columns == ("no error",)
    assert single.rows[0].badges == ("flagged", "error")
    typed = picture_of("p", [ScoredStep("x", {"math": 0.9, "consistency": 0.9, "optimality": 0.4}, 0.3)])
    assert typed.columns == ("no math error", "consistent", "optimal", "reward")


def test_text_has_a_line_per_step_and_colours_only_if_asked_for() -> None:
    plain = as_text(PICTURE)
    assert "\x1b" not in plain
    lines = plain.splitlines()
    assert lines[3].split() == ["no", "math", "error", "consistent", "reward"]
    assert lines[4].split() == ["1", "fine", "0.90", "0.80", "0.70", "ok"]
    assert lines[5].endswith("0.10        0.20    0.03  first error, math error, consistency error")
    assert r"<script>&\x1b[2J" in lines[5], "no text may control the terminal"
    coloured = as_text(PICTURE, has_colour=True)
    assert "\x1b[31m         0.10\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_a_long_step_is_on_a_line_of_its_own() -> None:
    lines = as_text(picture_of("p", [ScoredStep("w" * 100 + "\nend", {"math": 0.9}, 0.9)])).splitlines()
    assert lines[3] == f"  1  {'w' * 100}"
    assert lines[4].split() == ["end", "0.90", "0.90", "ok"]


def test_in_a_narrow_terminal_the_figures_of_a_step_are_below_it() -> None:
    picture = picture_of("p", [ScoredStep("w" * 30, {"math": 0.1, "consistency": 0.9}, 0.9)])
    widest = max(map(len, as_text(picture).splitlines()))
    assert as_text(picture, columns=widest) == as_text(picture)
    head, step, figures = as_text(picture, columns=widest - 1).splitlines()[2:]
    assert head == "     no math error  consistent  reward"
    assert step == f"  1  {'w' * 30}"
    assert figures == "              0.10        0.90    0.90  first error, math error"


def test_svg_and_html_have_the_same_figures_and_escape_text() -> None:
    svg = as_svg(PICTURE)
    elements = ElementTree.fromstring(svg).iter()  # noqa: S314  # our own drawing
    texts = [element.text for element in elements if element.tag.endswith("text")]
    assert {"a <b>", r"<script>&\x1b[2J", "0.90", "0.03", "first error, math error, consistency error"} <= {*texts}
    page = to_html(Page("t", [PICTURE], [Section("One", [])]))
    assert '<th scope="row"><i>2</i> &lt;script&gt;&amp;\ufffd[2J <b>first error</b> <b>math error</b>' in page
    assert page.count('<td class="low">') == svg.count('class="low"') == 4
    assert "<script" not in page
    assert "| doubted | 0.90 | 0.90 | 0.30 | low reward |" in to_markdown(Page("t", [PICTURE], []))
