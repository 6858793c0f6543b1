"""Four launchers of a stage give the same dvc.lock, byte for byte: none, Prefect's workers, Slurm and ssh.

The commands for Slurm and ssh are those of docs/operations.md. Each run has a clone and a bucket of its own, so none
takes the results of another. The two nodes of Slurm and the machine behind ssh have keys and clones of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from evidence.record.signing import KEY_FILE, own_public_keys
from flows.local import storage
from flows.local.processes import command_of
from flows.team.pools.lease import standings
from flows.team.pools.stage import CLONES
from ground.remote import ENDPOINT
from tests.flows.watch import soon, working_in
from tests.support.miniature import GIT, ROOT
from tests.support.pools import POOLS, Site, project, site
from tests.support.s3 import s3_bucket
from tests.support.slurm import NODES, cluster, jobs, needs_slurm, said
from tests.support.sshd import Box, box, needs_ssh

pytestmark = pytest.mark.campaign
STAGES = {"download", "train@full", "train@plain", "total"}
PREFECT = {**POOLS, "total": "cpu"}
TABLES = {
    "alone": "stages: []\n",
    "prefect": "stages:\n" + "".join(f"- {{stage: '{name}', pool: {pool}}}\n" for name, pool in PREFECT.items()),
    "slurm": "stages: [{stage: '*', pool: slurm, memory: 1Gi, time: 1h}]\n",
    "ssh": "stages: [{stage: '*', pool: box, retries: {lost: 2}}]\n",
}
_TOTAL = """\
from pathlib import Path
from ground.io import write_json, write_text
from evidence.record.stage import stage

@stage
def main():
    texts = {path.parent.name: path.read_text() for path in sorted(Path("models").glob("*/weights.txt"))}
    write_text(Path("artifacts/total/all.txt"), "".join(texts.values()))
    write_text(Path("artifacts/total/deep/first.txt"), min(texts.values()))
    write_text(Path("artifacts/names.txt"), " ".join(texts))
    write_json(Path("metrics/total.json"), {"letters": sum(map(len, texts.values()))})

if __name__ == "__main__":
    main()
"""
_PIPELINE = """\
  total:
    cmd: python -m stages.total
    deps: [models/full, models/plain, stages/total.py, stages/__init__.py, ground, infra/locks]
    outs: [artifacts/total, artifacts/names.txt]
    metrics: [metrics/total.json]
