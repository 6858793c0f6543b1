"""The report of `check`: its lines, its summary and its JSON. ``test_checking`` and ``test_evidence`` test the rest."""

from __future__ import annotations

import pytest

from evidence.audit.findings import Finding
from evidence.verbs.check import Report


def report(*findings: Finding, signers: tuple[list[str], ...] = (), not_read: tuple[str, ...] = ()) -> Report:
    return Report(
        list(findings), 4, max(3, len(signers)), list(signers), ["workspace", "cache"], list(not_read), "commit 0"
    )


@pytest.mark.parametrize(
    ("signers", "signed"),
    [
        ((), "UNSIGNED: 0 of 4 stages attested (3 recorded, but not signed by a trusted key)"),
        ((["a"],), "UNSIGNED: 1 of 4 stages attested by key a (2 recorded, but not signed by a trusted key)"),
        ((["a"], ["a"], ["b"]), "UNSIGNED: 3 of 4 stages attested by key a, key b"),
        ((["a"], ["a"], ["a"], ["a", "b"]), "SOUND: 4 of 4 stages attested by key a, key b"),
    ],
)
def test_the_summary_says_how_many_records_are_signed(signers: tuple[list[str], ...], signed: str) -> None:
    assert report(signers=signers).summary() == f"{signed}; workspace, cache read; commit 0"


def test_the_summary_says_nothing_about_signatures_where_nothing_is_recorded() -> None:
    empty = Report([], 4, 0, [], ["workspace"], [], "clean")
    assert empty.summary() == "UNSIGNED: 0 of 4 stages attested; workspace read; clean"


def test_the_verdict_of_a_check_that_was_not_possible_has_the_reason() -> None:
    none = Report([Finding("x", "is missing", cause="missing"), Finding("y", "is odd", "note")], 4, unreadable="a, b")
    assert none.lines() == ["note: y: is odd", "UNREADABLE: a, b"]
    assert Report(unreadable="a").as_json()["verdict"] == "UNREADABLE"


def test_a_report_counts_differences_and_is_a_json_value() -> None:
    wrong, other = Finding("x", "is bad", stages=("b", "a")), Finding("y", "is bad")
    one = report(wrong, Finding("z", "is odd", "note"), signers=(["b"], ["a", "b"]), not_read=("far", "farther"))
    assert one.errors == [wrong]
    summary = (
        "ALTERED: 1 difference; 2 of 4 stages attested by key a, key b (1 recorded, but not signed by a trusted key); "
        "workspace, cache read; not read: far, farther; commit 0"
    )
    assert one.summary() == summary
    assert report(wrong, other).summary().startswith("ALTERED: 2 differences; 0 of 4 ")
    assert one.as_json() == {
        "verdict": "ALTERED",
        "findings": [
            {"level": "error", "where": "x", "message": "is bad", "stages": ["b", "a"]},
            {"level": "note", "where": "z", "message": "is odd", "stages": []},
        ],
        "stages": 4,
        "attested": 2,
        "keys": ["a", "b"],
        "read": ["workspace", "cache"],
        "not read": ["far", "farther"],
        "state": "commit 0",
        "summary": summary,
    }


@pytest.mark.parametrize("count", [1, 5, 6])
def test_many_missing_outs_are_one_line(count: int) -> None:
    missing = [Finding(f"out{number}", "is missing", cause="missing") for number in range(count)]
    other = Finding("x", "is bad")
    first, *middle, last = report(*missing[:1], other, *missing[1:]).lines()
    assert last.startswith(f"ALTERED: {count + 1} differences; 0 of 4 ")
    if count == 6:
        remedy = "restore a published run with `pathfinder pull`, or run the pipeline with `pathfinder run`"
        assert first == f"error: out0, out1 and 4 more are missing; {remedy}"
        assert middle == ["error: x: is bad"]
    else:
        assert [first, *middle] == [str(missing[0]), str(other), *map(str, missing[1:])]
