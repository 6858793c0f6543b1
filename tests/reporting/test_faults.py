"""False alarms on correct steps: each kind of system is read by its own rule, as far as it has a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ground.io import read_json, read_jsonl, write_json, write_jsonl
from pathfinder.baselines.adapter import AUTHORS
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.core.params import load_params
from pathfinder.core.readings import OWN
from pathfinder.pages.page import Table
from pathfinder.reporting import evidence
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.names import PUBLISHED
from pathfinder.reporting.page.contents import CAUGHT
from pathfinder.reporting.page.faults import false_alarm_table
from pathfinder.reporting.results import load_results
from stages.report import main
from tests.support.report_inputs import write_project
from world.oracle import Truth

STORY = "Eve has 7 apples.\n1) Eve finds 6.\n2) Eve uses 5.\nHow many apples does Eve have?"
FIRST, REST = "1) finds 6, so 7 + 6 = 13 apples.", "So far that is 13 apples."
SOLUTIONS = {
    "gsm8k-0": ([FIRST, REST, "2) uses 5, so 13 - 5 = 9 apples.", "So far that is 9 apples."], 2),
    "gsm8k-1": (
        [FIRST, "2) uses 5, so 13 - 5 = 8 apples.", "So far that is 8 apples.", "The answer is \\boxed{8}."],
        -1,
    ),
}
"""Steps, and the first error: two correct steps that are not optimal, and four that are."""
RULE = {"authors": {"threshold": 0.5, "change": False, "redundancy": None}}


def write_system(name: str, rows: Sequence[dict[str, Any]], **metrics: Any) -> None:
    keys = [{"subset": "gsm8k", "id": name} for name in SOLUTIONS]
    write_jsonl(
        Path(f"artifacts/predictions/processbench/{name}.jsonl"), [a | b for a, b in zip(keys, rows, strict=True)]
    )
    write_json(Path(f"metrics/processbench/{name}.json"), {"mean_f1": 50.0} | metrics)


def scored(*rewards: Sequence[float], **others: float) -> list[dict[str, Any]]:
    return [{"prediction": -1, "steps": [{"reward": value} | others for value in each]} for each in rewards]


@pytest.fixture
def alarms(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The rows of the table for a profile that evaluates published systems on two solutions."""
    monkeypatch.chdir(tmp_path)
    write_project(root, "evaluate-published", runs=())
    items = [
        {"id": name, "generator": "g", "problem": STORY, "steps": steps, "final_answer_correct": False, "label": label}
        for name, (steps, label) in SOLUTIONS.items()
    ]
    write_json(Path("artifacts/raw/processbench/gsm8k.json"), items)
    one = scored((0.9, 0.5, 0.1, 0.1), (0.9, 0.9, 0.6, 0.2))
    write_system("math-shepherd", one, decision=RULE, reading=OWN, titles=["Math-Shepherd-7B"])
    neutral = scored((0.9, 0.9, 0.1, 0.1), (0.9, 0.9, 0.9, 0.9), redundancy=0.7)
    write_system("reasoneval", neutral, decision=RULE, reading="soundness", titles=["ReasonEval-7B"])
    typed = scored((0.9, 0.1, 0.1, 0.1), (0.9, 0.9, 0.1, 0.9), math=0.9, consistency=0.8)
    write_system("pathfinder-prm-7b", typed, reading="soundness")
    write_system("critic-gpt-4o", [{"prediction": 1}, {"prediction": None}], reading="soundness", titles=["GPT-4o"])
    write_system("critic-o1-mini", [{"prediction": -1}, {"prediction": 1}], reading="soundness")
    params = Path("params.yaml")
    named = {"baselines": "pathfinder-prm-7b, math-shepherd, reasoneval", "critics": "critic-gpt-4o, critic-o1-mini"}
    for key, value in named.items():
        params.write_text(params.read_text().replace(f"{key}: []", f"{key}: [{value}]"))
    profile = load_params()
    results = load_results(Path("metrics"), (), [*profile.baselines, *profile.critics])
    found = Evidence(results, Path("artifacts/predictions"), Path("artifacts/raw"), profile.report, Truth())
    (table,) = false_alarm_table(found)
    assert isinstance(table, Table)
    return [[*row] for row in table.rows]


def test_every_system_has_its_false_alarms_by_its_readings(alarms: list[list[str]]) -> None:
    assert alarms == [
        ["pathfinder-prm-7b, soundness", "0.0", "0 of 2", "0 of 4"],
        ["pathfinder-prm-7b, quality", "100.0", "2 of 2", "0 of 4"],
        ["Math-Shepherd-7B, own score", "50.0", "1 of 2", "1 of 4"],
        ["ReasonEval-7B, soundness", "0.0", "0 of 2", "0 of 4"],
        ["ReasonEval-7B, quality", "100.0", "2 of 2", "4 of 4"],
        ["GPT-4o, soundness", "100.0", "1 of 1", "0 of 1"],
        ["critic-o1-mini, soundness", "0.0", "0 of 1", "1 of 3"],
    ]


def test_the_page_of_published_systems_has_them(alarms: list[list[str]]) -> None:
    main(["published"])
    (table,) = read_json(PUBLISHED)["tables"][CAUGHT]
    assert table["rows"] == alarms
    assert f"<h2>{CAUGHT}" in Path("reports/published.html").read_text(encoding="utf-8")


def test_a_run_that_stopped_early_is_named_below_its_flags(alarms: list[list[str]], root: Path) -> None:
    write_project(root, "quickstart", ["full"])
    typed = scored((0.9, 0.9, 0.1), (0.9, 0.9), math=0.9, consistency=0.8)
    write_system("full", typed, reading="soundness", early_stop={"steps": 8, "scored": 5})
    main([])
    section = Path("reports/report.md").read_text().partition(f"## {CAUGHT}")[2].partition("\n## ")[0]
    assert "| full, soundness | " in section
    assert "full: no scores after the first incorrect step (processbench.early_stop); later steps do not count." in (
        section.replace("\\_", "_")
    )


def test_tables_that_need_the_same_file_read_it_once(alarms: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(wraps=read_jsonl)
    monkeypatch.setattr(evidence, "read_jsonl", read)
    main(["published"])
    assert len(read.mock_calls) == len({str(call) for call in read.mock_calls}) == 5


def test_every_authors_rule_compares_the_score_of_a_step_with_a_threshold() -> None:
    """The table reads the rule without the rooms of the published systems."""
    rules = {name: system.method("processbench", AUTHORS).rule for name, system in SYSTEMS.items()}
    assert len(rules) > 8
    assert not any(rule.change or rule.redundancy for rule in rules.values())
