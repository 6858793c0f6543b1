"""The start of a run: the lock of the folder, what is out of date, and signals. Prefect is imported only for work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK, read_lock
from flows.local import storage
from flows.local.dvc import Cancelled, Dvc, require_project
from flows.local.graph import load_graph, missing_data, out_of_date
from flows.local.lock import held
from flows.terminal import Terminal


def main(targets: Sequence[str], force: bool = False, pull: bool = False, jobs: int = 0) -> None:
    """Run the flow and end it cleanly on a signal.

    Raises ``PathfinderError`` as ``start`` does, and ``SystemExit`` if a stage failed or the run was interrupted.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        status = start(targets, force, pull, jobs)
    except (KeyboardInterrupt, Cancelled):
        status = 128 + signal.SIGINT
    except SystemExit as ended:  # raised by the handler above
        status = int(ended.code or 0)
    if status > 128:
        print("interrupted; repeat the command to resume", file=sys.stderr)
    if status:
        sys.exit(status)


def start(targets: Sequence[str], force: bool = False, pull: bool = False, jobs: int = 0) -> int:
    """Run the flow if anything is out of date, on a server that exists or is started for the run.

    Returns the exit status. Raises ``PathfinderError`` if the project or a target is not valid, or the storage fails.
    """
    root, terminal = Path.cwd(), Terminal()
    require_project(root)
    with held(root) as hold:
        graph = load_graph(root)
        address = storage.configure(root)
        if (root / MAIN_LOCK).exists():
            read_lock(root)  # DVC would refuse a damaged file later, without a reason
        selected = graph.select(targets)
        reports = hold.previous or hold.ended  # the flow also reports what a killed run left
        outs = (root / out for name in selected for out in graph.stages[name].all_outs)
        absent = missing_data(root) or not all(map(Path.exists, outs))  # asking DVC takes seconds
        if force or reports or absent or out_of_date(graph, Dvc(root).status()) & selected:
            from flows import server

            storage.preflight(root, address)
            server.require_space(root)
            with server.local_server(root) as url:
                from flows.reproduce import run_on_server  # imports Prefect

                return run_on_server(url, root, hold, targets, force, pull, jobs)
        terminal.print("pathfinder", f"nothing to do, everything is up to date ({len(selected)} stages)")
        if storage.is_pending(root, address) and selected == graph.select(()):
            terminal.print("storage", f"pushing outputs that {address} does not have")
            storage.preflight(root, address)
            Dvc(root).push(*sorted(selected))
            storage.publish(root, address)
        terminal.where(root)
        return 0
