"""The counts of ``docs.tools.shape`` on a small checkout whose shape is known."""

from __future__ import annotations

import contextlib
import io
import subprocess

import pytest

from docs.tools.shape import main

FILES = {
    "pathfinder/__init__.py": '"""A method."""\n',
    "pathfinder/low/one.py": '"""One."""\n\nX = 1\n\n\ndef f() -> int:\n    """A number."""\n    return X  # one\n',
    "pathfinder/low/two.py": "from pathfinder.high import three\nfrom pathfinder.low import one\n\nY = three.Z\n",
    "pathfinder/high/three.py": "from .. import low\nfrom ..low.two import Y\n\nZ = 'dvc.lock'\n",
    "stages/work.py": "from pathfinder.low import one\n\nprint(one.f())\n",
    "tests/test_one.py": "def test_one() -> None:\n    pass\n",
    "docs/page.md": "five words on one page\n",
    "docs/deep/page.md": "three more words\n",
}


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The counts of the checkout by their names."""
    tmp_path, printed = tmp_path_factory.mktemp("checkout"), io.StringIO()
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    with contextlib.redirect_stdout(printed):
        main([str(tmp_path)])
    return {line[:58].strip(): line[58:].strip() for line in printed.getvalue().splitlines()}


def test_lines_are_counted_by_wing_and_room(counts: dict[str, str]) -> None:
    assert counts["product: files; lines; code lines"] == "5; 20; 11"
    assert (counts["pathfinder/"], counts["low"], counts["stages/"]) == ("17", "12", "3")
    assert counts["functions; median; over 40 lines"] == "1; 3; 0"


def test_imports_and_circles_are_counted(counts: dict[str, str]) -> None:
    """Two and three import one another, as do their folders; no stage reaches them."""
    assert counts["circles among modules; among rooms"] == "1; 1"
    assert counts["lines that stages reach; that no stage reaches"] == "11; 9"
    assert counts["modules that name dvc.lock"] == "1"


def test_tests_and_pages_are_counted(counts: dict[str, str]) -> None:
    assert counts["tests: lines; functions"] == "2; 1"
    assert counts["docs: pages; words"] == "2; 8"
    assert counts["docs without folders: pages; words"] == "1; 5"
