"""The miniature project with two runs, each committed: the second with another rate and other code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.evidence.record.conftest import made, project
from tests.support.miniature import dvc
from tests.support.scratch import once

__all__ = ["made", "project"]


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def twice(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests must not change it. HEAD~1 has the first run's lock, HEAD the second's."""
    return once(tmp_path_factory, "twice", lambda folder: _run_again(made, folder))


def _run_again(made: Path, folder: Path) -> None:
    shutil.copytree(made, folder)
    stage = folder / "stages/train.py"
    git(folder, "add", "dvc.lock")
    git(folder, "commit", "-qm", "first run")
    (folder / "params.yaml").write_text("train: {rate: 0.25, note: 'Ünïcode <+>'}\n")
    (folder / "pathfinder/mixing/mix.py").write_text(
        'import os\n\n\ndef mix(corpus, variant, rate):\n    suffix = os.environ.get("SUFFIX", "")\n'
        '    return f"{variant} {rate} {len(corpus)}{suffix}"\n'
    )
    shifted = '{"loss": rate + float(__import__("os").environ.get("SHIFT", 0))}'
    stage.write_text(stage.read_text().replace('{"loss": rate}', shifted))
    git(folder, "commit", "-qam", "second rate")
    dvc(folder, "repro", "-q")
    git(folder, "commit", "-qam", "second run")
