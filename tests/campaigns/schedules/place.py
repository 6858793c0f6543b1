"""The place of the schedules: a project in git, two people's clones, machines, a store, a server, a receiver."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from evidence.record.signing import KEY_FILE
from flows import server
from flows.local.lock import LOCK
from flows.team.pools.stage import CLONES
from flows.team.pools.table import FILE
from tests.campaigns.schedules.notices import Asked, in_pools
from tests.campaigns.schedules.pool import POOL, Pool
from tests.flows.conftest import CONFIG
from tests.flows.test_operations import commands
from tests.support.miniature import GIT, ROOT
from tests.support.pools import deployment
from tests.support.receiver import Receiver

STAGE = "work"
FLOW = "flows/team/pools/flow.py"
"""The entry point of the deployments of stages, which Prefect loads from the clone; its imports come from this one."""
PEOPLE = ("ann", "bob")
MACHINES = ("m1", "m2", "m3")
ODD = ("stranger", "other-lock", "full-disk")
"""Machines that must not give a result: with a key that nobody trusts, other packages, and no room."""
_KEY = "import sys; from evidence.record.signing import own_public_keys; sys.stdout.buffer.write(own_public_keys()[0])"
_PIPELINE = f"""\
stages:
  {STAGE}:
    cmd: python -m evidence record -- python work.py
    deps: [work.py]
    params: [seed]
    outs: [out.txt]
"""
_WORK = """\
import os, pathlib, time
seed = pathlib.Path("params.yaml").read_text().split(":")[1].strip()
with open(f"{os.environ['TICKS']}/{seed}-{os.getpid()}", "w") as ticks:
    for _ in range(50):
        ticks.write(f"{time.time()}\\n")
        ticks.flush()
        time.sleep(0.1)
pathlib.Path("out.txt").write_text(f"result {seed}{os.environ.get('POISON', '')}\\n" * 9000)
"""
_LAUNCH = """\
import fcntl, json, os, sys
home = sys.argv[1]
with open(f"{home}/order.json", "r+") as turns:
    fcntl.flock(turns, fcntl.LOCK_EX)
    first, *rest = json.load(turns)
    turns.seek(0)
    turns.truncate()
    json.dump([*rest, first] if rest else [first], turns)
with open(f"{home}/workers", "a") as workers:
    workers.write(f"{os.getpid()} {first}\\n")
os.environ.update(json.load(open(f"{home}/{first}.json")))
os.chdir(f"{home}/{first}")
os.execv(sys.executable, [sys.executable, "-m", "flows.team.pools.stage", "--order", "-"])
"""
_STORE = """\
import logging, signal, sys
from tests.support.s3 import s3_bucket, s3_server
log = logging.getLogger("werkzeug")
log.setLevel(logging.INFO)
log.propagate = False
log.addHandler(logging.FileHandler(sys.argv[1]))
with s3_server() as endpoint:
    print(endpoint, s3_bucket(endpoint), flush=True)
    signal.pause()
