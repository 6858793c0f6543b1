"""The message about a run that failed: the stage, its last lines, and what to do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.terminal import log_path

EVENT = "pathfinder.run.failed"
MOST_LINES = 10
TRACEBACK = "\nTraceback (most recent call last)"
"""In what Prefect logs about every run that failed, also where the state of the run has the reason in one line."""
_LONGEST_LINE = 500
_LONGEST_LABEL = 200
_REMEDIES = (
    (r"time limit", "find out why the stage hangs, or raise its limit in infra/resources.yaml"),
    (r"No space left on device|Errno 28", "make room on the disk, then run again: finished stages are kept"),
    (r"\bPromotionRefused\b", "do what the reasons say, run the nightly again, then promote the branch that it makes"),
    (r"is busy, it is being blocked by", "wait for the named process or end it, then run again"),
    (r"not pushed:|no answer from the store|connect|timed? ?out", "check that store and server answer, then repeat"),
    (r"\bAuditFailed\b", "`pathfinder lineage check --remote` explains each line; `pathfinder pull` restores a run"),
    (
        r"gates failed",
        "correct the stage that wrote the file, or a wrong bound under `validate` in params.yaml",
    ),
    (r"\bkilled\b|exited with (-9|137)\b", "the process was killed, often for lack of memory; run again"),
)
_OTHERWISE = "correct the cause, then run again: stages that succeeded are not repeated"


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about one run: its name, what failed, why, the last lines that were printed, and the remedy.

    ``happened`` is "failed" or "was killed".
    """

    run: str
    stage: str
    cause: str
    lines: tuple[str, ...]
    remedy: str
    happened: str = "failed"

    @property
    def subject(self) -> str:
        """One line."""
        return f"{self.stage} {self.happened} in {self.run}" if self.stage else f"{self.run} {self.happened}"

    @property
    def text(self) -> str:
        """The whole message without the link, which the server adds."""
        return "\n".join([self.cause, *(f"    {line}" for line in self.lines), f"Remedy: {self.remedy}"])

    def as_event(self, flow_run: str, tags: Iterable[str], **more: object) -> dict[str, Any]:
        """Prefect's event about the flow run, which its tags and labels tell the automations of the server.

        The payload has the message ready to be sent, and ``more``.
        """
        named = {"prefect.resource.id": f"prefect.flow-run.{flow_run}", "prefect.resource.name": self.run}
        role = {"prefect.resource.role": "tag"}
        message = {**asdict(self), "lines": list(self.lines), "subject": self.subject, "text": self.text}
        return {
            "event": EVENT,
            "resource": {**named, "prefect.state-message": self.cause[:_LONGEST_LABEL]},
            "related": [{**role, "prefect.resource.id": f"prefect.tag.{name}"} for name in sorted(tags)],
            "payload": {**message, **more},
        }


def notice(run: str, error: BaseException | None, message: str, lines: Sequence[str]) -> Notice:
    """The notice of a run that ended with ``error``; ``message`` is its final state's, and ``lines`` end its log."""
    failures: dict[str, str] = getattr(error, "failures", {})
    cause = "; ".join(f"{name}: {reason}" for name, reason in failures.items()) or message
    shown, advice = _shown(Path.cwd(), [*failures], lines), remedy(f"{type(error).__name__}: {cause}")
    return Notice(run, ", ".join(failures), cause, shown, advice)


def killed_notice(run: str, stages: Sequence[str], cause: str, root: Path, lines: Sequence[str]) -> Notice:
    """The notice of a run that its guardian reports: ``stages`` ran in ``root``, and ``lines`` end the run's log."""
    what, happened = cause.partition(":")[0], "was killed" if cause.startswith("its process was killed") else "failed"
    return Notice(run, ", ".join(stages), cause, _shown(root, stages, lines), remedy(what), happened)


def remedy(text: str) -> str:
    """Advice about a failure, in one line."""
    return next((advice for pattern, advice in _REMEDIES if re.search(pattern, text)), _OTHERWISE)


def _shown(root: Path, stages: Sequence[str], lines: Sequence[str]) -> tuple[str, ...]:
    """The last lines that the first of ``stages`` printed or, without any, the last of ``lines``."""
    for stage in stages[:1]:
        with contextlib.suppress(OSError):
            lines = (root / log_path(stage)).read_text(encoding="utf-8", errors="replace").splitlines() or lines
    return tuple(line[:_LONGEST_LINE] for line in lines[-MOST_LINES:])
