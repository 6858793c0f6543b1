"""SkyPilot's task passes a signed order to the command of a stage; programs that note their words play the cloud."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

from flows.team.pools.table import Needs

TASK = Path(__file__).resolve().parents[2] / "infra/sky.yaml"
ORDER = '{"payload": "eyJh\\"$(touch x)`", "signatures": []}\n' * 200
_SKY = """\
#!/bin/bash
for word; do case $word in ORDER=*) export "$word";; esac; done
bash "$RUN"
echo "$@" >> words
"""
_PYTHON = """\
#!/bin/bash
echo "$@" > ../words
cat > ../received
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_the_launcher_of_its_comment_gives_a_stage_the_order(tmp_path: Path) -> None:
    text = TASK.read_text()
    lines = [line.removeprefix("#") for line in text.splitlines() if line.startswith("#   ")]
    task, launch = yaml.safe_load(text), yaml.safe_load("\n".join(lines))["launch"]["sky"]
    program(tmp_path / "bin/sky", _SKY)
    program(tmp_path / "pathfinder-prm/.venv/bin/python", _PYTHON)
    (tmp_path / "run").write_text(task["run"])
    (tmp_path / "order.json").write_text(ORDER)
    subprocess.run(
        Needs(pool="sky", launch=launch).command("train@full", "order.json"),
        cwd=tmp_path,
        env={"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "RUN": str(tmp_path / "run")},
        check=True,
    )
    module, words = (tmp_path / "words").read_text().splitlines()
    assert module == "-m flows.team.pools.stage --order -"
    assert words.split()[:3] == ["launch", "--yes", "--down"]
    assert words.endswith("infra/sky.yaml")
    assert (tmp_path / "received").read_text() == ORDER
    assert set(task["envs"]) == {"ORDER", "REPOSITORY"}
