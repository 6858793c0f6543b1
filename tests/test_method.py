"""docs/method.md: the drawing is what its command makes, the figures are true, at most nine source files are linked."""

from __future__ import annotations

import re
from pathlib import Path

from docs.tools import tree_picture

PAGE = Path("docs/method.md")


def test_the_drawing_is_what_its_command_makes(root: Path) -> None:
    drawn = tree_picture.draw()
    assert (root / tree_picture.PICTURE).read_text(encoding="utf-8") == drawn, (
        "run `python -m docs.tools.tree_picture --write`, and look at the page again"
    )
    kinds = [row.kind for row in tree_picture.built().rows]
    assert kinds == ["trunk"] * 3 + ["stem", "second", "first"] * 3


def test_the_page_links_at_most_nine_source_files_that_exist(root: Path) -> None:
    page = (root / PAGE).read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((\.\./\S+\.py)\)", page))
    assert 5 < len(linked) <= 9
    assert all((root / "docs" / link).is_file() for link in linked)
    assert 1_200 <= len(page.split()) <= 1_500


def test_the_figures_of_the_page_are_those_of_the_drawing(root: Path) -> None:
    made = tree_picture.built()
    tree, (a, b, _, _, _, _, g, *_) = made.tree, made.rows
    page = (root / PAGE).read_text(encoding="utf-8")
    assert f"row G counts from {tree.depth[g.start]}" in page
    assert f"the {g.start - b.stop} nodes of rows C to F" in page.replace("\n", " ")
    assert a.parent is None
    assert tree.depth[g.start] == b.stop


def test_a_drawn_row_is_what_the_rule_lets_a_query_see() -> None:
    tree = tree_picture.built().tree
    for query in range(len(tree)):
        drawn = [key for low, high in tree_picture._runs(tree, query) for key in range(low, high)]
        ancestors = [key for key in range(query + 1) if query < tree.end[key]]
        assert drawn == ancestors
        assert len(drawn) == tree.depth[query] + 1
