"""The Prefect server that runs report to: version, clock, and work pools without workers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx

from evidence.dvc.pipeline import read_pipeline
from flows import server
from flows.team.pools.table import needs
from ground.io import DataError
from ground.settings import TRUST, certificate_fault
from infra.doctor.finding import Finding, clock

STAGE = "flows/team/pools/flow.py:stage"
"""The flow of the deployments that compute single stages (prefect.yaml)."""

CLOUD = "https://api.prefect.cloud/"
"""Prefect Cloud, which names no version."""


def findings(root: Path) -> list[Finding]:
    """Check the server that ``PREFECT_API_URL``, Prefect's profile or this folder names."""
    try:
        url = server.known(root)
    except DataError as error:
        return [Finding("server", str(error), "correct PREFECT_API_URL")]
    if url is None:
        return [Finding("server", "none is named, so each run starts its own")]
    _, headers = server.access()
    is_cloud = url.startswith(CLOUD)
    try:
        with server.client(url, headers) as client:
            answer = client.post("/work_pools/filter", json={}) if is_cloud else client.get("/admin/version")
            if answer.status_code in (401, 403):
                remedy = "set PREFECT_API_KEY" if is_cloud else "set PREFECT_API_AUTH_STRING=user:password"
                return [Finding("server", f"{url} refuses with status {answer.status_code}", remedy)]
            answer.raise_for_status()
            found = Finding("server", f"{url}, Prefect Cloud")
            version = found if is_cloud else compare(str(answer.json()), metadata.version("prefect"), url)
            return [version, clock("server", answer.headers.get("date")), *pools(client, root)]
    except (httpx.HTTPError, OSError, ValueError) as error:
        started = "start it (`make deploy`, docs/operations.md) or correct PREFECT_API_URL"
        remedy = TRUST.format("SSL_CERT_FILE") if certificate_fault(error) else started
        cause = str(error).partition("\n")[0] or type(error).__name__
        return [Finding("server", f"{url} does not respond as a Prefect server ({cause})", remedy)]


def compare(theirs: str, ours: str, url: str) -> Finding:
    """Check that server and client have the same version; Prefect does not support a client newer than its server."""
    remedy = "" if theirs == ours else f"this environment has Prefect {ours}: install one version in both places"
    return Finding("server", f"{url}, Prefect {theirs}", remedy)


def pools(client: httpx.Client, root: Path) -> list[Finding]:
    """The work pools that deployments use, with a remedy for each pool that cannot run anything.

    A deployment of stages counts only if infra/resources.yaml sends stages to it without a command that starts them;
    ``infra.doctor.worker`` checks that file.
    """
    away = set[str]()
    with suppress(DataError):
        away.update(need.pool for need in needs(root, read_pipeline(root)).values() if not need.launch)
    used = {
        found["work_pool_name"]
        for found in _all(client, "/deployments/filter")
        if found["entrypoint"] != STAGE or found["name"] in away
    } - {None}
    known = {found["name"]: found for found in _all(client, "/work_pools/filter")}
    if not used:
        return [Finding("pools", "no deployment uses one")]
    return [_pool(name, known.get(name)) for name in sorted(used)]


def _pool(name: str, found: dict[str, Any] | None) -> Finding:
    if found is None:
        return Finding("pool", f"{name} does not exist", f"prefect work-pool create {name} --type process")
    if found["is_paused"]:
        return Finding("pool", f"{name} is paused", f"prefect work-pool resume {name}")
    if found["status"] != "READY":
        return Finding("pool", f"{name} has no worker", f"prefect worker start --pool {name}")
    return Finding("pool", f"{name} has a worker")


def _all(client: httpx.Client, path: str) -> Iterable[dict[str, Any]]:
    offset = 0
    while page := client.post(path, json={"offset": offset, "limit": 200}).raise_for_status().json():
        yield from page
        offset += len(page)
