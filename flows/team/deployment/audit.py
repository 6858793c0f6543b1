"""The audit as a flow: ``pathfinder lineage check --remote`` in the working folder, whose findings fail the run."""

from __future__ import annotations

from pathlib import Path

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run

from evidence.verbs.check import EXIT
from flows.endings import held_by_flow
from flows.local.dvc import Dvc, DvcError
from flows.team.notices.hooks import tell
from flows.terminal import flow_output
from ground.io import PathfinderError

_MOST_LINES = 200


class AuditFailed(PathfinderError, RuntimeError):
    """The audit found differences or could not be made; the message has the first one and the count."""


def run_name() -> str:
    """The name of an audit, which says how much it reads."""
    options = [option for option in ("full", "strict") if flow_run.get_parameters().get(option)]
    return " ".join(["check", *options])


@flow(name="audit", flow_run_name=run_name, persist_result=False, on_failure=[tell], on_crashed=[tell])
def audit(full: bool = False, strict: bool = False) -> str:
    """Hash everything behind the results again, in the folder and on the remote; returns the last line.

    Args:
        full: Read every byte on the remote too, not only its listing, records and log.
        strict: Treat a stage without a signed record as a difference.

    A run without signed records is UNSIGNED in the last line, and fails only with ``strict``. Raises ``AuditFailed``,
    and ``DataError`` if a run is in progress in this folder.
    """
    root, say = Path.cwd(), flow_output("audit")
    options = [f"--{name}" for name, wanted in (("full", full), ("strict", strict)) if wanted]
    command, lines, code = ["check", "--remote", *options], list[str](), 0

    def heard(line: str) -> None:
        lines.append(line)
        say(line)

    with held_by_flow(root, say):
        try:
            Dvc(root).call("evidence", *command, on_line=heard)
        except DvcError as error:
            code = error.code
    shown = "\n".join(f"    {line}" for line in lines[-_MOST_LINES:])
    create_markdown_artifact(f"`pathfinder lineage {' '.join(command)}`\n\n{shown}\n", key="audit")
    if code not in (EXIT["SOUND"], EXIT["UNSIGNED"]):
        last = lines[-1] if lines else f"exit status {code}"
        found = [line for line in lines if line.startswith("error") and code == EXIT["ALTERED"]]
        raise AuditFailed(f"{found[0]} ({last})" if found else last)
    return lines[-1]
