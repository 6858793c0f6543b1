"""Clones of a project on several machines: they share a git remote, a bucket and a Prefect server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evidence.record.signing import own_public_keys
from flows import server
from tests.support.miniature import GIT, ROOT, dvc, miniature
from tests.support.prefect_cli import prefect_commands
from tests.support.s3 import s3_bucket, s3_environment, s3_server

POOLS = {"download": "cpu", "train@full": "gpu", "train@plain": "judge"}
_WORKER = (sys.executable, "-m", "prefect", "worker", "start", "--type", "process")
_CONFIG = """\
[core]
    remote = storage
    analytics = false
[cache]
    type = copy
['remote "embedded"']
    url = ../world
['remote "storage"']
    url = ../.pathfinder/storage
"""
_SLEEP = """\
    if rate == 0.125:
        import os, time
        Path("pid.txt").write_text(f"{os.getpid()}\\n")
        time.sleep(900)
    if card_s := yaml.safe_load(Path("params.yaml").read_text())["train"].get("card_s"):
        import time
        time.sleep(card_s)
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A git remote, a bucket and a Prefect server, and the folder below which clones are made."""

    folder: Path
    origin: Path
    environment: Mapping[str, str]
    url: str
    patience_s: float = 600.0

    def clone(self, name: str) -> Path:
        """A clone, as someone else makes it."""
        subprocess.run(["git", "clone", "-q", str(self.origin), str(self.folder / name)], check=True)
        return self.folder / name

    def start(self, clone: Path, *words: str, **more: str) -> subprocess.Popen[str]:
        """Run Python in a clone, with the code of the clone."""
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=clone,
            env={**self.environment, "PYTHONPATH": str(clone), **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, clone: Path, *words: str, code: int = 0, **more: str) -> str:
        """Run Python in a clone; returns its output."""
        process = self.start(clone, *words, **more)
        output, _ = process.communicate(timeout=self.patience_s)
        assert process.returncode == code, output
        return output

    @contextmanager
    def worker(self, pool: str, name: str = "worker", **more: str) -> Iterator[Path]:
        """A worker of a pool with ``more`` variables; yields the folder with its clones."""
        folder = self.folder / f"{name}-{pool}"
        folder.mkdir()
        process = start_worker(pool, folder, {**self.environment, "PATHFINDER_CLONES": str(folder), **more})
        try:
            yield folder
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def project(folder: Path, resources: str) -> Path:
    """The miniature project with the whole code and a table of resources, committed."""
    made = folder / "made"
    miniature(made)
    target = folder / "project"
    target.mkdir()
    files = ("dvc.yaml", "params.yaml", "evidence.toml", ".gitignore", ".dvcignore", "data.dvc")
    for name in ("stages", "data", "infra", *files):
        source = made / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target / name)
    shutil.copy(ROOT / "prefect.yaml", target)
    for name in ("ground", "pathfinder", "evidence", "extras", "world", "flows"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(made / "pathfinder/mixing", target / "pathfinder/mixing")
    shutil.copytree(ROOT / "infra/profiles", target / "infra/profiles")
    train = target / "stages/train.py"
    train.write_text(train.read_text().replace("    if rate > 1:\n", f"{_SLEEP}    if rate > 1:\n"))
    (target / "infra/resources.yaml").write_text(resources)
    (target / "infra/keys").mkdir(exist_ok=True)
    (target / "infra/keys/person.pem").write_bytes(own_public_keys()[0])  # machines trust whoever starts the run
    (target / ".dvc").mkdir()
    (target / ".dvc/config").write_text(_CONFIG)
    (target / ".gitignore").write_text((target / ".gitignore").read_text() + "/pid.txt\n")
    (target / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    (target / "data.dvc").write_text((target / "data.dvc").read_text().rstrip() + "\n  remote: embedded\n")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=target, check=True)
    dvc(target, "commit", "-q", "--force", "data.dvc")
    dvc(target, "push", "-q", "data.dvc")
    subprocess.run([*GIT, "add", "-A"], cwd=target, check=True)
    subprocess.run([*GIT, "commit", "-qm", "project"], cwd=target, check=True)
    return target


@contextmanager
def site(folder: Path, committed: Path, patience_s: float = 600.0) -> Iterator[Site]:
    """A committed project in a git remote, its server with a deployment for each pool, and a bucket."""
    origin = folder / "origin.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(committed), str(origin)], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PATHFINDER_R"))}
    with s3_server() as endpoint:
        remote = s3_bucket(endpoint)
        url = server.start_server(folder).url
        try:
            bucket = {**s3_environment(endpoint), "PATHFINDER_REMOTE": remote, "DVC_NO_ANALYTICS": "1"}
            environment = {**kept, **server.environment(folder, url), **bucket, "OMP_NUM_THREADS": "1"}
            environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            found = Site(folder, origin, environment, url, patience_s)
            found.run(found.clone("deployer"), *deployment(POOLS.values(), origin, environment))
            yield found
        finally:
            server.stop(folder, "server")


def start_worker(pool: str, folder: Path, environment: Mapping[str, str], *words: str) -> subprocess.Popen[bytes]:
    """Start a worker of a pool in ``folder``, where log.txt is its log."""
    with (folder / "log.txt").open("w") as log:
        return subprocess.Popen(
            [*_WORKER, "--pool", f"pathfinder-{pool}", *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def deployment(pools: Collection[str], origin: Path, environment: Mapping[str, str]) -> list[str]:
    """Python's arguments to deploy the pools' part of prefect.yaml with the commands in its head."""
    places = {
        "repository": origin.as_uri(),
        "remote": environment["PATHFINDER_REMOTE"],
        "s3_endpoint": environment["PATHFINDER_S3_ENDPOINT"],
        "folder": "unused",
    }
    made = [["work-pool", "create", f"pathfinder-{pool}", "--type", "process"] for pool in pools]
    named = [["variable", "set", f"pathfinder_{name}", text] for name, text in places.items()]
    wanted = [word for pool in pools for word in ("-n", pool)]
    return prefect_commands([*made, *named, ["--no-prompt", "deploy", *wanted]])
