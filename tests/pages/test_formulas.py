"""Formulas of untrusted texts: what becomes MathML, what stays text, and that no formula can do anything else."""

from __future__ import annotations

import random
import time
from html.parser import HTMLParser

import pytest

from pathfinder.pages.formulas import BUDGET, LONGEST, MOST_BYTES, Formulas
from pathfinder.pages.page import Page, escaped, to_html
from pathfinder.pages.picture import Picture, Row


class Markup(HTMLParser):
    """The tags and attributes of a fragment."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(attributes)


def drawn(text: str) -> str:
    return str(Formulas(escaped)(text))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("so $x^2$ is", "so <math><msup><mi>x</mi><mn>2</mn></msup></math> is"),
        (r"\(\frac{1}{2}\)", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        (r"\[\sqrt{2}\]", '<math display="block">'),
        ("$$a\n< b$$", "<mo>&lt;</mo>"),
        (r"$\begin{pmatrix}1&2\\3&4\end{pmatrix}$", "<mtable>"),
        (r"$\text{if } x \ne 0$", "<mtext>if"),
        (r"is \boxed{7}.", '<menclose notation="box"><mn>7</mn></menclose></math>.'),
        (r"\boxed{\frac{\sqrt{2}}{\text{n}}}", "<msqrt><mn>2</mn></msqrt>"),
        (r"so \frac{1}{2}^2 of it", "</mfrac><mn>2</mn></msup></math> of it"),
        (r"3 \times 4 = 12", "3 <math"),
        (r"so \left(\frac{1}{2}\right)^2 = q", "</mrow><mn>2</mn></msup></math> = q"),
        (r"f\left[ 1 + \left( x \right) \times 2 \right]", ">]</mo></mrow></math>"),
        (r"\left\lfloor \frac{7}{2} \right\rfloor = 3", "</math> = 3"),
        (
            r"so \begin{align*} a &= b \\ &= c \end{align*}.",
            'so <math display="block"><mtable displaystyle="true"><mtr><mtd ',
        ),
        (r"\[\begin{aligned} a &= b \end{aligned}\]", '<mtd columnalign="left"><mi></mi><mo>=</mo><mi>b</mi></mtd>'),
    ],
)
def test_delimited_formulas_become_mathml(text: str, part: str) -> None:
    assert part in drawn(text)


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and then $7.",
        "$5-$7",
        r"an escaped \\boxed{7}",
        r"\boxed{7 without an end",
        r"\frac{1} with one argument",
        r"\boxed{{{{{5}}}}}",
        r"\boxed{$5}",
        r"\href{javascript:alert(1)}{x} and \style{color:red}{y} without delimiters",
        r"C:\temp\new \timestamp",
        r"a broken $\frac$ one",
        r"\left( x \right and no more",
        r"\left(\frac{1}{2}^{3\right)" + "^{" + "9" * LONGEST + "}",
        r"$\left($",
        "$" + "x" * (LONGEST + 1) + "$",
        "$" + "{" * 200 + "$",
        "$" + "{" * 99 + "x" + "}" * 99 + "$",
        "one $ sign, and $$ two",
        r"\( never closed",
        r"$\phantom{hidden}$",
        r"\begin{align} a &= b \end{gather}",
    ],
)
def test_everything_else_stays_as_it_is_written(text: str) -> None:
    assert drawn(text) == escaped(text)


@pytest.mark.parametrize(
    "formula",
    [
        r"\text{<script>alert(1)</script>}",
        r"\text{&lt;img src=x onerror=alert(1)&gt;}",
        r"\text{&#60;script&#62;}",
        r"<img src=x onerror=alert(1)>",
        r"\href{javascript:alert(1)}{x}",
        r"\style{background:url(http://x)}{y}",
        r"\class{wrong}{y}",
        r'\color{red" onclick="alert(1)}{x}',
        r"\hskip9999em x",
        "x\ud800\u202e\x00",
        r"\def\a{\a\a}\a",
        r"</math><script>alert(1)</script>",
    ],
)
@pytest.mark.parametrize("form", ["$%s$", r"\boxed{%s}", r"\sqrt[3]{%s}^{%s}"])
def test_a_hostile_formula_gives_only_harmless_elements(formula: str, form: str) -> None:
    text = drawn(form.replace("%s", formula))
    found = Markup(text)
    assert found.tags <= {"math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "mstyle", "menclose", "mroot", "msup"}
    assert {name for name, _ in found.attributes} <= {"display", "stretchy", "fence", "form", "notation"}
    assert not any(character in text for character in "\ud800\u202e\x00")


def test_random_formulas_are_fast_and_harmless() -> None:
    draw = random.Random(5)
    parts = [r"\frac", r"\left", r"\right", *"{}^_&[]x1'()<>\"", r"\\", r"\begin{matrix}", r"\end{matrix}", r"\sqrt"]
    parts += [r"\text{", r"\over", r"\hline", r"\limits", r"\href", r"\color{red}", r"\binom", "<b>", "&amp;", "\\"]
    slowest = 0.0
    for _ in range(400):
        inner = "".join(draw.choice(parts) for _ in range(draw.randrange(60)))[:LONGEST]
        text = draw.choice(["$%s$", r"\boxed{%s}"]) % inner
        start = time.process_time()
        found = Markup(drawn(text))
        slowest = max(slowest, time.process_time() - start)
        assert all(tag.startswith("m") for tag in found.tags)
        assert not {name for name, _ in found.attributes} & {"style", "href", "class", "onclick"}
    assert slowest < 0.5


@pytest.mark.parametrize(
    "part",
    [
        r"\(",
        r"\[",
        r"\\\\",
        "$$a",
        "$x$ ",
        r"$\frac$ ",
        r"\(\\",
        "\\(\\",
        r"\boxed{",
        r"\boxed{a}{",
        r"\pi^{a}",
        r"\left(",
        r"\left(\right",
        r"\begin{align}",
        r"\begin{align}a\\",
    ],
)
def test_a_long_text_takes_little_time(part: str) -> None:
    text = "\\[" + part * (100_000 // len(part))
    start = time.process_time()
    drawn(text)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "text", [r"\left(\frac{1}{2}\right)^2", r"\left. \frac{a}{b} \right|_{x=1}", r"\left\{\pi\right\}"]
)
def test_brackets_and_what_they_hold_are_one_formula(text: str) -> None:
    assert drawn(text).startswith("<math")
    assert drawn(text).endswith("</math>")
    assert drawn(text).count("<math") == 1


def test_a_page_has_room_for_so_many_formulas() -> None:
    formulas = Formulas(escaped)
    made = [str(formulas("$x^2$")) for _ in range(BUDGET // 40)]
    assert sum(map(len, made[:100])) < BUDGET
    assert made[0].startswith("<math")
    assert made[-1] == "$x^2$"
    assert len(drawn("$" + "x_1^2" * 50 + "$")) <= MOST_BYTES


def test_the_picture_of_a_page_draws_formulas() -> None:
    picture = Picture("Let $n$ be even.", ("reward",), (Row(r"So \(n/2\) <b>", (0.9,), (), False),))
    page = to_html(Page("A page", [picture], []))
    assert page.count("<math") == 2
    assert "&lt;b&gt;" in page
