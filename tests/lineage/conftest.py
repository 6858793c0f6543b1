"""A miniature project that real DVC runs: shipped data, a download, and two variants of a model made from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOWNLOAD = """
from pathlib import Path
from pathfinder.core.io import sha256_file, write_json
from pathfinder.provenance.record import recorded

with recorded("download"):
    origin, target = Path("data/corpus"), Path("artifacts/raw/corpus")
    files = {}
    for path in sorted(origin.rglob("*.txt")):
        copy = target / path.relative_to(origin)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        files[path.relative_to(origin).as_posix()] = {"sha256": sha256_file(copy), "bytes": copy.stat().st_size}
    source = {"kind": "shipped", "location": "data/corpus", "revision": None, "licence": "Apache-2.0", "files": files}
    write_json(Path("artifacts/raw/manifest.json"), {"corpus": source})
"""
TRAIN = """
import sys
from pathlib import Path
import yaml
from pathfinder.core.io import write_json, write_text
from stages.core.mixing import mix
from pathfinder.provenance.record import recorded

with recorded("train", sys.argv[1]):
    rate = yaml.safe_load(Path("params.yaml").read_text())["train"]["rate"]
    corpus = "".join(path.read_text() for path in sorted(Path("artifacts/raw/corpus").rglob("*.txt")))
    write_text(Path("models", sys.argv[1], "weights.txt"), mix(corpus, sys.argv[1], rate))
    write_json(Path("metrics", "train", f"{sys.argv[1]}.json"), {"loss": rate})
"""
MIXING = """
def mix(corpus, variant, rate):
    return f"{variant} {rate} {len(corpus)}"
"""
DVC_YAML = """
stages:
  download:
    cmd: python -m stages.download
    deps: [data, stages/download.py]
    outs: [artifacts/raw]
  train:
    matrix: {variant: [full, plain]}
    cmd: python -m stages.train ${item.variant}
    deps: [artifacts/raw/corpus, stages/train.py, stages/core/mixing.py]
    params: [train]
    outs: ['models/${item.variant}']
    metrics: ['metrics/train/${item.variant}.json']
"""


def dvc(project: Path, *words: str) -> str:
    """Run DVC there; a failure shows what it said."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The project after one run. Tests copy it before they touch it."""
    project = tmp_path_factory.mktemp("made") / "project"
    (project / "stages" / "core").mkdir(parents=True)
    for name in ("__init__.py", "core/__init__.py", "core/io.py"):
        shutil.copyfile(root / "stages" / name, project / "stages" / name)
    shutil.copytree(root / "stages" / "lineage", project / "stages" / "lineage")
    files = {
        "stages/download.py": DOWNLOAD,
        "stages/train.py": TRAIN,
        "stages/core/mixing.py": MIXING,
        "dvc.yaml": DVC_YAML,
        "params.yaml": "train: {rate: 0.5, note: 'Ünïcode <+>'}\n",
        "data/corpus/one.txt": "one\n",
        "data/corpus/b/two.txt": "two \u2028 lines\n",
        "data/corpus/b-side.txt": "sorts before b/two as text and after it as a path\n",
        ".gitignore": "/artifacts\n/models\n/metrics\n/.pathfinder\n__pycache__\n",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    dvc(project, "init", "-q")
    dvc(project, "add", "-q", "data")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "add", "-A"], cwd=project, check=True)
    subprocess.run([*git, "commit", "-qm", "project"], cwd=project, check=True)
    dvc(project, "repro", "-q")
    return project


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    return Path(shutil.copytree(made, tmp_path / "project"))
