"""The cost of Prefect and the flow besides DVC and the stages: 33 stages on a live server, run and up to date."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flows import server
from tests.flows.conftest import Project

STAGES = 33
PIPELINE = """\
stages:
  number:
    matrix: {{number: [{numbers}]}}
    cmd: echo ${{item.number}} > ${{item.number}}.txt
    outs: ["${{item.number}}.txt"]
"""
MEASURE = """\
import json, threading, time
from flows.local import dvc
from flows.reproduce import reproduce

spans, run = [], dvc.Dvc._run

def timed(self, *arguments, **options):
    begun = time.monotonic()
    try:
        return run(self, *arguments, **options)
    finally:
        spans.append((begun, time.monotonic()))

dvc.Dvc._run = timed
begun, cpu = time.monotonic(), time.process_time()
rows = reproduce((), False, False, 1)
end, cpu = time.monotonic(), time.process_time() - cpu
busy, last = 0.0, begun
for first, final in sorted(spans):
    busy += max(0.0, final - max(first, last))
    last = max(last, final)
result = {"states": sorted({row["state"] for row in rows}), "cpu": cpu, "besides": end - begun - busy}
print("\\n" + json.dumps({**result, "stages": len(rows), "wall": end - begun}))
"""


def measured(project: Project) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(project.run("-c", MEASURE).splitlines()[-1])
    print(f"\n{figures}")
    return figures


@pytest.mark.campaign
def test_a_stage_costs_less_than_half_a_second_and_a_run_without_work_less_than_three(
    make_project: Callable[[], Project],
) -> None:
    project = make_project()
    (project.root / "dvc.yaml").write_text(PIPELINE.format(numbers=", ".join(map(str, range(STAGES)))))
    service = server.start_server(project.root)
    try:
        project = replace(project, environment={**project.environment, "PREFECT_API_URL": service.url})
        ran, up_to_date = measured(project), measured(project)
    finally:
        server.stop(project.root, "server")
    assert (ran["states"], ran["stages"]) == (["ran"], STAGES)
    assert (up_to_date["states"], up_to_date["stages"]) == (["up to date"], STAGES)
    # Wall times depend on what else the machine does.
    assert up_to_date["cpu"] < 3
    assert ran["cpu"] / STAGES < 0.5
