"""A stage as a signed order: a launcher starts the command on another machine, which leaves a signed result."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from evidence.audit.trust import change_list
from evidence.record.signing import KEY_FILE, own_public_keys, sign
from flows.local import storage
from flows.local.dvc import Cancelled, Dvc
from flows.local.graph import load_graph
from flows.places import WorkerLost
from flows.team.pools.away import ORDERS, Away
from flows.team.pools.order import TYPE, Ordered, committed, signed, verified
from flows.team.pools.stage import CLONES
from flows.team.pools.table import FILE, Needs, needs
from ground.io import DataError, TransientError
from tests.flows.conftest import ROOT, Project
from tests.flows.test_branch import git
from tests.flows.test_pools_handover import STAGE, published
from tests.flows.watch import gone, wait_for

COMMAND = f"{sys.executable} -m flows.team.pools.stage --order -"
PAST = datetime(2026, 1, 1, tzinfo=UTC)
ORDER = Ordered(stage="label", commit="0" * 40, remote="s3://bucket")


@dataclass
class Machines:
    """The folder of a run, and a clone that plays another machine: with its own key, which the project trusts."""

    away: Away
    machine: Path
    said: list[str] = field(default_factory=list)

    def launch(self, command: str) -> None:
        """Have the launcher start ``command`` for the stage."""
        self.away.needs = {**self.away.needs, STAGE: Needs(pool="box", launch=command)}

    def ask(self) -> str:
        """Have the launcher compute the stage."""
        return self.away.run_away(STAGE, False, self.said.append)

    def asked(self, ends: list[type[BaseException]]) -> Thread:
        """Ask in a thread, which adds the class of the error with which it ends."""

        def ask() -> None:
            try:
                self.ask()
            except BaseException as error:
                ends.append(type(error))

        thread = Thread(target=ask)
        thread.start()
        return thread


@pytest.fixture
def machines(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_starts: None) -> Machines:
    monkeypatch.setenv(storage.REMOTE, str(tmp_path / "bucket"))
    key, person = tmp_path / "machine.pem", tmp_path / "person.pem"
    keys = project.root / "infra/keys"
    keys.mkdir(parents=True)
    for name in (key, person):
        monkeypatch.setenv(KEY_FILE, str(name))
        (keys / name.name).write_bytes(own_public_keys()[0])
    (project.root / FILE).write_text(f"stages: [{{stage: '{STAGE}', pool: box}}]\n")
    origin = published(project)
    git(tmp_path, "clone", "-q", str(origin), "machine")
    flow = Dvc(project.root)
    graph = load_graph(project.root)
    storage.configure(project.root)
    flow.reproduce("numbers", on_line=print)
    away = Away(flow, graph, str(tmp_path / "bucket"))
    away._commit = committed(project.root, graph, [STAGE])
    found = Machines(away, tmp_path / "machine")
    variables = {KEY_FILE: str(key), CLONES: str(tmp_path / "clones"), "PYTHONPATH": str(ROOT)}
    environment = " ".join(shlex.quote(f"{name}={value}") for name, value in variables.items())
    found.launch(f"env -C {shlex.quote(str(found.machine))} {environment} {COMMAND}")
    return found


def test_a_launcher_s_machine_leaves_a_signed_result(machines: Machines, project: Project) -> None:
    project.ran()
    assert machines.ask() == "ran"
    assert project.ran() == [], "the stage ran on the other machine"
    assert (project.root / "out/even.txt").read_text() == "0\n4\n16\n36\n64\n"
    assert any("objects of inputs are in place" in line for line in machines.said)
    assert not list((project.root / ORDERS).iterdir())
    (project.root / "out/even.txt").unlink()
    machines.launch("false")
    assert machines.ask() == "restored", "an earlier result is taken before anything is launched"


def test_a_failure_there_keeps_its_class_and_its_cause(machines: Machines, project: Project) -> None:
    (project.root / "params.yaml").write_text("count: many\n")
    (machines.machine / "infra/keys/person.pem").unlink()
    with pytest.raises(DataError, match=r"^square@even in pool box: the order: no key that this machine trusts signed"):
        machines.ask()
    for code, kind, cause in (
        ("exit 75", WorkerLost, "sh ended with status 75; last line: none"),
        ("echo first; echo 'Connection closed'; exit 255", WorkerLost, "sh .* 255; last line: Connection closed"),
        ("echo 'the order failed (transient): later'; exit 75", TransientError, "later"),
    ):
        machines.launch(f"sh -c {shlex.quote(code)}")
        with pytest.raises(kind, match=f"^square@even in pool box: {cause}$"):
            machines.ask()


def test_the_end_of_a_run_ends_the_launched_command(machines: Machines, tmp_path: Path) -> None:
    machines.launch(f"sh -c {shlex.quote(f'echo $$ > {tmp_path}/pid; sleep 600')}")
    ends: list[type[BaseException]] = []
    thread = machines.asked(ends)
    pid = int(wait_for(tmp_path / "pid"))
    machines.away.stop()
    thread.join(30)
    assert (gone(pid), ends) == (True, [Cancelled])


def test_a_silent_stage_ends_once_nobody_reads_its_lines(machines: Machines, project: Project, tmp_path: Path) -> None:
    """As after the end of an ssh connection, of which sshd tells a command nothing else."""
    pid = f"open('{tmp_path}/pid', 'w').write(f'{{os.getpid()}}\\n')"
    project.trap("even", f"{pid}\nprint('last words', flush=True)\ntime.sleep(600)\n")
    for words in (["add", "trap_even.py"], ["commit", "-qm", "A trap"], ["push", "-q", "origin", "main"]):
        git(project.root, *words)
    machines.away._commit = committed(project.root, machines.away.graph, [STAGE])
    machines.launch(f"sh -c {shlex.quote(f'{machines.away.needs[STAGE].launch} | sed /last.words/q')}")
    with pytest.raises(TransientError, match="completed without a result"):
        machines.ask()
    assert gone(int((tmp_path / "pid").read_text()))


def test_an_order_is_accepted_only_with_a_trusted_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "one.pem"))
    text = signed(ORDER)
    assert verified(text, tmp_path) == ORDER
    other = json.dumps(sign(ORDER.model_dump_json().encode(), f"{TYPE}+"))
    with pytest.raises(DataError, match="no key that this machine trusts"):
        verified(other, tmp_path)
    changed = json.loads(text)
    changed["payload"] = changed["payload"][:-8] + "AAAA" + changed["payload"][-4:]
    with pytest.raises(DataError, match="the signature is wrong"):
        verified(json.dumps(changed), tmp_path)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "other.pem"))
    with pytest.raises(DataError, match=r"commit the public key of whoever starts the run to infra/keys/"):
        verified(text, tmp_path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"until": PAST + timedelta(days=1)}, "was valid until 2026-01-02T00:00:00"),
        ({"from": PAST + timedelta(days=36500)}, "is not valid before 2125-"),
        ({"revoked": {"at": PAST, "reason": "stolen"}}, "is revoked since 2026-01-01T00:00:00.*(stolen)"),
    ],
)
def test_an_order_by_a_key_that_is_not_valid_now_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], problem: str
) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "one.pem"))
    text = signed(ORDER)
    (tmp_path / "public.pem").write_bytes(own_public_keys()[0])
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "root.pem"))
    change_list(tmp_path, "old", tmp_path / "public.pem", {"from": PAST})
    assert verified(text, tmp_path) == ORDER
    change_list(tmp_path, "old", None, change)
    with pytest.raises(
        DataError, match=f"^the order: key old {problem}.*; start the run with a key that is valid now$"
    ):
        verified(text, tmp_path)


def test_the_table_gives_a_launcher_what_a_stage_needs(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    (tmp_path / "params.yaml").write_text("profile: paper\n")
    line = "- {stage: 'train@*', pool: slurm, gpus: 8, memory: 512Gi, time: 36h}\n"
    launch = "launch:\n  slurm: srun --job-name {stage} --gpus={gpus} --mem={memory} --time={minutes} run '{order}'\n"
    (tmp_path / FILE).write_text(f"stages:\n{line}{launch}")
    found = needs(tmp_path, ["train@full", "label"])
    words = "srun --job-name train@full --gpus=8 --mem=512G --time=2160 run"
    assert found["train@full"].command("train@full", "an order") == [*words.split(), "an order"]
    assert (found["label"].is_here, found["label"].launch) == (True, "")
    with pytest.raises(
        DataError, match=r"launch: slurm: 'cards'; the fields of train@full are \{stage\}, .* \{minutes\}, \{mem"
    ):
        replace(found["train@full"], launch="srun {cards}").command("train@full", "x")
    with pytest.raises(DataError, match=r"launch: slurm: 'memory'; the fields of train@full are .* \{minutes\}$"):
        replace(found["train@full"], memory="").command("train@full", "x")


def test_the_command_imports_neither_prefect_nor_numpy() -> None:
    code = "import sys, flows.team.pools.stage; print({'prefect', 'numpy'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "set()\n"


def test_a_launcher_that_is_absent_is_named_before_a_stage_starts(machines: Machines) -> None:
    machines.launch("'no such launcher' --order -")
    with pytest.raises(DataError, match="pool box: no such launcher: not found; correct `launch` in infra/resources"):
        machines.away.check({STAGE})
    machines.launch("sh {cards}")
    with pytest.raises(DataError, match="launch: box: 'cards'; the fields of"):
        machines.away.check({STAGE})