"""


def documented() -> dict[str, str]:
    """The launchers that docs/operations.md shows."""
    text = (ROOT / "docs/operations.md").read_text()
    block = re.search(r"^    launch:\n(?:      .*\n)+", text, re.MULTILINE)
    assert block is not None
    found = yaml.safe_load(textwrap.dedent(block[0]))["launch"]
    assert found.keys() == {"slurm", "box"}
    return dict(found)


@dataclass(frozen=True, slots=True)
class Run:
    """A person's clone, the bucket of its runs, and the variables that its commands get."""

    here: Site
    clone: Path
    bucket: str
    variables: dict[str, str]

    def finish(self, *stages: str) -> str:
        """Run stages and print the seconds that this took; returns the output."""
        start = time.monotonic()
        output = self.here.run(self.clone, "-m", "flows.reproduce", *stages, code=0, **self.variables)
        print(f"{self.clone.name}: {time.monotonic() - start:.0f} s")
        return output

    def start(self, params: str, *stages: str) -> subprocess.Popen[str]:
        """Start a run with other parameters."""
        (self.clone / "params.yaml").write_text(params)
        return self.here.start(self.clone, "-m", "flows.reproduce", *stages, **self.variables)

    def made(self) -> dict[str, bytes]:
        """dvc.lock and all that the stages made, by path."""
        files = [path for name in ("artifacts", "models", "metrics") for path in (self.clone / name).rglob("*")]
        files = [self.clone / "dvc.lock", *(path for path in files if path.is_file())]
        return {path.relative_to(self.clone).as_posix(): path.read_bytes() for path in files}

    def leaves_nothing(self, patch: pytest.MonkeyPatch, *machines: Path) -> None:
        """Assert that no process in the clone or in the folders of machines and no lease is left."""
        assert soon(lambda: not any(working_in(folder) for folder in (self.clone, *machines) if folder.exists()))
        for name, value in {**self.here.environment, storage.REMOTE: self.bucket}.items():
            patch.setenv(name, value)
        store = storage.shared(self.clone, storage.LEASES)
        assert store is not None
        found = [each.terms for each in standings(store, 1e9, [])]
        assert {each.stage for each in found} == STAGES
        assert [str(each) for each in found if not each.ended] == []


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("launchers")
    with site(folder, _project(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def alone(here: Site) -> Run:
    """The run without a launcher, which the others must equal."""
    run = _run(here, "alone")
    run.finish()
    return run


@pytest.fixture
def nodes(here: Site, tmp_path: Path) -> Iterator[None]:
    """Two nodes of Slurm, each with a key and a folder of clones."""
    own = {KEY_FILE: f"{here.folder}/$SLURMD_NODENAME.pem", CLONES: f"{here.folder}/clones-$SLURMD_NODENAME"}
    with cluster(tmp_path, "\n".join(f'echo "export {name}={value}"' for name, value in own.items())):
        yield


@pytest.fixture(scope="module")
def over_ssh(here: Site) -> Iterator[tuple[Run, Box, Path]]:
    """A run, the server, and the clones of its machine, where a login finds a clone and a worker's variables."""
    run, home, clones = _run(here, "ssh"), here.folder / "home", here.folder / "clones-box"
    subprocess.run(["git", "clone", "-q", str(here.origin), str(home / "pathfinder-prm")], check=True)
    (home / "pathfinder-prm/.venv").symlink_to(sys.prefix)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", ENDPOINT, "OMP_NUM_THREADS")
    values = {name: here.environment[name] for name in names} | {storage.REMOTE: run.bucket}
    values |= {KEY_FILE: f"{here.folder}/box.pem", CLONES: str(clones)}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in values.items()]
    (home / "worker.env").write_text("".join(lines))
    (here.folder / "sshd").mkdir()
    with box(here.folder / "sshd", home) as server:
        run.variables["PATH"] = f"{server.programs}{os.pathsep}{here.environment['PATH']}"
        yield run, server, clones


def _project(folder: Path) -> Path:
    """The miniature project with a third link in its chain; it trusts the keys of all machines."""
    made = project(folder, TABLES["alone"])
    (made / "stages/total.py").write_text(_TOTAL)
    for name, more in (("dvc.yaml", _PIPELINE), (".gitignore", "/.venv\n")):
        (made / name).write_text((made / name).read_text() + more)
    with pytest.MonkeyPatch.context() as patch:
        for name in (*NODES, "box"):
            patch.setenv(KEY_FILE, str(folder / f"{name}.pem"))
            (made / f"infra/keys/{name}.pem").write_bytes(own_public_keys()[0])
    subprocess.run([*GIT, "add", "-A"], cwd=made, check=True)
    subprocess.run([*GIT, "commit", "-qm", "A third stage"], cwd=made, check=True)
    return made


def _run(here: Site, launcher: str) -> Run:
    """A clone with the table of a launcher, which is committed and pushed."""
    clone = here.clone(launcher)
    bucket = here.environment[storage.REMOTE] if launcher == "prefect" else s3_bucket(here.environment[ENDPOINT])
    (clone / "infra/resources.yaml").write_text(f"{TABLES[launcher]}launch: {json.dumps(documented())}\n")
    (clone / ".venv").symlink_to(sys.prefix)
    for words in (["checkout", "-qb", launcher], ["commit", "-qam", launcher], ["push", "-q", "origin", launcher]):
        subprocess.run([*GIT, *words], cwd=clone, check=True)
    return Run(here, clone, bucket, {storage.REMOTE: bucket})


def computed(clones: Path) -> set[str]:
    """The stages that the clones of a machine have computed."""
    return {path.parent.name for path in clones.glob("*/.pathfinder/lineage/*/*.json")}


def training(clones: Path) -> list[int]:
    """The trainings that run in the clones of a machine."""
    return [pid for pid in working_in(clones) if command_of(pid).startswith("-m stages.train")]


def test_workers_of_prefect_give_the_lock_of_one_folder(
    here: Site, alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _run(here, "prefect")
    with ExitStack() as stack:
        clones = {pool: stack.enter_context(here.worker(pool)) for pool in set(POOLS.values())}
        run.finish()
    assert run.made() == alone.made()
    for pool, folder in clones.items():
        assert computed(folder) == {stage for stage, other in PREFECT.items() if other == pool}
    run.leaves_nothing(monkeypatch, *clones.values())


@needs_slurm
@pytest.mark.usefixtures("nodes")
def test_jobs_of_slurm_on_two_nodes_give_the_lock_of_one_folder(
    here: Site, alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _run(here, "slurm")
    run.variables["SLURM_CONF"] = os.environ["SLURM_CONF"]
    run.finish()
    assert run.made() == alone.made()
    ended, clones = jobs(), {node: here.folder / f"clones-{node}" for node in NODES}
    assert ended.keys() == STAGES
    assert ({state for state, _ in ended.values()}, said("squeue", "-h")) == ({"COMPLETED"}, "")
    for node, folder in clones.items():
        assert computed(folder) == {stage for stage, (_, other) in ended.items() if other == node} != set()
    run.leaves_nothing(monkeypatch, *clones.values())


@needs_ssh
def test_a_machine_behind_ssh_gives_the_lock_of_one_folder(
    alone: Run, over_ssh: tuple[Run, Box, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, server, clones = over_ssh
    output = run.finish()
    assert run.made() == alone.made()
    assert computed(clones) == STAGES
    assert set(re.findall(rf"^\[(\S+)\] \1 runs on \S+ in clone {clones}/\d", output, re.MULTILINE)) == STAGES
    run.leaves_nothing(monkeypatch, clones, clones.parent / "home")
    assert soon(lambda: server.connections() == [])


@needs_ssh
def test_the_end_of_a_run_ends_a_silent_stage_behind_ssh(over_ssh: tuple[Run, Box, Path]) -> None:
    run, server, clones = over_ssh
    process = run.start("train: {rate: 0.125, note: x}\n", "train@full")
    assert soon(lambda: training(clones), 300)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert soon(lambda: not working_in(clones) and not server.connections())
    print(f"ssh: nothing is left {time.monotonic() - start:.1f} s after the end of the run")


@needs_ssh
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
def test_a_stage_whose_connection_is_lost_or_silent_is_tried_again(
    over_ssh: tuple[Run, Box, Path], number: signal.Signals
) -> None:
    run, server, clones = over_ssh
    process = run.start(f"train: {{rate: 0.{number:d}, card_s: 40}}\n", "train@full")
    assert soon(lambda: training(clones), 300)
    (lost,), start = server.connections(), time.monotonic()
    os.kill(lost, number)
    try:
        output, _ = process.communicate(timeout=300)
        print(
            f"{number.name}: {time.monotonic() - start:.0f} s; " + "; ".join(re.findall(r".* in pool box: .*", output))
        )
        assert process.returncode == 0, output
    finally:
        if number is signal.SIGSTOP:
            os.kill(lost, signal.SIGCONT)
    cause = "Timeout, server" if number is signal.SIGSTOP else "Connection"
    assert f"train@full in pool box: ssh ended with status 255; last line: {cause}" in output
    assert ("waits for the result" in output) == (number is signal.SIGSTOP)
    assert soon(lambda: not working_in(clones) and not server.connections())
