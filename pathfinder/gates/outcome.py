"""The outcome of a validation: as JSON, as metrics, as a page without scripts, and as the error of a failed stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from pathfinder.core.metrics import Agreement, Figure, Stage, Whole
from pathfinder.gates.gates import Result
from pathfinder.gates.suites import Tables, file_of
from pathfinder.pages.page import Block, Page, Section, Table, Text, to_html

_SHOWN = 20


class Validation(Stage):
    """Metrics of the stages validate and validate_train; ``agreement`` is by source and rating."""

    success: bool = True
    gates: Whole = 0
    gates_failed: Whole = 0
    shares: Mapping[str, Figure] = {}
    agreement: Mapping[str, Agreement] = {}


def outcome_of(results: Sequence[Result], tables: Tables) -> dict[str, Any]:
    """The content of ``validation.json``: no time, and the order of the suites."""
    return {
        "success": all(result.passed for result in results),
        "rows": {file_of(name): len(table) for name, table in tables.items()},
        "gates": [asdict(result) for result in results],
    }


def metrics_of(results: Sequence[Result], records: int, **figures: Any) -> Validation:
    """Accounting: validation keeps all records or none. ``figures`` are further keys."""
    success = all(result.passed for result in results)
    return Validation(
        success=success,
        read=records,
        kept=records if success else 0,
        dropped={} if success else {"gate failed": records},
        quarantined={},
        gates=len(results),
        gates_failed=sum(not result.passed for result in results),
        **figures,
    )


def failure(results: Sequence[Result], report: Path) -> str | None:
    """The error that names the broken gates (at most a screenful) and the remedy; ``None`` if all passed."""
    failed = [str(result) for result in results if not result.passed]
    if not failed:
        return None
    more = [f"… and {len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else []
    remedy = (
        f"See {report}/index.html for all of them. Fix the stage that wrote the file. If the data are correct and a "
        "bound is not, change it under `validate` in params.yaml. Then run `dvc repro`."
    )
    return "\n".join([f"{len(failed)} of {len(results)} gates failed:", *failed[:_SHOWN], *more, remedy])


def outcome_page(outcome: Mapping[str, Any]) -> str:
    """The content of ``validation.json`` as HTML."""
    gates = outcome["gates"]
    failed = [gate for gate in gates if not gate["passed"]]
    verdict = f"All {len(gates)} gates passed." if not failed else f"{len(failed)} of {len(gates)} gates failed."
    rows = [(file, f"{count:,}") for file, count in outcome["rows"].items()]
    lead: list[Block] = [Text(verdict, is_notice=bool(failed)), Table("Rows of each table", ("file", "rows"), rows)]
    suites = [list(of_suite) for _, of_suite in groupby(gates, itemgetter("suite"))]
    sections = [Section(f"{suite[0]['suite']} ({suite[0]['file']})", [_table(suite)]) for suite in suites]
    if failed:
        sections.insert(0, Section("Failed gates", [_table(failed)]))
    return to_html(Page("Validation of the data", lead, sections))


def _table(gates: list[dict[str, Any]]) -> Table:
    headers = ("expected", "outcome", "rows that break it", "examples", "expectation")
    rows = [
        (
            gate["says"],
            "passed" if gate["passed"] else "FAILED" + (f": found {gate['observed']}" if gate["observed"] else ""),
            f"{gate['broken']:,}",
            ", ".join(gate["examples"]),
            gate["expectation"],
        )
        for gate in gates
    ]
    emphasis = frozenset(place for place, gate in enumerate(gates) if not gate["passed"])
    return Table(f"{len(gates)} gates", headers, rows, emphasis)
