"""The containers of Prefect's two charts with the values of infra/kubernetes, as ``helm template`` renders them.

Run     python -m tests.support.charts SERVER_CHART WORKER_CHART

It needs Helm 3 and both charts with their dependencies, for example from ``helm pull prefect/prefect-server --untar``.
It writes ``RENDERED`` with the digest of the values. The tests read that file without Helm or a network.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "infra/kubernetes"
RENDERED = ROOT / "tests/infra/charts.json"
_TEMPLATE = f"worker.config.baseJobTemplate.configuration={KUBERNETES / 'job-template.json'}"
_KEPT = ("image", "command", "args", "resources", "securityContext")


def digest_of_values() -> str:
    """The digest of the values that the charts are rendered with; comments do not count."""
    values = [yaml.safe_load((KUBERNETES / f"{name}-values.yaml").read_text()) for name in ("server", "worker")]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def containers(chart: Path, values: str, *more: str) -> Iterator[dict[str, Any]]:
    """The containers of a chart's pods: how they start, their limits, and the names of their variables."""
    command = ["helm", "template", "release", str(chart), "--namespace", "pathfinder"]
    command += ["--values", str(KUBERNETES / values), *more]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for resource in yaml.safe_load_all(text):
        pod = (resource or {}).get("spec", {}).get("template", {}).get("spec", {})
        for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
            names = [variable["name"] for variable in container.get("env", [])]
            kept = {key: container[key] for key in _KEPT if key in container}
            yield {"chart": chart.name, "name": container["name"], **kept, "env": names}


def main(server: str, worker: str) -> None:
    """Write the containers of both charts."""
    found = [
        *containers(Path(server), "server-values.yaml"),
        *containers(Path(worker), "worker-values.yaml", "--set-file", _TEMPLATE),
    ]
    text = json.dumps({"values": digest_of_values(), "containers": found}, indent=1)
    RENDERED.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
