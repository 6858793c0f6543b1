"""A pool behind a real Slurm controller: `srun` starts the order, and the end of the run ends the job.

Debian has the programs in `slurm-wlm`. One node suffices: the clone in which the order runs plays the other machine.
"""

from __future__ import annotations

import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from threading import Thread

import pytest

from flows.dvc import Cancelled
from flows.places import WorkerLost
from tests.flows.conftest import Project, make_project, project
from tests.flows.test_launch import Machines, machines
from tests.flows.watch import soon

__all__ = ["machines", "make_project", "project"]
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm (Debian: slurm-wlm)"),
]
CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cluster of one node; its programs find it by ``SLURM_CONF``."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (one, other)]
    (folder / "slurm.conf").write_text(CONF.format(host=platform.node(), folder=folder, ports=ports))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        daemons = [subprocess.Popen([name, "-D"], stderr=subprocess.DEVNULL) for name in ("slurmctld", "slurmd")]
        try:
            assert soon(lambda: "idle" in said("sinfo"), 60)
            yield
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(60)


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


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
