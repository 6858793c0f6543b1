"""Leases on stages: of several runs one computes, in a folder and in a bucket, also if runs are killed or paused."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from evidence.dvc.history import Locked
from evidence.record.signing import KEY_FILE
from flows.local import processes, storage
from flows.local.dvc import Dvc
from flows.team.pools import lease as lease_module
from flows.team.pools.lease import SILENT, Lease, Terms, standings
from flows.team.pools.leases import Leases
from flows.team.pools.table import Needs
from flows.team.view import state
from ground.io import DataError
from ground.remote import open_store
from tests.flows.conftest import CONFIG
from tests.flows.test_branch import git
from tests.flows.watch import alive, soon, wait_for
from tests.support import warm
from tests.support.s3 import s3_bucket, s3_environment, s3_server
from tests.support.stage_inputs import ROOT

pytestmark = pytest.mark.slow
EXPIRY_S = 3.0
JOURNAL = ".pathfinder/label/0a1b/journal.jsonl"
PIPELINE = (
    "stages:\n  label:\n    cmd: python -m evidence record -- python make.py\n    deps: [make.py]\n    outs: [out]\n"
)
MAKE = f"""\
import os, pathlib, shutil, time
folder = pathlib.Path("{JOURNAL}").parent
folder.mkdir(parents=True, exist_ok=True)
with open("{JOURNAL}", "a") as journal:
    journal.write("an answer\\n")
pathlib.Path("pid.txt").write_text(f"{{os.getpid()}}\\n")
while not pathlib.Path("go").exists():
    time.sleep(0.02)
pathlib.Path("out").write_text("result\\n")
pathlib.Path("ran").touch()
shutil.rmtree(folder)
"""
RUN = f"""\
import sys
import time
from pathlib import Path
from flows.team.pools import lease
from extras import unfinished
from flows.local import storage
from flows.local.dvc import Dvc
from flows.team.pools import leases
from flows.team.pools.table import Needs
from flows.team.view import state
from ground.io import DataError
from ground.io import TransientError

def say(line):
    print(line, flush=True)

lease.EVERY_S, lease.EXPIRY_S, leases.LOOK_S = 0.3, {EXPIRY_S}, 0.1
unfinished.EVERY_S, unfinished._SHARE = 0.2, 0.0
storage.configure(Path.cwd())
dvc, needs = Dvc(Path.cwd()), Needs(pool=sys.argv[1])
taken = leases.Leases(dvc)
for attempt in range(2):
    try:
        with taken.held("label", False, needs, say) as is_writer, taken.at_work("label", say, needs, is_writer):
            state = dvc.reproduce("label", False, say)
        break
    except TransientError as error:
        say(str(error))
