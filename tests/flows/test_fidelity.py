"""docs/fidelity.md states today's values, explains every difference, and names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.tools import fidelity
from ground.io import DataError

HEAD = "| setting | paper | published code | key | `quickstart` | note |\n| --- | --- | --- | --- | --- | --- |\n"


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / fidelity.PAGE).read_text(encoding="utf-8")


def test_the_page_has_the_values_of_the_profiles_and_the_code(text: str, root: Path) -> None:
    assert len(fidelity.rows_of(text, root)) > 70
    assert fidelity.filled(text, root) == text, "run `python -m docs.tools.fidelity --write`"


def test_every_difference_is_explained(text: str, root: Path) -> None:
    assert {row.cells["key"]: row.unexplained for row in fidelity.rows_of(text, root) if row.unexplained} == {}


def test_a_changed_value_is_noticed(root: Path) -> None:
    page = (
        HEAD + "| epochs | – | `1` | `train.epochs` | `1` | |\n| threshold | – | `0.5` | `prmbench.threshold` | | |\n"
    )
    assert fidelity.filled(page, root) == page.replace("`prmbench.threshold` | |", "`prmbench.threshold` | `0.5` |")
    (row,) = fidelity.rows_of(page.replace("| `1` | `train", "| `2` | `train").partition("| thr")[0], root)
    assert row.unexplained == ["`quickstart` is `1`, not `2`"]
    (row,) = fidelity.rows_of(HEAD + "| n | `4` | `8` | `search.n` | `8` | |\n", root)
    assert row.unexplained == ["the paper and the published code differ", "`quickstart` is `8`, not `4`"]
    (row,) = fidelity.rows_of(HEAD + "| n | `4` | `8` | `search.n` | `8` | as in the code |\n", root)
    assert row.unexplained == []


def test_an_unknown_key_is_named(root: Path) -> None:
    for key in ("train.epoch", "pathfinder.core.prompts:NOTHING", "pathfinder.nothing:X", "download.sources.x.kind"):
        with pytest.raises(DataError, match=re.escape(key)):
            fidelity.rows_of(HEAD + f"| x | – | – | `{key}` | | |\n", root)


def test_every_named_test_exists(text: str, root: Path) -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text))
    assert len(named) > 25
    functions = {
        (file, node.name)
        for file in {file for file, _ in named}
        for node in ast.walk(ast.parse((root / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert named - functions == set()


def test_every_numbered_bug_has_a_test(text: str) -> None:
    rows = re.findall(r"(?m)^\| (\d+)[a-z]? \|.*$", text)
    assert sorted({int(number) for number in rows}) == list(range(1, 22))
    table = [line for line in text.splitlines() if re.match(r"\| \d+[a-z]? \|", line)]
    assert all(line.count("::test_") == 1 and line.count(" | ") == 4 for line in table)
