"""Every link in a page leads to a file that git has, and every anchor to a heading of that page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TRACKED = set(subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
PAGES = sorted(name for name in TRACKED if name.endswith(".md") and (ROOT / name).is_file())
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAMED = re.compile(r"(?<![\w/.-])((?:docs|tests/campaigns|infra|evidence|extras|examples)/[\w./-]+\.md)(#[\w-]+)?")


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken(page: Path, anchor: str) -> bool:
    """True if a link to this page, with or without an anchor, leads nowhere."""
    return not page.exists() or (bool(anchor) and anchor not in anchors(page))


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    wrong = []
    for link in _LINK.findall(re.sub(r"`[^`\n]*`", "`", prose(page))):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            if broken((page.parent / path) if path else page, anchor):
                wrong.append(link)
    assert wrong == []


def test_pages_that_code_names_exist() -> None:
    """In docstrings, comments and messages."""
    kinds = (".py", ".yaml", ".toml", ".in", ".sh", ".sbatch", "Makefile")
    found = [
        (name, path, anchor.removeprefix("#"))
        for name in sorted(TRACKED)
        if name.endswith(kinds) and not name.startswith("tests/") and (ROOT / name).is_file()
        for path, anchor in _NAMED.findall((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert len(found) > 20
    assert [f"{name}: {path}" for name, path, anchor in found if broken(ROOT / path, anchor)] == []
