"""Every fault that was found, reported as broken and fixed: what puts it back, and the test that notices."""

from __future__ import annotations

from tests.campaigns.faults.catalogue.broken import LETTER, SMALL, TRACEBACKS
from tests.campaigns.faults.catalogue.calls import CALLS
from tests.campaigns.faults.catalogue.runs import RUNS
from tests.campaigns.faults.catalogue.silent import SILENT
from tests.campaigns.faults.planting import Fault
from tests.campaigns.rehearsal.faults import FAULTS

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
