"""A pool behind a real Slurm controller: `srun` starts the order, and the end of the run ends the job.

The clone in which the order runs plays the other machine.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from threading import Thread

import pytest

from flows.local.dvc import Cancelled
from flows.places import WorkerLost
from tests.flows.conftest import Project, make_project, project
from tests.flows.test_launch import Machines, machines
from tests.flows.watch import soon
from tests.support.slurm import cluster, needs_slurm, said

__all__ = ["machines", "make_project", "project"]
pytestmark = [pytest.mark.campaign, needs_slurm]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with cluster(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.mark.usefixtures("slurm")
def test_a_stage_runs_as_a_job_of_slurm(machines: Machines, project: Project) -> None:
    command = machines.away.needs["square@even"].launch
    machines.launch(f"srun -J {{stage}} -t {{minutes}} {command}")
    project.ran()
    assert machines.ask() == "ran"
    assert (project.ran(), (project.root / "out/even.txt").read_text()) == ([], "0\n4\n16\n36\n64\n")


@pytest.mark.usefixtures("slurm")
def test_the_end_of_a_run_cancels_its_job_and_a_canceled_job_is_a_lost_worker(machines: Machines) -> None:
    machines.launch("srun -J {stage} sleep 600")
    ends: list[type[BaseException]] = []

    def started() -> bool:
        return "square@even R" in said("squeue", "-h", "-o", "%j %t")

    def asked() -> Thread:
        thread = machines.asked(ends)
        assert soon(started, 60)
        return thread

    thread = asked()
    subprocess.run(["scancel", "-n", "square@even"], check=True)
    thread.join(60)
    assert ends == [WorkerLost]
    assert soon(lambda: not said("squeue", "-h"), 60)
    thread = asked()
    machines.away.stop()
    thread.join(60)
    start = time.monotonic()
    assert ends == [WorkerLost, Cancelled]
    assert soon(lambda: not said("squeue", "-h"), 60), time.monotonic() - start
