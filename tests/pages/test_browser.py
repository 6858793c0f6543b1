"""The page in a real browser: it fits three widths, its filter runs under its own policy, and other scripts do not."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pathfinder.pages.origins import Origin, Sourced
from pathfinder.pages.page import Block, Browser, Figure, Fold, Listing, Page, Section, Table, Text, to_html
from pathfinder.pages.svg import Bar, interval_chart

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not on the path")]
NARROWEST = 500  # a headless window is never narrower
# A copy without the page's policy reports its content's width and the body's width in its title.
PROBE = "<script>document.title=[document.body.scrollWidth,document.body.clientWidth].join(' ')</script></body>"


FAULTS = (
    "true fault",
    "steps",
    "math flag only",
    "consistency flag only",
    "both flags",
    "no flag",
    "reward below one half",
)
TOLD = "<script>const e=document.querySelector('.scroll');parent.postMessage(e.scrollWidth-e.clientWidth,'*')</script>"
SCROLLED = (
    "<script>document.title=[...document.querySelectorAll('.scroll')].map(e=>e.scrollWidth-e.clientWidth)</script>"
)


@pytest.fixture(scope="module")
def page() -> str:
    long = "averyveryverylongwordwithoutanyplacetobreakit" * 5
    entries = [
        Fold(f"{kind} {number} {long}", [Text(long), Listing(["a", long])], {"kind": kind, "subset": "math"})
        for number, kind in enumerate(("false alarm", "missed", "false alarm"))
    ]
    rows = [(f"system {number}", *["90.1 [88.0, 92.0]"] * 9) for number in range(3)]
    drawing = Figure(interval_chart([Bar("a", 50, 40, 60)], "percent"), "a: 50", "caption")
    blocks: list[Block] = [Table(long[:90], ("system", *"abcdefghi"), rows), drawing, Browser(entries)]
    return to_html(
        Page("A report", [Text(long, is_notice=True)], [Section("One", [Text("x")]), Section(f"Two {long}", blocks)])
    )


def dom(folder: Path, page: str, width: int, anchor: str = "") -> str:
    """The document after the browser has opened it at ``anchor`` and run it."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    command += [f"--window-size={width},900", "--dump-dom", path.as_uri() + anchor]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_nothing_overflows_the_window(tmp_path: Path, page: str, width: int) -> None:
    bare = re.sub(r"<meta http-equiv=.*?>", "", page).replace("</body>", PROBE)
    narrow = f"<style>html{{width:{width}px}}</style></head>"
    found = re.search(
        r"<title>(\d+) (\d+)</title>", dom(tmp_path, bare.replace("</head>", narrow), max(width, NARROWEST))
    )
    assert found
    assert int(found[1]) <= int(found[2]) == width


def test_the_table_of_faults_fits_a_phone(tmp_path: Path) -> None:
    name = "contradiction (consistency): contradicts an earlier step"
    table = Table("What is flagged.", FAULTS, [(name, "4,879", *["100.0"] * 5)])
    bare = re.sub(r"<meta http-equiv=.*?>", "", to_html(Page("t", [], [Section("One", [table])])))
    framed = bare.replace("</head>", "<style>body{width:390px}</style></head>").replace("</body>", SCROLLED + "</body>")
    assert "<title>0</title>" in dom(tmp_path, framed, NARROWEST)


PATH = "artifacts/predictions/best_of_n/no_error_categories.jsonl"
INTERVAL = "88.8 [88.7, 89.0]"
ON_A_PHONE = {
    "files": Table("T.", ("file", "kind", "bytes", "sha256"), [(PATH, "output", "12,345", "0f" * 32)], frozenset([2])),
    "judge": Table(
        "T.",
        ("measure", "PRM800K -1", "RLHFlow-Mistral +", "RLHFlow-Mistral -", "all"),
        [("error precision, %", *[INTERVAL] * 4), ("labels correct if dropped, %", *[INTERVAL] * 4)],
    ),
}


@pytest.mark.parametrize("table", ON_A_PHONE.values(), ids=ON_A_PHONE.keys())
def test_a_table_fits_a_phone(tmp_path: Path, table: Table) -> None:
    bare = re.sub(r"<meta http-equiv=.*?>", "", to_html(Page("t", [], [Section("One", [table])])))
    # A frame, because a headless window is never as narrow as a phone, and the styles ask for the window's width.
    frame = f"<iframe width=390 height=900 srcdoc='{html.escape(bare.replace('</body>', TOLD + '</body>'))}'></iframe>"
    page = f"<title></title><body>{frame}<script>onmessage=e=>document.title=e.data</script>"
    assert "<title>0</title>" in dom(tmp_path, page, NARROWEST)


SOURCES = [f"a/{number}.json" for number in range(1, 100)]
PLACE = """<script>addEventListener('load', () => {
const menu = document.querySelector('nav').getBoundingClientRect(), row = document.querySelector('#s50');
const colours = [row, row.nextElementSibling].map(each => getComputedStyle(each.cells[0]).backgroundColor);
document.title = [row.getBoundingClientRect().top >= menu.bottom, colours[0] != colours[1]];
})</script></body>"""
HEIGHTS = """<script>
document.title = new Set([...document.querySelectorAll('.origin a')].map(each => each.offsetTop)).size
</script></body>"""


@pytest.fixture(scope="module")
def sourced() -> str:
    figures = [(file, Sourced("1", Origin("copy", (file,)))) for file in SOURCES]
    rows = [(f"S{number}", file) for number, file in enumerate(SOURCES, start=1)]
    sections = [
        Section("One", [Table("T.", ("x", "y"), figures)]),
        Section("Two", [Table("Files.", ("number", "file"), rows, is_anchored=True)]),
    ]
    return re.sub(r"<meta http-equiv=.*?>", "", to_html(Page("t", [], sections)))


def test_a_link_to_a_source_leads_below_the_menu_and_marks_its_row(tmp_path: Path, sourced: str) -> None:
    assert "<title>true,true</title>" in dom(tmp_path, sourced.replace("</body>", PLACE), NARROWEST, "#s50")


def test_printed_sources_are_a_paragraph(tmp_path: Path, sourced: str) -> None:
    printed = sourced.replace("@media print", "@media all").replace("</body>", HEIGHTS)
    lines = re.search(r"<title>(\d+)</title>", dom(tmp_path, printed, 820))
    assert lines
    assert 0 < int(lines[1]) < len(SOURCES) / 2


def test_the_filter_runs_under_the_page_s_policy(tmp_path: Path, page: str) -> None:
    shown = dom(tmp_path, page, 820)
    assert "<output>3 of 3 shown</output>" in shown
    assert re.findall(r'<option value="([^"]+)">', shown) == ["false alarm", "missed", "math"]


def test_another_script_does_not_run_under_it(tmp_path: Path, page: str) -> None:
    shown = dom(tmp_path, page.replace("</body>", "<script>document.title='broken'</script></body>"), 820)
    assert "<title>A report</title>" in shown
