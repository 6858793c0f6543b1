"""The miniature project with two more stages: an export with a Croissant description, and a report with figures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.formats.lineage import Lineage, read_lineage
from tests.support.miniature import ROOT
from tests.support.scratch import once

IMAGE = "registry.example.org/team/pathfinder:1.2@sha256:" + "ab" * 32
HOSTILE = "<img src=x onerror=document.title='broken'>"
_EXPORT = f"""
from pathlib import Path
import polars as pl
from ground.io import write_json, write_text
from pathfinder.data.croissant import describe
from evidence.record.stage import stage

@stage
def main():
    folder = Path("artifacts/export")
    rows = pl.DataFrame({{"prompt": ["1 + 1"], "completions": [["2"]], "labels": [[True]]}})
    (folder / "trl").mkdir(parents=True)
    for split in ("train", "test"):
        rows.write_parquet(folder / "trl" / f"{{split}}.parquet")
    write_text(folder / "trl" / "README.md", "---\\nlicense: other\\n---\\n\\n# Steps\\n")
    write_text(folder / "{HOSTILE}.txt", "a hostile name")
    write_json(folder / "croissant.json", describe(folder, "miniature", ["Apache-2.0"]))

if __name__ == "__main__":
    main()
"""
_REPORT = f"""
from pathlib import Path
from ground.io import read_json, write_json, write_text
from evidence.record.stage import stage

@stage
def main():
    place = "metrics/train/full.json#/loss"
    score = {{"value": read_json(Path("metrics/train/full.json"))["loss"], "low": 0.1, "high": 0.9}}
    line = {{"system": "{HOSTILE}", "loss": score, "origins": {{"loss": {{"how": "copy", "of": [place]}}}}}}
    write_json(Path("reports/tables.json"), {{"results": [line]}})
    write_text(Path("reports/cards/full.md"), "---\\nlicense: apache-2.0\\n---\\n\\n# A model\\n")

if __name__ == "__main__":
    main()
"""
_STAGES = f"""
  export:
    desc: "</script><script>document.title='broken'</script> {HOSTILE}"
    cmd: python -m stages.export
    deps: [artifacts/raw, stages/export.py, ground, pathfinder/data, infra/locks]
    outs: [artifacts/export]
  report:
    cmd: python -m stages.report
    deps: [metrics/train/full.json, metrics/train/plain.json, stages/report.py, ground, infra/locks]
    outs: [reports/tables.json, reports/cards]
"""


@pytest.fixture(scope="session")
def study(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after one run; the new stages ran in a container. Tests must not change it."""
    return once(tmp_path_factory, "study", lambda project: _extend(made, project))


def _extend(made: Path, project: Path) -> None:
    shutil.copytree(made, project)
    for room in ("data", "models"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "pathfinder" / room, project / "pathfinder" / room, ignore=ignored)
    (project / "stages/export.py").write_text(_EXPORT, encoding="utf-8")
    (project / "stages/report.py").write_text(_REPORT, encoding="utf-8")
    (project / "README.md").write_text("# Miniature\n", encoding="utf-8")
    with (project / ".gitignore").open("a", encoding="utf-8") as ignore:
        ignore.write("/reports\n")
    with (project / "dvc.yaml").open("a", encoding="utf-8") as pipeline:
        pipeline.write(_STAGES)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(project)]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PATHFINDER_IMAGE": IMAGE,
        "PATHFINDER_FLOW_RUN": "66767dce-01dd-4eeb-8c84-90c2ed033fc4",
        "DVC_NO_ANALYTICS": "1",
    }
    command = [sys.executable, "-m", "dvc", "repro", "-q", "export", "report"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "a study"], check=True)


@pytest.fixture(scope="session")
def lineage(study: Path) -> Lineage:
    """The whole history of the study."""
    return read_lineage(study)
