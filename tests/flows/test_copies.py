"""A folder never ends or uses the services of another one, however copies, moves and restored backups interleave."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest

from flows import server
from flows.local import processes
from flows.local.lock import LOCK, held, left_by
from tests.flows.conftest import Project
from tests.flows.test_deploy import with_flow
from tests.flows.watch import alive, soon

STAND_IN = """\
import os, signal, socket, sys, time
signal.alarm(900)
if sys.argv[1] != "server":
    time.sleep(900)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[-1])))
listener.listen()
pid = str(os.getpid())
while True:
    connection, _ = listener.accept()
    connection.recv(4096)
    head = f"HTTP/1.1 200 OK\\r\\nContent-Length: {len(pid)}\\r\\nConnection: close"
    connection.sendall(f"{head}\\r\\n\\r\\n{pid}".encode())
    connection.close()
"""
"""Starts in a tenth of a second, and answers every request with its number."""
NAMES = ("server", "worker")


@dataclass(eq=False)
class Clone:
    """A folder, wherever it is, with the processes that were started for it."""

    root: Path
    started: list[int] = field(default_factory=list)

    def up(self) -> None:
        service = server.recorded(self.root, "server") or server.start_server(self.root)
        if server.recorded(self.root, "worker") is None:
            self._note(server.start(self.root, "worker", ["prefect", "worker"], service.url))
        self._note(service)
        self.require_own(service.url)

    def run(self, during: Callable[[], None] = lambda: None) -> None:
        """A run with a server of its own, unless one is up."""
        with server.local_server(self.root) as url:
            pid = answering(url)
            self._note(server.recorded(self.root, "server"))
            during()
            assert answering(url) == pid
            self.require_own(url)

    def down(self) -> None:
        for name in NAMES:
            server.stop(self.root, name)
        assert server.recorded(self.root, "server") is None

    def end(self) -> None:
        processes.end([pid for pid in self.started if alive(pid)])

    def require_own(self, url: str) -> None:
        assert answering(url) in self.started, "the server of another folder is used"

    def _note(self, service: server.Service | None) -> None:
        assert service is not None
        if processes.start_time(service.pid) == service.started and service.pid not in self.started:
            here = Path(f"/proc/{service.pid}/cwd").stat()
            assert (here.st_dev, here.st_ino) == (self.root.stat().st_dev, self.root.stat().st_ino), "a foreign process"
            self.started.append(service.pid)


def answering(url: str) -> int:
    return int(httpx.get(f"{url}/health", timeout=20).text)


class World:
    """Clones that are copied, moved, restored, started and stopped at random."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random, self.count = folder, random.Random(seed), 0
        self.clones: list[Clone] = []
        self.lost: list[Clone] = []  # their folders were replaced by backups while their processes run
        self.done: list[str] = []
        self.add(self.path())
        self.clones[0].root.mkdir()
        self.clones[0].up()

    def path(self) -> Path:
        self.count += 1
        return self.folder / f"clone{self.count}"

    def add(self, root: Path) -> Clone:
        self.clones.append(Clone(root))
        return self.clones[-1]

    def copied(self, clone: Clone) -> Clone:
        return self.add(shutil.copytree(clone.root, self.path()))

    def step(self) -> None:
        """One random interleaving; nothing of a folder that does not take part may end."""
        clone = self.random.choice(self.clones)
        kind = self.random.choice(["up", "run", "down", "copy", "during", "move", "swap", "restore", "twice", "reuse"])
        self.done.append(f"{kind} {clone.root.name}")
        others = [pid for each in [*self.clones, *self.lost] if each is not clone for pid in each.started if alive(pid)]
        getattr(self, f"_{kind}", lambda clone: getattr(clone, kind)())(clone)
        ended = [pid for pid in others if not alive(pid)]
        assert not ended, f"processes of other folders were ended: {self.done}"
        while len(self.clones) > 4:
            self.clones.pop(0).end()

    def _copy(self, clone: Clone) -> None:
        self.random.choice([Clone.up, Clone.down, Clone.run])(self.copied(clone))

    def _during(self, clone: Clone) -> None:
        """A copy made during a run is used in every way, while the run continues."""
        what = self.random.choice([Clone.up, Clone.down, Clone.run])
        clone.run(lambda: what(self.copied(clone)))

    def _move(self, clone: Clone) -> None:
        clone.root = clone.root.rename(self.path())
        self.random.choice([Clone.up, Clone.down])(clone)

    def _swap(self, clone: Clone) -> None:
        """A copy takes the path of a folder that was moved."""
        old = clone.root
        clone.root = old.rename(self.path())
        copy = self.add(shutil.copytree(clone.root, old))
        self.random.choice([Clone.up, Clone.down, Clone.run])(copy)

    def _restore(self, clone: Clone) -> None:
        """A backup replaces a folder whose processes run; they do not belong to the new folder."""
        root, backup = clone.root, shutil.copytree(clone.root, self.path())
        old = Clone(root, clone.started)
        self.lost.append(old)
        clone.started = []
        shutil.rmtree(root)
        backup.rename(root)
        before = [pid for pid in old.started if alive(pid)]
        self.random.choice([Clone.up, Clone.down, Clone.run])(clone)
        assert all(alive(pid) for pid in before), f"processes of the folder before were ended: {self.done}"

    def _twice(self, clone: Clone) -> None:
        """A folder and its copy start at the same time."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Clone.up, [clone, self.copied(clone)]))

    def _reuse(self, clone: Clone) -> None:
        """After a reset, another folder's process has the recorded number and the recorded start time."""
        other = self.copied(clone)
        other.up()
        for name in NAMES:
            own = server.home(clone.root) / f"{name}.json"
            there = json.loads((server.home(other.root) / f"{name}.json").read_text())
            boot = processes.place(clone.root).split(" ")[1]
            own_place = processes.place(clone.root).replace(boot, "another-boot:1")
            server.stop(clone.root, name)
            own.write_text(json.dumps({**there, **({"place": own_place} if "place" in there else {})}))
        before = list(other.started)
        self.random.choice([Clone.up, Clone.down])(clone)
        assert all(alive(pid) for pid in before), f"a process with a reused number was ended: {self.done}"


