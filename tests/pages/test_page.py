"""The page as markup: what is filtered, what is named by digest, what untrusted text can become."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from pathfinder.pages.page import PALETTE, Browser, Fold, Listing, Page, Section, Table, Text, to_html, to_markdown

HOSTILE = "<script>alert('x')</script>\" onload=\"x <+> \u202e {0} \x07 \ud800"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def _page(text: str) -> Page:
    entries = [Fold(text, [Text(text), Listing([text, "b"], frozenset([1]))], {"kind": text, "subset": "math"})]
    table = Table(text, ("a", text), [(text, "1.0")], origin="metrics/x.json")
    return Page(text, [Text(text)], [Section("One", [table]), Section("Two", [Browser(entries)])])


def test_the_policy_names_the_one_script_and_a_page_without_a_browser_has_none() -> None:
    page = to_html(_page("x"))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "<script" not in to_html(Page("t", [], [Section("One", [Text("x")])]))
    assert "script-src" not in to_html(Page("t", [], [Section("One", [Text("x")])]))


@given(st.one_of(st.just(HOSTILE), st.text(alphabet=st.characters(exclude_categories=()), max_size=40)))
def test_no_text_becomes_a_tag_or_an_attribute(text: str) -> None:
    plain, hostile = Tags(), Tags()
    plain.feed(to_html(_page("x")))
    page = to_html(_page(text))
    hostile.feed(page)
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert [sorted(given) for _, given in hostile.found] == [sorted(given) for _, given in plain.found]
    page.encode()  # no lone surrogate is left
    assert "\u202e" not in page
    assert "<script>" not in to_markdown(_page(text))


def test_entries_carry_their_tags_and_tables_their_origin() -> None:
    page = to_html(_page("x"))
    assert '<div class=browser data-by="kind subset"><details data-kind="x" data-subset="math">' in page
    way = "From metrics/x.json; the way back: pathfinder lineage up metrics/x.json"
    assert way in to_markdown(_page("x")).replace("\\", "")
    assert 'From <a href="../metrics/x.json">metrics/x.json</a>' in page
    assert '<a href="../.pathfinder/stages.html#metrics-x-json">what made it</a>' in page


def test_rows_lead_elsewhere_and_have_addresses() -> None:
    table = Table("t", ("a", "b"), [("x/y.json", "1"), ("<z>", "2")], links={"<z>": "../<z>"}, is_anchored=True)
    page = to_html(Page("t", [], [Section("One", [table])]))
    assert '<tr id="x-y-json"><th scope="row">x/y.json</th>' in page
    assert '<tr id="z"><th scope="row"><a href="../&lt;z&gt;">&lt;z&gt;</a></th>' in page


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_stands_out_from_its_ground_in_light_and_dark() -> None:
    """WCAG 2.2, 1.4.3 (text, 4.5 : 1) and 1.4.11 (marks of drawings and the notice's edge, 3 : 1)."""
    themes = [dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", part)) for part in PALETTE.split("@media")]
    assert len(themes) == 2
    for theme in themes:
        pairs = [(name, ground, 4.5) for name in ("fg", "dim", "bad", "c0") for ground in ("bg", "soft")]
        pairs += [("fg", "warn", 4.5), ("warnline", "bg", 3.0), *((f"c{place}", "bg", 3.0) for place in range(6))]
        for name, ground, least in pairs:
            light, dark = sorted((_luminance(theme[name]), _luminance(theme[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= least, (name, ground, theme[ground])