dvc.push("label")
taken.sent("label")
say(f"state: {{state}}")
"""


@dataclass(frozen=True, slots=True)
class Team:
    """A project in git, whose clones share a remote."""

    folder: Path
    remote: str
    environment: Mapping[str, str]
    asked: list[subprocess.Popen[str]] = field(default_factory=list)

    def clone(self, name: str) -> Path:
        """A clone in which the stage waits for the file ``go``."""
        git(self.folder, "clone", "-q", "project", name)
        return self.folder / name

    def ask(self, clone: Path, pool: str = "here", **more: str) -> subprocess.Popen[str]:
        """Ask for the stage in a clone."""
        process = warm.Popen(
            [sys.executable, "-c", RUN, pool],
            cwd=clone,
            env={**self.environment, "PYTHONPATH": str(ROOT), storage.REMOTE: self.remote, **more},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.asked.append(process)
        return process


def ended(process: subprocess.Popen[str]) -> str:
    """The output of a process that succeeds."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def said(process: subprocess.Popen[str], text: str) -> str:
    """The first line with ``text`` that a process prints."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return line
    pytest.fail(f"{text!r} was not said: {''.join(lines)}")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Mapping[str, str]]]:
    """The environments of an S3 server and of a folder."""
    with s3_server() as endpoint:
        yield {"s3": s3_environment(endpoint), "folder": {}}


@pytest.fixture
def team(
    request: pytest.FixtureRequest,
    places: dict[str, Mapping[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Team]:
    kind: str = request.param
    for name, value in {**places[kind], KEY_FILE: str(tmp_path / "signing.pem")}.items():
        monkeypatch.setenv(name, value)
    remote = f"{s3_bucket(places[kind]['PATHFINDER_S3_ENDPOINT'])}/team" if kind == "s3" else str(tmp_path / "remote")
    project = tmp_path / "project"
    (project / ".dvc").mkdir(parents=True)
    (project / ".dvc/config").write_text(CONFIG)
    (project / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    (project / "dvc.yaml").write_text(PIPELINE)
    (project / "make.py").write_text(MAKE)
    (project / "evidence.toml").write_bytes((ROOT / "evidence.toml").read_bytes())
    (project / ".gitignore").write_text("/out\n/.pathfinder/\n/pid.txt\n/go\n/ran\n__pycache__/\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-qm", "A small project")
    team = Team(tmp_path, remote, {**os.environ, **warm.inherited()})
    yield team
    processes.end([process.pid for process in team.asked if process.poll() is None])  # of a test that failed


@pytest.mark.parametrize("team", ["s3", "folder"], indirect=True)
def test_of_two_runs_one_computes_and_the_other_takes_its_result(team: Team) -> None:
    clones = [team.clone("one"), team.clone("two")]
    runs = [team.ask(clone) for clone in clones]
    assert soon(lambda: any((clone / "pid.txt").exists() for clone in clones), 60)
    (first,) = (number for number, clone in enumerate(clones) if (clone / "pid.txt").exists())
    line = said(runs[1 - first], "waits for the result")
    assert line.startswith("is computed by ")
    assert f"(run {runs[first].pid})" in line
    for clone in clones:
        (clone / "go").touch()
    outputs = [ended(run) for run in runs]
    assert ("state: ran" in outputs[first], "state: restored" in outputs[1 - first]) == (True, True), outputs
    assert [(clone / "ran").exists() for clone in clones] == [first == 0, first == 1]
    locks = [(clone / "dvc.lock").read_text() for clone in clones]
    assert locks[0] == locks[1]
    assert (clones[1 - first] / "out").read_text() == "result\n"
    records = [sorted(path.name for path in clone.glob(".pathfinder/lineage/label/*.json")) for clone in clones]
    assert records[0] == records[1] != [], "the record came with the result"


@pytest.mark.campaign
@pytest.mark.parametrize("team", ["s3"], indirect=True)
def test_the_stage_of_a_killed_run_goes_on_in_another_after_some_time(team: Team) -> None:
    """Then a worker takes the result; with a key that does not trust its signer, it computes."""
    one, two = team.clone("one"), team.clone("two")
    (two / "go").touch()
    killed = team.ask(one)
    pid = int(wait_for(one / "pid.txt"))
    unfinished = open_store(f"{team.remote}/unfinished")
    assert soon(lambda: unfinished.keys("label/0a1b/state.json"))
    os.killpg(killed.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    output = ended(team.ask(two))
    assert f"(run {killed.pid})" in output
    assert "is computed here now: the other run has ended without a result, or gives no sign" in output
    assert f"resumes with {JOURNAL} from the remote" in output
    assert "state: ran" in output
    assert unfinished.keys("label/") == [], "the copy is deleted with the work"
    worker = team.clone("worker")
    (worker / "go").touch()
    assert "state: restored" in ended(team.ask(worker, "gpu"))
    assert not (worker / "ran").exists()
    stranger = team.clone("stranger")
    (stranger / "go").touch()
    output = ended(team.ask(stranger, "gpu", **{KEY_FILE: str(team.folder / "stranger.pem")}))
    assert "the result of the other run is not used: label: key " in output
    assert "state: ran" in output


@pytest.mark.parametrize("team", ["s3", pytest.param("folder", marks=pytest.mark.campaign)], indirect=True)
def test_a_run_that_was_paused_writes_nothing_after_it_lost_its_lease(team: Team) -> None:
    one, two = team.clone("one"), team.clone("two")
    paused = team.ask(one)
    stage = int(wait_for(one / "pid.txt"))
    unfinished = open_store(f"{team.remote}/unfinished")
    assert soon(lambda: unfinished.keys("label/0a1b/state.json"))
    for pid in (paused.pid, stage):
        os.kill(pid, signal.SIGSTOP)
    successor = team.ask(two)
    wait_for(two / "pid.txt")
    before = unfinished.read("label/0a1b/state.json")
    assert soon(lambda: unfinished.read("label/0a1b/state.json") != before), "the successor sends its own work"
    sent = unfinished.read("label/0a1b/state.json")
    (one / JOURNAL).write_text("an answer\na late answer\nanother one\n")
    os.kill(paused.pid, signal.SIGCONT)
    line = said(paused, "has taken it over")
    assert line.startswith("label: another run has taken it over, as this one had given no sign")
    assert not alive(stage), "its stage is ended"
    assert unfinished.read("label/0a1b/state.json") == sent
    assert f"(run {successor.pid})" in said(paused, "is computed by")
    (two / "go").touch()
    assert "state: ran" in ended(successor)
    assert "state: restored" in ended(paused)
    assert not (one / "ran").exists()
    leases = open_store(f"{team.remote}/{storage.LEASES}")
    numbers = [key for key in leases.keys("") if key[-1].isdecimal()]
    assert [f'"run":"{successor.pid}"'.encode() in leases.read(key) for key in numbers] == [False, True]
    assert b'"made":{' in leases.read(numbers[-1])


def test_an_interrupted_run_frees_its_stage_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.REMOTE, str(tmp_path / "remote"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dvc.yaml").write_text(PIPELINE)
        (tmp_path / name / "make.py").touch()
    one, two = (Leases(Dvc(tmp_path / name)) for name in ("one", "two"))
    with pytest.raises(KeyboardInterrupt), one.held("label", False, Needs(), print):
        raise KeyboardInterrupt
    with two.held("label", False, Needs(), lambda line: pytest.fail(line)) as is_writer:
        assert is_writer()
    two.close()


def test_a_lease_that_is_lost_states_nothing(tmp_path: Path) -> None:
    store, terms = open_store(str(tmp_path)), Terms(user="a", host="b", run="1", place="c", since="d")
    one, other = (Lease(store, Locked("label", "x", {}, {"out": ""}, {})) for _ in range(2))
    assert one.look() is None
    assert other.look() is None
    assert one.take(terms, lambda: None)
    assert not other.take(terms, lambda: None), "someone else was first"
    assert other.look() == terms
    assert one.end()
    assert other.look() == terms.model_copy(update={"ended": True})
    assert other.take(terms.model_copy(update={"stage": "label"}), lambda: None)
    assert not one.is_mine()
    assert not one.end(), "a lease that is lost states nothing"
    (found,) = standings(store, 60, [])
    assert (found.terms.run, found.before and found.before.fate) == ("1", "was ended")
    assert other.end(cause="`dvc repro` failed: no")
    assert [each.terms.fate for each in standings(store, 60, [])] == ["failed: `dvc repro` failed: no"]
    assert not list(standings(store, -1, []))


def test_a_team_sees_who_computes_and_why_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(storage.REMOTE, str(tmp_path / "remote"))
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "make.py").touch()
    leases = Leases(Dvc(tmp_path))
    with pytest.raises(DataError), leases.held("label", False, Needs(), print):
        raise DataError("the first\nattempt")
    copy = tmp_path / "remote/unfinished/label/0a1b/state.json"
    copy.parent.mkdir(parents=True)
    copy.touch()
    assert re.search(r"^lease label: .* failed: the first attempt \d+ s ago$", "\n".join(state(tmp_path)), re.MULTILINE)
    with leases.held("label", False, Needs(), print):
        first, lease, unfinished = state(tmp_path)
    leases.close()
    assert first == "server: none"
    assert re.search(
        r"^lease label: .* last sign \d+ s ago; is computed again, because .* failed: the first attempt$", lease
    )
    assert re.search(r"^unfinished label/0a1b: copied \d+ s ago$", unfinished)


@pytest.mark.parametrize(("content", "problem"), [(b"{", "Invalid JSON: "), (b'{"user": "a"}', "host: Field required")])
def test_an_object_that_is_no_lease_is_one_row_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, problem: str
) -> None:
    monkeypatch.setenv(storage.REMOTE, str(tmp_path / "remote"))
    store = open_store(str(tmp_path / "remote/leases"))
    terms = Terms(user="a", host="b", run="1", place="c", since="d", stage="label")
    store.put("0a1b/00000001", content)
    store.put("0c2d/00000001", terms.model_dump_json().encode())
    first, lease, row = state(tmp_path)
    assert (first, lease.startswith("lease label: a on b")) == ("server: none", True)
    assert row.startswith(f"lease {store.url}/0a1b/00000001: ")
    assert problem in row
    assert row.endswith("so it is not a lease; delete it in the remote, where a run that still computes writes it anew")


def test_a_holder_is_given_up_only_after_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage of the store, whoever waits may look before the holder writes again."""
    monkeypatch.setattr(lease_module, "EVERY_S", 60.0)  # the holder writes once
    monkeypatch.setattr(lease_module, "EXPIRY_S", 0.0)
    store, terms = open_store(str(tmp_path)), Terms(user="a", host="b", run="1", place="c", since="d")
    one, other = (Lease(store, Locked("label", "x", {}, {"out": ""}, {})) for _ in range(2))
    assert one.look() is None
    assert one.take(terms, lambda: None)
    monkeypatch.setattr(lease_module, "EVERY_S", 0.1)
    time.sleep(0.05)
    assert other.look() == terms, "it is silent for too long, but this is the first look"
    time.sleep(0.25)
    found = other.look()
    assert found is not None
    assert (found.ended, found.cause) == (True, SILENT)
    assert one.end(cause="no memory")
    for _ in range(2):  # a lease that has ended needs no sign
        time.sleep(0.25)
        found = other.look()
        assert found is not None
        assert found.cause == "no memory"