"""


@dataclass
class Place:
    """The folder of everything, the variables that all processes have, and the processes of store and server."""

    home: Path
    environment: dict[str, str]
    store: subprocess.Popen[str]
    receiver: Receiver = field(default_factory=Receiver)
    url: str = ""
    runs: list[Asked] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    pool: Pool | None = None
    _threads: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)
    _starts: list[Future[None]] = field(default_factory=list)

    def turns(self, machines: Sequence[str]) -> None:
        """Which machine the launcher uses next, and after it; each goes to the end of the line. In a pool, all work."""
        if self.pool is not None:
            self.pool.start(machines)
            return
        (self.home / "order.json").write_text(json.dumps(list(machines)))
        (self.home / "workers").write_text("")

    def workers(self) -> list[int]:
        """The processes that the launcher has started in this schedule, or those that the pool's workers run."""
        if self.pool is not None:
            return [*self.pool.at_work().values()]
        return [int(line.split()[0]) for line in (self.home / "workers").read_text().splitlines()]

    def has_work(self) -> bool:
        """Return whether a worker of the pool runs a stage, or will run one for a run that may have ended."""
        waits = self.pool is not None and any(run.state == "SCHEDULED" for _, run in in_pools(self.url))
        return waits or bool(self.pool and self.pool.at_work())

    def requests(self) -> list[str]:
        """The requests to the store until now: method and path."""
        lines = (self.home / "requests").read_text().splitlines()
        plain = (re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines)
        return [line.split('"')[1].rpartition(" ")[0] for line in plain if '"' in line]

    def ask(self, person: str, log: Path, *words: str, seed: int = 0) -> Asked:
        """Start a person's run, by ``flows.reproduce`` or another command."""
        start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, *(words or ("-m", "flows.reproduce", STAGE))],
                cwd=self.home / person,
                env=self._variables(person),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.runs.append(Asked(seed, person, STAGE, process, log, start))
        return self.runs[-1]

    def look(self, run: Asked) -> int | None:
        """Note what the lock says of a run, or its end; returns the exit status."""
        with suppress(OSError, ValueError):
            holder = json.loads((self.home / run.person / LOCK).read_text())
            if holder["pid"] == run.process.pid:
                return run.look(holder["tag"], holder["flow_run"])
        return run.look()

    def start_server(self) -> None:
        """Start the Prefect server, or start it again after it was killed."""
        self.url = server.start_server(self.home).url
        self.outages[-1:] = [(first, min(last, time.time())) for first, last in self.outages[-1:]]

    def start_server_meanwhile(self) -> None:
        """Start the server in a thread, which takes seconds; ``settle`` waits for it."""
        self._starts.append(self._threads.submit(self.start_server))

    def kill_server(self) -> None:
        """Kill the Prefect server with its children."""
        service = server.recorded(self.home, "server")
        assert service is not None
        self.outages.append((time.time(), math.inf))
        os.killpg(service.pid, signal.SIGKILL)

    def settle(self) -> None:
        """Let the store and the server run, whatever the schedule left, and end its runs."""
        with suppress(ProcessLookupError):
            os.killpg(self.store.pid, signal.SIGCONT)
        starts, self._starts = self._starts, []
        for start in starts:
            start.result()
        self.end_runs()
        if server.recorded(self.home, "server") is None:
            self.start_server()

    def end_runs(self) -> None:
        """End the runs that are left."""
        for run in self.runs:
            run.strike("campaign")
        for run in self.runs:
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(60)
            if run.process.poll() is None:
                run.process.kill()

    def close(self) -> None:
        """End the workers, the server, its starts and the receiver."""
        if self.pool is not None:
            self.pool.close()
        self._threads.shutdown(cancel_futures=True)
        server.stop(self.home, "server")
        self.receiver.server.shutdown()
        self.receiver.server.server_close()

    def start_pool(self) -> None:
        """Deploy the flow of stages with the commands of prefect.yaml; its work pool has no worker yet."""
        words = deployment([POOL], self.home / "origin.git", self.environment)
        subprocess.run([sys.executable, *words], cwd=ROOT, env=self._variables(PEOPLE[0]), check=True)
        (self.home / "tmp").mkdir()
        self.pool = Pool(self.home, {**self._variables(PEOPLE[0]), "TMPDIR": str(self.home / "tmp")})

    def tell_people(self) -> None:
        """Set up notices with the commands of docs/operations.md for a team's server."""
        (equip,) = (words for words in commands("A team", "python ") if words[-1] == "automations")
        notify = [*commands("Notices", "python ")[0][:-1], self.receiver.url]
        for words in (equip, notify):
            command = [sys.executable, *words[1:]]
            subprocess.run(command, cwd=self.home / PEOPLE[0], env=self._variables(PEOPLE[0]), check=True)

    def _variables(self, person: str) -> dict[str, str]:
        key = {KEY_FILE: str(self.home / f"{person}.pem"), "PREFECT_API_URL": self.url}
        return {**self.environment, **server.environment(self.home, self.url), **key}


