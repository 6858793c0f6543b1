"""The paper's questions, each answered in a sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ground.io import read_json, write_json, write_jsonl
from pathfinder.core.runs import parse_runs
from pathfinder.reporting.claims import Finding, _claims, _where, course
from pathfinder.reporting.evidence import FULL, ONE_SAMPLE, Evidence
from pathfinder.reporting.results import Score, load_results
from stages.report import main
from tests.support.report_inputs import REPORT, SEEDED, write_best_of_n, write_everything, write_project

OPEN = Finding(0.0, -1.0, 1.0, 1.0)


def _samples() -> None:
    """The policy's samples: one in four is correct, the majority vote never on amc23."""
    rows = [
        {"set": s, "id": i, "right": [True, False, False, False], "majority_right": s == "math"}
        for s in ("math", "amc23")
        for i in range(25)
    ]
    write_jsonl(Path("artifacts/predictions/sample.jsonl"), rows)


def _claims_section(markdown: str) -> str:
    return markdown.partition("## The paper's claims, tested here")[2].partition("\n## ")[0]


def test_each_question_is_answered_in_a_sentence_and_guided_search_set_by_set(folder: Path, root: Path) -> None:
    write_project(root, "seeds", SEEDED)
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("bootstrap_samples: 50", "bootstrap_samples: 200"))
    write_everything(SEEDED)
    _samples()
    for run in ("full", "full-s2"):
        write_best_of_n(run)
        for row_set, right in (("math", 20), ("amc23", 25)):  # far ahead of one sample, level with the vote on math
            path = Path(f"artifacts/predictions/search/{run}.jsonl")
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            write_jsonl(path, [r | {"correct": r["id"] < right} if r["set"] == row_set else r for r in rows])
    main([])
    text = _claims_section(Path("reports/report.md").read_text())
    answers = [line.partition(". ")[2] for line in text.splitlines() if re.match(r"\d\. ", line)]
    assert [answer.partition("?")[0] for answer in answers] == [
        "Does separating the subtasks help",
        "Do two passes beat autoregressive labels",
        "Does more weak data keep helping",
        "Does guided search beat the alternatives without it",
        "On which sets",
    ]
    table = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's claims, tested here"]
    claims = {row[0]: row[1:] for row in table[0]["rows"]}
    verdict, figures = claims["separate subtasks help"][0].split(": ")
    assert verdict == "yes"
    assert (
        f"Yes on ProcessBench mean F1 ({figures.partition(', p')[0]})".replace("[", "\\[").replace("]", "\\]")
        in answers[0]
    )
    assert claims["guided search beats pass@1"][2].startswith("yes: +65.0 ")
    by_set = {row[0]: row[1:] for row in table[-1]["rows"]}
    assert [row[0] for row in by_set.values()] == ["25.0", "25.0"]
    assert by_set["MATH"][1].startswith("yes: +55.0 ")
    assert by_set["MATH"][2].startswith(("open: -20.0 ", "perhaps not: -20.0 ", "no: -20.0 "))
    assert by_set["AMC23"][2].startswith("yes: +100.0 ")
    assert "majority voting on AMC23, from +100.0 on AMC23 (pass@1 25.0) to -20.0 on MATH" in answers[-1]


def test_a_lead_on_one_set_allows_for_the_seeds_of_a_system_with_one(folder: Path, root: Path) -> None:
    """Two seeds of a variant solve 5 and 20 of 25 problems, so a further seed of the full variant may solve any."""
    runs = ("full", "no_subtasks", "no_subtasks-s2")
    write_project(root, "seeds", runs)
    write_everything(runs)
    _samples()
    for run, right in zip(runs, (25, 5, 20), strict=True):
        rows = [{"set": s, "id": i, "correct": i < right} for s in ("math", "amc23") for i in range(25)]
        write_jsonl(Path(f"artifacts/predictions/search/{run}.jsonl"), rows)
    results = load_results(Path("metrics"), parse_runs(runs))
    evidence = Evidence(results, Path("artifacts/predictions"), Path("artifacts/raw"), REPORT)
    over_all = [one for one in evidence.compared if one.right == ONE_SAMPLE]
    for one in (*over_all, evidence.by_set["math"][1][0]):
        assert one.right == ONE_SAMPLE
        assert one.difference is not None
        assert (one.difference.low, one.difference.high) == (-100.0, 100.0)


@pytest.mark.parametrize(("records", "claim"), [(50, "400k over 100k"), (500, "100k over 400k")])
def test_more_data_are_those_of_the_mix_with_more_records(folder: Path, root: Path, records: int, claim: str) -> None:
    runs = ("full", "full-100k")
    write_project(root, "seeds", runs)
    write_everything(runs)
    path = Path("metrics/train/full-100k.json")
    write_json(path, read_json(path) | {"sources": {"prm800k": 700, "rlhflow_mistral": records}})
    evidence = Evidence(load_results(Path("metrics"), parse_runs(runs)), Path("."), Path("."), REPORT)
    (found,) = (each for each in _claims(evidence) if "data" in each[0])
    sides = [FULL, f"{FULL} on the 100K mix"]
    assert found == (f"more weak data helps ({claim})", *(sides if records < 100 else sides[::-1]))


def test_no_lead_is_minus_zero() -> None:
    level: Any = SimpleNamespace(by_set={"math": (Score(25.0, 20.0, 30.0), [])})
    (text,) = _where(level, {"math": {ONE_SAMPLE: Finding(-0.04, -1.0, 1.0, 1.0)}})
    assert "from +0.0 on MATH" in text


@pytest.mark.parametrize(
    ("some", "more", "text"),
    [
        ((2.0, 1.0, 3.0), (2.0, 1.0, 3.0), "helps, and more of it helps further"),
        ((2.0, 1.0, 3.0), (0.1, -1.0, 1.2), "helps, and more of it makes no clear difference"),
        ((0.1, -1.0, 1.2), (0.1, -1.0, 1.2), "neither share makes a clear difference"),
        ((-2.0, -3.0, -1.0), (0.1, -1.0, 1.2), "hurts, and more of it makes no clear difference"),
        ((0.1, -1.0, 1.2), (-2.0, -3.0, -1.0), "the first share makes no clear difference, and more of it hurts"),
    ],
)
def test_the_effect_of_data_says_no_more_than_its_two_tests(
    some: tuple[float, float, float], more: tuple[float, float, float], text: str
) -> None:
    assert course(Finding(*some, p=0.01), Finding(*more, p=0.01)).endswith(text)
    assert course(Finding(*some, p=0.2), Finding(*more, p=0.2)) == course(OPEN, OPEN)
