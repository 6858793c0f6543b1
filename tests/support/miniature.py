"""A miniature project that real DVC runs: shipped data, a download, and two variants of a model trained on it.

It has the shape of the real one: stages made by ``@stage``, rooms below ``pathfinder/``, locked packages. One module,
``infra/kinds.py``, is no dependency of the stage that imports it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from evidence.record.signing import KEY_FILE
from tests.support import warm

ROOT = Path(__file__).resolve().parents[2]
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
"""A command that can commit."""
_DOWNLOAD = """
from pathlib import Path
from ground.io import sha256_file, write_json
from evidence.record.stage import stage
from infra.kinds import SHIPPED

@stage
def main():
    origin, target = Path("data/corpus"), Path("artifacts/raw/corpus")
    files = {}
    for path in sorted(origin.rglob("*.txt")):
        copy = target / path.relative_to(origin)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        files[path.relative_to(origin).as_posix()] = {"sha256": sha256_file(copy), "bytes": copy.stat().st_size}
    source = {"kind": SHIPPED, "location": "data/corpus", "revision": None, "licence": "Apache-2.0", "files": files}
    write_json(Path("artifacts/raw/manifest.json"), {"corpus": source})

if __name__ == "__main__":
    main()
"""
_TRAIN = '''
"""Train one variant."""
from pathlib import Path
from typing import Annotated
import yaml
from ground.io import DataError, write_json, write_text
from pathfinder.mixing.mix import mix
from evidence.record.stage import stage

@stage
def main(variant: Annotated[str, "a variant of the model"]) -> None:
    rate = yaml.safe_load(Path("params.yaml").read_text())["train"]["rate"]
    if rate > 1:
        raise DataError(f"params.yaml: rate is {rate}; expected at most 1")
    corpus = "".join(path.read_text() for path in sorted(Path("artifacts/raw/corpus").rglob("*.txt")))
    write_text(Path("models", variant, "weights.txt"), mix(corpus, variant, rate))
    write_json(Path("metrics", "train", f"{variant}.json"), {"loss": rate})

if __name__ == "__main__":
    main()
'''
_MIX = """
def mix(corpus, variant, rate):
    return f"{variant} {rate} {len(corpus)}"
"""
_DVC_YAML = """
stages:
  download:
    cmd: python -m stages.download
    deps: [data, stages/download.py, stages/__init__.py, ground, infra/locks]
    outs: [artifacts/raw]
  train:
    matrix: {variant: [full, plain]}
    cmd: python -m stages.train ${item.variant}
    deps: [artifacts/raw/corpus, stages/train.py, stages/__init__.py, pathfinder/__init__.py,
           ground, pathfinder/mixing, infra/locks]
    params: [train]
    outs: ['models/${item.variant}']
    metrics: ['metrics/train/${item.variant}.json']
"""
_FILES = {
    "stages/__init__.py": "",
    "stages/download.py": _DOWNLOAD,
    "infra/kinds.py": 'SHIPPED = "shipped"\n',
    "stages/train.py": _TRAIN,
    "pathfinder/__init__.py": "",
    "pathfinder/mixing/__init__.py": "",
    "pathfinder/mixing/mix.py": _MIX,
    "infra/locks/cpu.lock": f"pydantic=={metadata.version('pydantic')} --hash=sha256:0123\n",
    "dvc.yaml": _DVC_YAML,
    "params.yaml": "train: {rate: 0.5, note: 'Ünïcode <+>'}\n",
    "data/corpus/one.txt": "one\n",
    "data/corpus/b/two.txt": "two \u2028 lines\n",
    "data/corpus/b-side.txt": "sorts before b/two as text and after it as a path\n",
    ".gitignore": "/artifacts\n/models\n/metrics\n/.pathfinder\n__pycache__\n",
}


def run_in(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python there with these arguments, on the project's own code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PATHFINDER_") or name == KEY_FILE}
    environment = kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "1",
    }
    # A stage starts as usual: its record names the modules that it imported.
    start = warm.run if command[:2] == ("-m", "dvc") else subprocess.run
    return start([sys.executable, *command], cwd=project, env=environment, capture_output=True, text=True)


def dvc(project: Path, *words: str) -> str:
    """Run DVC there; a failure shows its output."""
    done = run_in(project, "-m", "dvc", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def miniature(project: Path) -> Path:
    """Make the project in ``project``, a new folder, and run it once."""
    for room in ("ground", "evidence", "pathfinder/core"):
        shutil.copytree(ROOT / room, project / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in _FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    dvc(project, "init", "-q")
    for name in (".dvcignore", "evidence.toml"):
        shutil.copyfile(ROOT / name, project / name)
    dvc(project, "add", "-q", "data")
    subprocess.run([*GIT, "add", "-A"], cwd=project, check=True)
    subprocess.run([*GIT, "commit", "-qm", "project"], cwd=project, check=True)
    dvc(project, "repro", "-q")
    return project