@pytest.fixture
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Services are light stand-ins; returns the folder of the clones."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/stand_in.py").write_text(STAND_IN)
    real = processes.start

    def start(_: str, arguments: list[str], root: Path, environment: dict[str, str], out: int) -> subprocess.Popen[str]:
        return real("stand_in", arguments, root, {**environment, "PYTHONPATH": str(tmp_path / "modules")}, out)

    monkeypatch.setattr(processes, "start", start)
    monkeypatch.setattr(server, "named", lambda: None)
    (tmp_path / "clones").mkdir()
    return tmp_path / "clones"


@pytest.fixture
def world(light: Path) -> Iterator[World]:
    found = World(light, seed=27)
    yield found
    for clone in [*found.clones, *found.lost]:
        clone.end()


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [40, 100])
def test_no_interleaving_ends_or_uses_what_is_of_another_folder(world: World, steps: int) -> None:
    for _ in range(steps):
        world.step()
    kinds = {line.split()[0] for line in world.done}
    assert len(kinds) == 10, "every kind of interleaving happened"


def test_another_server_on_the_port_is_not_taken_for_the_own_one(light: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two folders may choose the same free port; the second server exits, and the first one answers."""
    first, second = Clone(light / "first"), Clone(light / "second")
    for clone in (first, second):
        clone.root.mkdir()
    try:
        first.up()
        taken = server.recorded(first.root, "server")
        assert taken is not None
        real, ports = server._port, [int(taken.url.split(":")[2].split("/")[0])]
        monkeypatch.setattr(server, "_port", lambda last: ports.pop() if ports else real(last))
        second.up()
        assert not ports
        assert alive(first.started[0])
        first.require_own(taken.url)
    finally:
        first.end()
        second.end()


def test_the_run_of_a_copied_lock_is_not_taken_for_one_that_was_killed(tmp_path: Path) -> None:
    """The run is in progress in the original: a copy must not report its end to a server that both use."""
    original, moved = tmp_path / "original", tmp_path / "moved"
    original.mkdir()
    with held(original) as hold:
        hold.name_flow_run("run-1")
        copy = shutil.copytree(original, tmp_path / "copy")
        hold.is_reported = False
    with held(copy) as there:
        assert (there.previous, there.ended) == (None, [])
    assert left_by(copy) is None
    original.rename(moved)
    entry = json.loads((moved / LOCK).read_text())
    host, boot, folder = entry["place"].split(" ")
    for other in (boot, "another-boot:1"):  # as it was left, and as a reset leaves it
        (moved / LOCK).write_text(json.dumps({**entry, "place": f"{host} {other} {folder}"}))
        with held(moved) as again:
            assert again.previous is not None
            assert again.previous.flow_run == "run-1"


def test_what_a_killed_run_left_is_not_ended_by_a_folder_that_takes_its_path(tmp_path: Path) -> None:
    original, other = tmp_path / "original", tmp_path / "moved"
    original.mkdir()
    _, _, place = processes.new_mark(original).partition(":")
    mark = f"{2**22 + 1}.1.1:{place}"  # of a process whose number no process can have
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, processes.MARK: mark}, start_new_session=True)
    try:
        assert soon(lambda: processes.orphans(original))
        original.rename(other)
        with held(shutil.copytree(other, original)) as hold:
            assert hold.ended == []
        assert [*processes.orphans(other)] == [left.pid]
        with held(other) as hold:
            assert hold.ended
        assert left.wait(10)
    finally:
        left.kill()
        left.wait()


@pytest.mark.campaign
def test_a_copy_made_during_a_run_has_a_server_of_its_own(project: Project) -> None:
    """Real servers and a real worker: a deployed folder, its copy, and a copy that was made during a run."""
    with_flow(project)
    up, down = (("-m", "flows.team.deploy", word) for word in ("up", "down"))
    copy = replace(project, root=project.root.with_name(f"{project.root.name}-copy"))
    try:
        project.run(*up)
        services = [server.recorded(project.root, name) for name in NAMES]
        pids = [service.pid for service in services if service]
        assert len(pids) == 2
        shutil.copytree(project.root, copy.root)
        assert "nothing was deleted: no server of this folder is running" in copy.run(*down)
        assert all(map(alive, pids))
        shutil.rmtree(copy.root)
        project.trap("total", "time.sleep(20)\n")
        run = project.start("-m", "flows.reproduce")
        assert soon(lambda: "total" in (ran.read_text() if (ran := project.root / "ran.txt").exists() else ""), 240)
        shutil.copytree(project.root, copy.root)
        (copy.root / "trap_total.py").unlink()
        other = copy.start("-m", "flows.reproduce")
        outputs = [process.communicate(timeout=600)[0] for process in (run, other)]
        addresses = [re.findall(r"watch this run at (\S+)", output) for output in outputs]
        assert [process.returncode for process in (run, other)] == [0, 0], outputs
        assert addresses[0] != addresses[1]
        assert all(map(alive, pids))
    finally:
        project.run(*down)
    assert not any(map(alive, pids))
