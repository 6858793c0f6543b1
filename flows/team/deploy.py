"""The deployments of ``prefect.yaml`` for this folder: a worker here runs them here.

Run     python -m flows.team.deploy up [--active] [--cron "0 2 * * *"]
        python -m flows.team.deploy automations | notify TARGET
        python -m flows.team.deploy down | status
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml

from flows import server
from flows.team.pools import table
from ground.io import DataError, write_text
from ground.show import Verbs, show

_WORKER_S = 90.0


def _require_cron(text: str | None) -> str | None:
    if text is not None:
        from prefect.client.schemas.schedules import CronSchedule

        try:
            CronSchedule(cron=text)
        except ValueError as error:
            raise typer.BadParameter(f'{text!r} is not a schedule; expected five fields, as in "0 2 * * *"') from error
    return text


app = typer.Typer(
    cls=Verbs,
    help="Serve the deployments of prefect.yaml from this folder, and see what is deployed.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def up(
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Activate or pause schedules (default: as they are).")
    ] = None,
    cron: Annotated[
        str | None, typer.Option(help="Schedule of the nightly (default: as it is).", callback=_require_cron)
    ] = None,
) -> None:
    """Deploy, or update what is deployed; start a worker and, unless Prefect's settings name one, a server.

    Refuses to report success before the worker reports to the server.
    """
    from flows.team.deployment import definition

    root = Path.cwd()
    deployed = list(definition.names(root))
    if (url := server.named()) is None:
        with server.starting(root):
            url = (server.recorded(root, "server") or server.start_server(root)).url
    with definition.connected(root, url) as client:
        definition.ensure_pool(client, root)
        present = definition.present(client, root).values()
        variables = {found.name: found.job_variables.get("env", {}) for found in present}
        file = root / server.HOME / "prefect.yaml"
        write_text(file, yaml.safe_dump(definition.adjusted(root, variables)))
        words = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(file)]
        own = {**os.environ, **server.environment(root, url)}
        done = subprocess.run(words, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DataError(f"`prefect {' '.join(words[3:])}` failed:\n{done.stdout}{done.stderr}")
        definition.reschedule(client, root, active, cron)
        definition.equip(client, table.slots(root))
        since = datetime.now(UTC)
        worker = server.recorded(root, "worker")
        if worker is None or worker.url != url or not definition.wait_for_worker(client, root, since, _WORKER_S / 2):
            server.stop(root, "worker")
            pool = definition.pool_name(root)
            command = ["prefect", "worker", "start", "--pool", pool, "--type", "process", "--name", pool]
            server.start(root, "worker", command, url)
            if not definition.wait_for_worker(client, root, since, _WORKER_S):
                raise DataError(f"the worker does not report to {url}; see {server.HOME}/worker.log")
    are = "is" if len(deployed) == 1 else "are"
    print(f"{', '.join(deployed)} {are} deployed at {url.removesuffix('/api')}; start a run with")
    print(f"  PREFECT_API_URL={url} prefect deployment run {deployed[0]}")


@app.command()
def down() -> None:
    """Delete this folder's deployments and stop the worker with its flow runs, and the server if `up` started it."""
    root = Path.cwd()
    server.stop(root, "worker")
    try:
        if url := server.known(root):
            from flows.team.deployment import definition

            with definition.connected(root, url) as client:
                print(f"deleted: {', '.join(definition.remove(client, root)) or 'nothing'}")
        else:
            print("nothing was deleted: no server of this folder is running")
    finally:
        server.stop(root, "server")


@app.command()
def automations() -> None:
    """For a team's server, after `prefect deploy --all`: end lost runs, make slots, order queues.

    `up` does the same for its own server.
    """
    from flows.team.deployment import definition

    wanted = table.slots(Path.cwd())
    with definition.connected(Path.cwd()) as client:
        definition.equip(client, wanted)
    print("runs without a heartbeat end after 90 s, also canceled ones: the automations `pathfinder runs: …`")
    print(f"slots: {', '.join(f'{name} {number}' for name, number in wanted.items()) or 'none'}")


@app.command()
def notify(
    target: Annotated[
        str,
        typer.Argument(
            envvar="PATHFINDER_NOTIFY",
            help="A webhook's address, or a block of the server as TYPE/NAME, for example slack-webhook/team.",
        ),
    ] = "",
    off: Annotated[bool, typer.Option("--off", help="Switch notices off.")] = False,
) -> None:
    """Send notices about failed, crashed, late and stuck runs; the server stores the address and sends them.

    Set PATHFINDER_NOTIFY to an address that contains a secret: a command line is visible to other users. Refuses a name
    that the server does not know.
    """
    from flows.team.deployment import definition
    from flows.team.notices import automations as notices

    if not (target or off):
        raise DataError("no receiver: name an address or a block, set PATHFINDER_NOTIFY, or use --off")
    with definition.connected(Path.cwd()) as client:
        notices.notify(client, None if off else notices.target(target))
    print("notices are off" if off else "the server sends notices: the automations `pathfinder notices: …`")


@app.command()
def status() -> None:
    """Print what `pathfinder team` prints: server, worker, deployments, slots, queue and leases."""
    from flows.team import view

    show(None, False, view.state(Path.cwd()))


if __name__ == "__main__":
    app()
