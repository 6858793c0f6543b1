"""The page as markup: the filter and its digest, escaping of untrusted text, links, and contrast."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pathfinder import pages
from pathfinder.pages.origins import Origin, Sourced, joined
from pathfinder.pages.page import (
    PALETTE,
    Browser,
    Figure,
    Fold,
    Listing,
    Page,
    Section,
    Table,
    Text,
    as_markdown_cell,
    as_markdown_text,
    files_of,
    to_html,
    to_markdown,
)

HOSTILE = "<script>alert('x')</script>\" onload=\"x <+> \u202e {0} \x07 \ud800"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def _page(text: str) -> Page:
    entries = [Fold(text, [Text(text), Listing([text, "b"])], {"kind": text, "subset": "math"})]
    figure = Sourced("1.0", Origin("mean", (f"{text}.json#/a", f"{text}.json#/b")))
    table = Table(text, ("a", text), [(text, figure)])
    return Page(text, [Text(text)], [Section("One", [table]), Section("Two", [Browser(entries)])])


def test_the_policy_names_the_one_script_and_a_page_without_a_browser_has_none() -> None:
    page = to_html(_page("x"))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "<script" not in to_html(Page("t", [], [Section("One", [Text("x")])]))
    assert "script-src" not in to_html(Page("t", [], [Section("One", [Text("x")])]))


@settings(deadline=None)
@given(st.one_of(st.just(HOSTILE), st.text(alphabet=st.characters(exclude_categories=()), max_size=40)))
def test_no_text_becomes_a_tag_or_an_attribute(text: str) -> None:
    plain, hostile = Tags(), Tags()
    plain.feed(to_html(_page("x")))
    page = to_html(_page(text))
    hostile.feed(page)
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert [sorted(given) for _, given in hostile.found] == [sorted(given) for _, given in plain.found]
    page.encode()  # fails on a lone surrogate
    assert "\u202e" not in page
    assert "<script>" not in to_markdown(_page(text))


def test_no_text_is_markup_in_markdown() -> None:
    texts = {"&lt;b> R&D": r"\&lt;b\> R\&D", "- a - b": r"\- a - b", "12. a": r"12\. a", "---": r"\---", "+1.5": "+1.5"}
    assert {text: as_markdown_text(text) for text in texts} == texts
    assert as_markdown_cell("- <b>") == r"- \<b\>", "no list begins in a cell"


def test_every_block_has_its_markup() -> None:
    figure = Figure("<svg><g/></svg>", 'a "b"', "<caption>")
    table = Table("t", ("name", "n", "text"), [("a", "1.0", "x"), ("b", "–", "2")], frozenset([1]))
    page = to_html(Page("t", [Text("<b>", is_notice=True), figure], [Section("One", [table, Listing("ab")])]))
    assert '<p class="notice">&lt;b&gt;</p>' in page
    assert 'aria-label="a &#34;b&#34;"><svg><g/></svg></div></div><figcaption>&lt;caption&gt;</figcaption>' in page
    assert '<tr><th scope="row">a</th><td>1.0</td><td class="t">x</td></tr>' in page
    assert '<tr class="strong"><th scope="row">b</th><td>–</td><td class="t">2</td></tr>' in page
    assert "<ol><li>a</li><li>b</li></ol>" in page
    assert "<nav" not in page, "one section needs no contents list"
    words = to_markdown(Page("t", [figure], [Section("One", [table])]))
    assert '_\\<caption\\>_ a "b"' in words
    assert "| name | n | text |\n| --- | ---: | --- |\n| a | 1.0 | x |" in words


def test_figures_break_only_before_their_interval_and_their_p_value() -> None:
    row = [
        "a [1, 2]",
        "88.6 [85.5, 91.6]",
        "yes: +34.3 [-1.0, 38.5], p < 0.001",
        "open: 1, p = 1.000",
        "a [note, of 2] step 3 % p x",
    ]
    page = to_html(Page("T", [Table("C.", ["h", "i", "j", "k", "l"], [row])], []))
    assert ">open: 1, p\u00a0=\u00a01.000</td>" in page
    assert ">88.6 [85.5,\u00a091.6]</td>" in page
    assert ">yes: +34.3 [-1.0,\u00a038.5], p\u00a0&lt;\u00a00.001</td>" in page
    assert ">a [note, of 2] step 3\u00a0% p x</td>" in page


def test_headings_break_inside_long_words() -> None:
    headers = ("system", "OlympiadBench", "consistency flag only", "PRMScore", "OmniMath")
    page = to_html(Page("t", [Table("C.", headers, [["a", *"1234"]])], []))
    assert ">Olympiad\u00adBench</th>" in page
    assert ">consis\u00adtency flag only</th>" in page
    assert ">PRMScore</th>" in page
    assert ">OmniMath</th>" in page


def test_only_digests_break_anywhere() -> None:
    page = to_html(Page("t", [Table("C.", ["a", "sha256", "type"], [["a", "0f" * 32, "ExpectColumnValues"]])], []))
    assert f'<td class="t hash">{"0f" * 32}</td><td class="t">ExpectColumnValues</td>' in page


def test_a_long_list_of_sources_is_folded() -> None:
    for count in (3, 4):
        row = ["r", Sourced("1", Origin("mean", tuple(f"{n}.json#/a" for n in range(count))))]
        page = to_html(Page("t", [], [Section("One", [Table("t", ("name", "n"), [row])])]))
        assert ("<summary>Source: 4 files</summary>" in page) is (count == 4)
        assert page.count('href="#') == count


def test_entries_carry_their_tags_and_tables_their_origin() -> None:
    page = to_html(_page("x"))
    assert '<div class="browser" data-by="kind subset">\n<details data-kind="x" data-subset="math">' in page
    assert "Source: x.json" in to_markdown(_page("x"))
    assert 'Source: <a href="#s1">S1</a> x.json</p>' in page
    assert '<td title="mean of S1/{a,b}">1.0</td>' in page


def test_an_origin_names_files_that_share_a_pointer_together_and_what_only_the_interval_is_of() -> None:
    places = tuple(f"metrics/{run}.json#/mean" for run in ("full", "full-s2"))
    origin = Origin("mean", places, ("items.json",))
    assert origin.files == ("metrics/full.json", "metrics/full-s2.json", "items.json")
    assert origin.as_json() == {"how": "mean", "of": list(places), "interval": ["items.json"]}
    numbers = {"metrics/full.json": 2, "metrics/full-s2.json": 1, "items.json": 3}
    assert origin.brief(numbers) == "mean of S2+S1/mean; interval also of S3"
    assert Origin("copy", (places[0], "metrics/full.json#/f1")).brief(numbers) == "S2/{mean,f1}"
    parts = [Sourced("1", Origin("copy", (places[0],))), Sourced("2", Origin("copy", places)), "3"]
    assert joined("sum", parts) == Origin("sum", places)
    assert joined("sum", ["3"]) is None


def test_the_files_of_a_page_are_those_of_all_its_texts() -> None:
    def said(name: str) -> Sourced:
        return Sourced("1", Origin("copy", (name,)))

    fold = Fold("f", [Listing([said("b")]), Table("t", ("x", "y"), [("x", said("c"))])])
    figure = Figure("<svg/>", said("d"), "caption")
    page = Page("p", [Text(said("e"))], [Section("s", [figure, Browser([fold])])])
    assert files_of(page) == ["b", "c", "d", "e"]
    assert '<figcaption title="S3">' in to_html(page)


def test_rows_have_addresses() -> None:
    table = Table("t", ("a", "b"), [("x/y.json", "1"), ("<z>", "2")], is_anchored=True)
    page = to_html(Page("t", [], [Section("One", [table])]))
    assert '<tr id="x-y-json"><th scope="row">x/y.json</th>' in page
    assert '<tr id="z"><th scope="row">&lt;z&gt;</th>' in page


STYLE = (Path(pages.__file__).parent / "templates/style.css").read_text()
SHADES = {int(level): int(share) for level, share in re.findall(r"\.h(\d)\{.*var\(--c0\) (\d+)%,var\(--bg\)", STYLE)}


def _mixed(colour: str, ground: str, share: int) -> str:
    """CSS's ``color-mix`` of two colours; ``share`` is the first one's, in percent."""
    ground = ground if len(ground) == 7 else "#" + "".join(2 * digit for digit in ground[1:])
    parts = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round((share * a + (100 - share) * b) / 100):02x}" for a, b in parts)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_enough_contrast_in_both_themes() -> None:
    """WCAG 2.2, 1.4.3 (text, 4.5 : 1) and 1.4.11 (marks of charts and the edge of a notice, 3 : 1)."""
    assert len(SHADES) == 5
    themes = [dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", part)) for part in PALETTE.split("@media")]
    assert len(themes) == 2
    for theme in themes:
        pairs = [(name, ground, 4.5) for name in ("fg", "dim", "bad", "good", "c0") for ground in ("bg", "soft")]
        pairs += [("fg", "warn", 4.5), ("warnline", "bg", 3.0), *((f"c{place}", "bg", 3.0) for place in range(6))]
        theme |= {f"h{level}": _mixed(theme["c0"], theme["bg"], share) for level, share in SHADES.items()}
        pairs += [("fg", f"h{level}", 4.5) for level in SHADES]
        for name, ground, least in pairs:
            light, dark = sorted((_luminance(theme[name]), _luminance(theme[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= least, (name, ground, theme[ground])