def test_a_run_that_waits_sees_that_its_worker_gives_no_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's server notices a lost machine a minute later."""
    monkeypatch.setattr(lease_module, "EVERY_S", 60.0)
    monkeypatch.setattr(lease_module, "EXPIRY_S", 0.2)
    monkeypatch.setenv(storage.REMOTE, str(tmp_path / "remote"))
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "make.py").touch()
    leases = Leases(Dvc(tmp_path))
    mine, other = leases.watch("label", str(os.getpid())), leases.watch("label", "someone else's run")
    assert not mine(), "no one has it"
    with leases.held("label", False, Needs(), print):
        assert not mine()
        monkeypatch.setattr(lease_module, "EVERY_S", 0.1)
        assert soon(mine, 5)
        time.sleep(0.3)
        assert not other()
    leases.close()
    assert not mine(), "it has ended"


def test_a_store_that_cannot_order_writers_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers ignore the condition of a creation."""
    store = open_store(str(tmp_path / "remote"))
    monkeypatch.setattr(store, "create", lambda key, content: store.put(key, content) is None)
    monkeypatch.setattr(storage, "shared", lambda *_: store)
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "make.py").touch()
    lines: list[str] = []
    leases = Leases(Dvc(tmp_path))
    for _ in range(2):
        with leases.held("label", False, Needs(), lines.append) as is_writer:
            assert is_writer()
    assert lines == [f"{store.url} cannot order writers: runs that ask at the same moment both compute a stage"]
    leases.close()
