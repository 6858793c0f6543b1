"""The deployments of prefect.yaml, adjusted to this folder.

Several clones may share one Prefect server, so names end in the clone's own id: a worker must never run the deployment
of another folder. The remote and the frequency of heartbeats become part of the deployment: a worker that is restarted
from another shell does not change them.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flows import server
from flows.local.storage import DEFAULT, REMOTE
from ground.io import DataError, sha256_of
from ground.remote import ENDPOINT
from ground.settings import read_yaml

FILE = Path("prefect.yaml")
NIGHTLY = "nightly"
_POOLS = "flows/team/pools/"


def clone_id(root: Path) -> str:
    """The folder's name and six digits that host and path decide."""
    folder = root.absolute()
    digest = sha256_of(f"{platform.node()}:{folder}".encode())
    return f"{re.sub(r'[^a-z0-9]+', '-', folder.name.lower()).strip('-') or 'clone'}-{digest[:6]}"


def pool_name(root: Path) -> str:
    """The work pool that only the worker of this folder serves."""
    return f"pathfinder-{clone_id(root)}"


def names(root: Path) -> Iterator[tuple[str, str]]:
    """Flow and deployment name of each deployment of this folder; raises ``DataError`` if prefect.yaml is not valid."""
    for deployment in _deployments(root):
        yield deployment["entrypoint"].rpartition(":")[2], f"{deployment['name']}-{clone_id(root)}"


def adjusted(root: Path, present: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The content of prefect.yaml for this folder; raises ``DataError`` if the file is not valid.

    ``present`` are the deployments that exist, with the variables of their runs. They keep their schedules, and their
    remote unless the environment names one.
    """
    deployments = _deployments(root)
    for deployment in deployments:
        deployment["name"] += f"-{clone_id(root)}"
        kept = present.get(deployment["name"])
        if kept is not None:
            deployment.pop("schedules", None)
        deployment["pull"] = [{"prefect.deployments.steps.set_working_directory": {"directory": str(root.absolute())}}]
        # A new deployment takes the remote of the others. Deployments may share one pool in YAML, so each gets a copy.
        known = [found for found in (kept, *present.values()) if found is not None]
        pool = deployment.get("work_pool", {})
        variables = {**pool.get("job_variables", {}), "env": _variables(known[0] if known else {})}
        deployment["work_pool"] = {**pool, "name": pool_name(root), "job_variables": variables}
    return {**read_yaml(root / FILE), "deployments": deployments}


def _variables(kept: Mapping[str, str]) -> dict[str, str]:
    remote = os.environ.get(REMOTE, "").strip()
    named = {REMOTE: remote, ENDPOINT: os.environ.get(ENDPOINT, "").strip()}
    places = named if remote or not kept.get(REMOTE) else {name: kept.get(name, "") for name in named}
    places[REMOTE] = places[REMOTE] or str(DEFAULT)
    return {**places, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(server.HEARTBEAT_S)}


def _deployments(root: Path) -> list[dict[str, Any]]:
    found = read_yaml(root / FILE).get("deployments")
    if not found or not all(isinstance(item, dict) and {"name", "entrypoint"} <= item.keys() for item in found):
        raise DataError(
            f"{root / FILE}: every deployment needs a name and an entrypoint; restore it with `git checkout`"
        )
    return [item for item in found if not item["entrypoint"].startswith(_POOLS)]  # not for one machine
