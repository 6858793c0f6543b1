"""Every fault that was found, reported as broken and fixed: what puts it back, and the test that notices."""

from __future__ import annotations

from tests.faults.catalogue.broken import LETTER, SMALL, TRACEBACKS
from tests.faults.catalogue.calls import CALLS
from tests.faults.catalogue.runs import RUNS
from tests.faults.catalogue.silent import SILENT
from tests.faults.planting import Fault
from tests.rehearsal.faults import FAULTS

GROUPS: dict[str, tuple[Fault, ...]] = {
    "runs": RUNS,
    "silent": SILENT,
    "tracebacks": TRACEBACKS,
    "letter": LETTER,
    "small": SMALL,
    "calls": CALLS,
    "profiles": FAULTS,
}
"""The faults by group; keys are unique within a group."""
