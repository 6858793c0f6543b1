"""The paper's own averages check the numbers that were copied."""

from __future__ import annotations

import pytest

from pathfinder.benchmarks.paper import PRMBENCH, PROCESSBENCH, PROCESSBENCH_FULL, SCALE, SEARCH, PaperTable, ours
from pathfinder.benchmarks.prmbench import CATEGORIES

# rows whose printed average differs from the mean of their printed numbers by more than rounding, in the paper itself
KNOWN_GAPS = {"tab:process_bench_full": {"Qwen2.5-Math-7B-PRM800K": 2.05}}


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("table", [PROCESSBENCH, PROCESSBENCH_FULL, PRMBENCH, SEARCH], ids=lambda table: table.label)
def test_every_row_has_a_number_for_every_column_and_names_do_not_repeat(table: PaperTable) -> None:
    assert len(table.rows) >= 14
    assert len({row.name for row in table.rows}) == len(table.rows)
    assert all(len(row.values) == len(table.columns) == len(table.headings) for row in table.rows)
    assert all(0 <= value <= 100 for row in table.rows for value in row.values)


@pytest.mark.parametrize("table", [PROCESSBENCH_FULL, SEARCH], ids=lambda table: table.label)
def test_the_last_column_is_the_mean_of_the_others(table: PaperTable) -> None:
    off = {row.name: row.values[-1] - _mean(row.values[:-1]) for row in table.rows}
    wrong = {name: round(gap, 2) for name, gap in off.items() if abs(gap) > 0.13}
    assert wrong == KNOWN_GAPS.get(table.label, {})


def test_prmbench_categories_are_means_of_their_classes() -> None:
    for row in PRMBENCH.rows:
        cell = dict(zip(PRMBENCH.columns, row.values, strict=True))
        for name, members in CATEGORIES.items():
            assert cell[name] == pytest.approx(_mean(tuple(cell[c] for c in members)), abs=0.16), (row.name, name)


def test_our_variants_and_the_scale_table_are_rows_of_the_others() -> None:
    for table in (PROCESSBENCH, PRMBENCH, SEARCH):
        for variant in ("full", "no_error_categories", "no_subtasks"):
            assert table.row(ours(variant, "400k")) is not None
        for variant in ("full", "no_subtasks"):
            assert table.row(ours(variant, "prm800k")) is not None
        assert table.row(ours("full", "550k")) is None
        assert table.row(ours("autoregressive", "400k")) is None
    for row in SCALE[:2]:
        printed = tuple(table.row(row.name).values[-1] for table in (PROCESSBENCH, PRMBENCH, SEARCH))  # type: ignore[union-attr]
        assert row.values == printed


FIGURES = {
    (table.label, row.name): dict(zip(table.columns, row.values, strict=True))
    for table in (PROCESSBENCH, PRMBENCH, SEARCH)
    for row in table.rows
}
OURS, HUMAN_ONLY, QWEN, QWEN_800K = (
    "PathFinder-PRM-7B",
    "PathFinder-PRM-7B-PRM800K",
    "Qwen2.5-Math-PRM-7B",
    "Qwen2.5-Math-7B-PRM800K",
)


@pytest.mark.parametrize(
    ("table", "column", "left", "right", "printed"),
    [
        (SEARCH, "average", OURS, QWEN, 1.5),
        (PROCESSBENCH, "mean_f1", HUMAN_ONLY, QWEN_800K, 6.7),
        (PROCESSBENCH, "gsm8k", HUMAN_ONLY, QWEN_800K, 5.9),
        (PROCESSBENCH, "math", HUMAN_ONLY, QWEN_800K, 8.7),
        (PROCESSBENCH, "olympiadbench", HUMAN_ONLY, QWEN_800K, 8.0),
        (PROCESSBENCH, "omnimath", HUMAN_ONLY, QWEN_800K, 12.3),
        (PRMBENCH, "overall", OURS, ours("no_error_categories", "400k"), 0.4),
        (SEARCH, "average", OURS, ours("no_error_categories", "400k"), 2.9),
        (PROCESSBENCH, "mean_f1", OURS, ours("no_subtasks", "400k"), 1.9),
        (PRMBENCH, "overall", OURS, ours("no_subtasks", "400k"), 2.8),
    ],
)
def test_differences_in_the_text_follow_from_the_tables(
    table: PaperTable, column: str, left: str, right: str, printed: float
) -> None:
    """Abstract, sections 5.1 and 5.2 of the paper."""
    assert FIGURES[table.label, left][column] - FIGURES[table.label, right][column] == pytest.approx(printed)


def test_the_text_and_the_tables_disagree_where_our_page_says() -> None:
    printed = FIGURES[SEARCH.label, OURS]
    assert _mean(tuple(printed.values())[:-1]) == pytest.approx(48.25)
    assert printed["average"] == 48.3
    assert FIGURES[PRMBENCH.label, "Gemini-2.0-thinking-exp-1219"]["overall"] == 68.8
    rival = FIGURES[PROCESSBENCH.label, ours("no_subtasks", "400k")]["omnimath"]
    assert (rival, FIGURES[PROCESSBENCH.label, OURS]["omnimath"]) == (59.9, 59.7)
