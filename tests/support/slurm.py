"""A Slurm cluster on this machine: a controller and several nodes. Debian has the programs in `slurm-wlm`."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flows.watch import soon
from tests.support.servers import free_ports

NODES = ("one", "two")
needs_slurm = pytest.mark.skipif(
    shutil.which("slurmctld") is None or os.geteuid() != 0,
    reason="needs Slurm (apt-get install slurm-wlm) and root, as whom its nodes run",
)
_CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
KillWait=5
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=2048
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=2048
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def cluster(folder: Path, prolog: str = "") -> Iterator[None]:
    """A cluster with its files in an empty folder; Slurm's programs find it by ``SLURM_CONF``.

    Each node has one core and 2 GiB. It runs ``prolog``, a shell script, before each task: a line `export NAME=VALUE`
    that this prints gives the task a variable. The script's ``SLURMD_NODENAME`` is the node.
    """
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    (folder / "prolog").write_text(f"#!/bin/sh\n{prolog}\n")
    (folder / "prolog").chmod(0o755)
    conf = _CONF.format(host=platform.node(), folder=folder, ports=free_ports(1 + len(NODES)))
    (folder / "slurm.conf").write_text(conf)
    commands = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", node] for node in NODES)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        daemons = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
        try:
            assert soon(lambda: said("sinfo", "-h", "-o", "%D %t").split() == [str(len(NODES)), "idle"], 60)
            yield
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(60)


def said(*command: str) -> str:
    """What a command prints, whatever its exit status."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def jobs() -> dict[str, tuple[str, str]]:
    """The state and the node of the last job of each name, for five minutes after its end."""
    found = re.findall(
        r"^JobId=.*? JobName=(\S+).*? JobState=(\S+).*? NodeList=(\S+)", said("scontrol", "-o", "show", "job"), re.M
    )
    return {name: (state, node) for name, state, node in found}
