"""The gates' outcome as a small page of our own: no scripts, nothing loaded from a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathfinder.pages.page import Block, Page, Section, Table, Text, to_html


def validation_page(outcome: Mapping[str, Any]) -> str:
    """HTML for ``validation.json``'s content."""
    gates = outcome["gates"]
    failed = [gate for gate in gates if not gate["passed"]]
    verdict = f"All {len(gates)} gates passed." if not failed else f"{len(failed)} of {len(gates)} gates failed."
    rows = [(file, f"{count:,}") for file, count in outcome["rows"].items()]
    lead: list[Block] = [Text(verdict, is_notice=bool(failed)), Table("Rows of each table", ("file", "rows"), rows)]
    sections = [Section(f"{name} ({gates[0]['file']})", [_table(gates)]) for name, gates in _suites(gates).items()]
    if failed:
        sections.insert(0, Section("Failed gates", [_table(failed)]))
    return to_html(Page("Validation of the data", lead, sections))


def _suites(gates: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    suites: dict[str, list[dict[str, Any]]] = {}
    for gate in gates:
        suites.setdefault(gate["suite"], []).append(gate)
    return suites


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
