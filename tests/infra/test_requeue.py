"""The batch script when its time is up: the job returns to the queue, and its work is told to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "infra/slurm/job.sbatch"
WORKERS = {"train@full": "srun", "label": "python"}
"""A job, and the program that does its work; a stand-in takes its place here, as for Slurm's ``scontrol``."""

_WORK = """#!/bin/bash
trap 'echo TERM >> ended; exit 143' TERM
echo "$@" > began
sleep {seconds} & wait $!
exit {status}
"""


@contextmanager
def started(folder: Path, job: str, seconds: float, status: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """The script as Slurm runs it: from a copy elsewhere, in the project's folder."""
    programs = folder / "programs"
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/activate").touch()
    (folder / "infra").symlink_to(ROOT / "infra")
    programs.mkdir()
    for name, text in {
        WORKERS[job]: _WORK.format(seconds=seconds, status=status),
        "scontrol": '#!/bin/bash\nif [ "$1" = show ]; then echo host; else echo "$@" >> requeued; fi\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    copy = folder / "slurm_script"
    copy.write_bytes(SCRIPT.read_bytes())
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "host", "SLURM_CPUS_PER_TASK": "4"}
    if job == "label":
        variables |= {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "1"}
    environment = os.environ | variables | {"PATH": f"{programs}:{os.environ['PATH']}"}
    with subprocess.Popen(["bash", str(copy), job], cwd=folder, env=environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def signal_before_the_limit() -> signal.Signals:
    """The signal that Slurm sends to the script before the limit."""
    (name,) = re.findall(r"^#SBATCH --signal=B:(\w+)@\d+$", SCRIPT.read_text(), re.M)
    return signal.Signals[f"SIG{name}"]


@pytest.mark.parametrize("job", WORKERS)
def test_a_job_whose_time_is_up_returns_to_the_queue(tmp_path: Path, job: str) -> None:
    with started(tmp_path, job, 60) as process:
        for _ in range(1000):
            if (tmp_path / "began").exists():
                break
            time.sleep(0.01)
        process.send_signal(signal_before_the_limit())
        assert process.wait(30) != 0
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    assert (tmp_path / "ended").read_text() == "TERM\n"


@pytest.mark.parametrize("job", WORKERS)
@pytest.mark.parametrize("status", [0, 3, 143])
def test_a_job_that_ends_in_time_has_the_status_of_its_work(tmp_path: Path, job: str, status: int) -> None:
    with started(tmp_path, job, 0.05, status) as process:
        assert process.wait(30) == status
    assert not (tmp_path / "requeued").exists()
