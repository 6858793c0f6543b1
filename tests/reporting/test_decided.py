"""The answers of the experiment are in the report as the committed table of the experiment has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import read_json, write_json
from pathfinder.pages.origins import origin_of
from pathfinder.pages.page import Table
from pathfinder.reporting.page.decided import ANSWERS, decided

PAGE = Path("infra/experiment/answers.md")


def test_the_figures_are_those_of_the_page_with_all_tables(root: Path) -> None:
    page = (root / PAGE).read_text(encoding="utf-8").partition("`main`:")[0]
    answers = read_json(root / ANSWERS)
    assert len(answers) == page.count("\n| H")
    for each in answers:
        found = each["difference"]
        start = f"| {each['hypothesis']}: {each['left']} - {each['right']} | {each['reading']} | {each['base']}, "
        figures = f"{found['value']:+.2f} [{found['low']:.2f}, {found['high']:.2f}]"
        (row,) = [line for line in page.splitlines() if line.startswith(f"{start}{each['records']:,} ")]
        assert f"| {each['seeds']} | {figures} |" in row
        assert row.rpartition(f"| {each['verdict']}")[1]


def test_a_row_has_the_variant_the_setting_and_the_file_of_its_figures(folder: Path) -> None:
    answer = {"hypothesis": "H2", "left": "full", "right": "plain_error", "reading": "soundness", "base": "a2"}
    figures = {"value": 3.204, "low": 1.84, "high": 4.55}
    write_json(folder / ANSWERS, [answer | {"records": 2000, "seeds": 24, "difference": figures, "verdict": "helps"}])
    (table,) = decided()
    assert isinstance(table, Table)
    assert table.rows == [("H2: with one label of errors", "a2, 2,000", "24", "soundness", "3.2 [1.8, 4.5]", "helps")]
    origin = origin_of(table.rows[0][4])
    assert origin is not None
    assert origin.of == (f"{ANSWERS}#/0/difference/value",)
    assert "“Helps” and “harms” allow for all comparisons of a setting" in table.caption
    assert "“Equivalent” means that the 90 % interval is within 1 point of zero, and allows for no" in table.caption
    assert table.measured == frozenset()  # they were not measured on the benchmarks of this run


@pytest.mark.usefixtures("folder")
def test_a_project_without_the_experiment_has_no_table() -> None:
    assert decided() == []
