from __future__ import annotations

from pathlib import Path

from pathfinder.gates.gates import Result
from pathfinder.gates.outcome import failure, metrics_of, outcome_of, outcome_page
from tests.support.gate_tables import HOSTILE


def result(number: int, passed: bool) -> Result:
    broken, examples = (0, ()) if passed else (2, (f"id-{number}", HOSTILE))
    return Result("labels", "labels.parquet", "Expect", f"math is {number}", passed, 9, broken, examples, "")


def test_a_failure_names_a_screenful_of_gates_and_the_remedy() -> None:
    message = failure([result(number, number > 24) for number in range(30)], Path("reports/validation"))
    assert message is not None
    lines = message.splitlines()
    assert lines[0] == "25 of 30 gates failed:"
    assert lines[1] == f"labels.parquet: Expect: expected that math is 0: 2 of 9 rows break it; e.g. id-0, {HOSTILE}"
    assert lines[21] == "… and 5 more"
    assert "reports/validation/index.html" in lines[22]
    assert failure([result(0, True)], Path("reports/validation")) is None


def test_validation_keeps_all_records_or_none() -> None:
    good, bad = result(0, True), result(1, False)
    passed = metrics_of([good], 5)
    assert (passed.kept, passed.dropped, passed.success) == (5, {}, True)
    failed = metrics_of([good, bad], 5)
    assert (failed.kept, failed.dropped, failed.gates, failed.gates_failed) == (0, {"gate failed": 5}, 2, 1)


def test_the_page_lists_failed_gates_first_and_escapes_the_data() -> None:
    page = outcome_page(outcome_of([result(0, True), result(1, False)], {}))
    assert "1 of 2 gates failed." in page
    assert page.index("Failed gates") < page.index("labels (labels.parquet)")
    assert "<script" not in page