@contextmanager
def place(home: Path, pools: bool = False) -> Iterator[Place]:
    """A place in an empty folder, whose machines are workers of a pool or a launcher's; all ends with the block."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background programs ignore Ctrl-C
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PATHFINDER_"))}
    words = [sys.executable, "-c", _STORE, str(home / "requests")]
    base = {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"}
    base["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    store = subprocess.Popen(words, env=base, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert store.stdout is not None
    endpoint, bucket = next(line for line in store.stdout if line.startswith("http")).split()
    secrets = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    found = Place(home, {**base, **secrets, "PATHFINDER_REMOTE": bucket, "PATHFINDER_S3_ENDPOINT": endpoint}, store)
    try:
        _project(found, POOL if pools else "box")
        _machines(found)
        found.start_server()
        found.tell_people()
        if pools:
            found.start_pool()
        yield found
    finally:
        with suppress(ProcessLookupError):
            os.killpg(store.pid, signal.SIGCONT)
        found.end_runs()
        found.close()
        with suppress(ProcessLookupError):
            os.killpg(store.pid, signal.SIGKILL)
        store.wait()
        subprocess.run(["umount", "-q", str(home / "full")], check=False)


def _project(found: Place, pool: str) -> None:
    project, home = found.home / "project", found.home
    (project / "infra/keys").mkdir(parents=True)
    line = f"{{stage: {STAGE}, pool: {pool}, retries: {{lost: 3, transient: 3}}}}"
    files = {
        ".dvc/config": CONFIG,
        ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n",
        ".gitignore": "/out.txt\n/.pathfinder/\n__pycache__/\n",
        "dvc.yaml": _PIPELINE,
        "params.yaml": "seed: 0\n",
        "work.py": _WORK,
        "evidence.toml": (ROOT / "evidence.toml").read_text(),
        FLOW: (ROOT / FLOW).read_text(),
        "infra/locks/cpu.lock": f"pydantic=={metadata.version('pydantic')}\n",
        FILE.as_posix(): f"stages: [{line}]\nlaunch: {{box: 'python {home}/launch.py {home}'}}\n",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (home / "launch.py").write_text(_LAUNCH)
    (home / "ticks").mkdir()
    for name in (*PEOPLE, *MACHINES, "other-lock", "full-disk", "stranger"):
        key = {**found.environment, KEY_FILE: str(home / f"{name}.pem")}
        pem = subprocess.run([sys.executable, "-c", _KEY], env=key, check=True, capture_output=True).stdout
        if name != "stranger":
            (project / f"infra/keys/{name}.pem").write_bytes(pem)
    _git(home, "init", "-q", "-b", "main", str(project))
    _git(project, "add", "-A")
    _git(project, "commit", "-qm", "A small project")
    _git(home, "clone", "-q", "--bare", str(project), str(home / "origin.git"))
    for name in (*PEOPLE, *MACHINES, *ODD):
        _git(home, "clone", "-q", str(home / "origin.git"), str(home / name))


def _machines(found: Place) -> None:
    """The variables of each machine."""
    home = found.home
    (home / "packages/pydantic-1.0.dist-info").mkdir(parents=True)
    (home / "packages/pydantic-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: pydantic\nVersion: 1.0\n"
    )
    (home / "full").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(home / "full")], check=True)
    more: Mapping[str, dict[str, str]] = {
        "stranger": {"POISON": " of a stranger"},
        "other-lock": {"PYTHONPATH": f"{home}/packages{os.pathsep}{ROOT}", "POISON": " of other packages"},
        "full-disk": {CLONES: str(home / "full")},
    }
    for name in (*MACHINES, *ODD):
        soon = {"PREFECT_WORKER_QUERY_SECONDS": "1" if name in ODD else "10"}  # an odd one is the first to ask a pool
        own = {KEY_FILE: f"{home}/{name}.pem", CLONES: f"{home}/clones-{name}", "TICKS": f"{home}/ticks"}
        (home / f"{name}.json").write_text(json.dumps({**own, **soon, **more.get(name, {})}))


def _git(folder: Path, *words: str) -> None:
    subprocess.run([*GIT, *words], cwd=folder, check=True)
