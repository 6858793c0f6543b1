"""Every module that a person starts with ``python -m`` explains itself, and refuses unknown words, without working."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "pathfinder",
    "evidence",
    "extras",
    "world",
    "flows",
    "infra",
    "tests/campaigns/faults",
    "tests/campaigns/mutation",
    "tests/campaigns/rehearsal",
)
STARTED_BY_CODE = {
    "flows.local.guardian",
    "pathfinder.engines.workers",
    "tests.campaigns.faults.shim.server",
    "tests.campaigns.rehearsal.vllm_parent",
}
"""Modules that only other code starts. tests/stages/test_help.py has infra/pretraining and stages/."""
STAGES = {"world.corpus", "world.measure", "world.pretrain"}


def modules() -> list[str]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    starting = [path for path in paths if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
    names = [path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in starting]
    return [name.removesuffix(".__main__") for name in names if name not in STARTED_BY_CODE | STAGES]


SAMPLE = ("infra.doctor", "infra.deps")


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(name, marks=() if name in SAMPLE else pytest.mark.campaign, id=name)
        for name in [*modules(), "evidence"]
    ],
)
@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("--no-such-option", 2)])
def test_help_and_a_wrong_option_touch_nothing(module: str, word: str, status: int, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", module, word], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    shown = done.stdout if status == 0 else done.stderr
    assert "usage: " in shown.lower()
    assert f"python -m {module}" in shown
    if not module.startswith("tests."):  # argparse never breaks a long list of choices
        assert max(map(len, shown.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []
