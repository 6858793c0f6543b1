"""Stages on other machines: three clones with a worker each give the dvc.lock of one machine."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from evidence.record.ledger import LEDGER
from evidence.record.signing import KEY_FILE
from tests.flows.watch import gone, wait_for
from tests.support.pools import POOLS, Site, project, site

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
LINES = [f"- {{stage: '{stage}', pool: {pool}, wait: 20s, retries: {{lost: 0}}}}\n" for stage, pool in POOLS.items()]
TABLE = f"stages:\n{''.join(LINES)}"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with site(folder, project(folder, TABLE)) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Finished:
    """A clone whose run is finished, what the run printed, and the folder of each pool's worker."""

    clone: Path
    output: str
    workers: dict[str, Path]


@pytest.fixture(scope="module")
def finished(here: Site) -> Finished:
    clone = here.clone("many")
    with ExitStack() as stack:
        workers = {pool: stack.enter_context(here.worker(pool)) for pool in POOLS.values()}
        return Finished(clone, here.run(clone, "-m", "flows.reproduce"), workers)


def test_three_clones_give_the_lock_of_one_machine(here: Site, finished: Finished, tmp_path: Path) -> None:
    one, many, output, workers = here.clone("one"), finished.clone, finished.output, finished.workers
    (one / "infra/resources.yaml").write_text("stages: []\n")
    here.run(one, "-m", "flows.reproduce", PATHFINDER_REMOTE=str(tmp_path / "other"))
    assert (many / "dvc.lock").read_text() == (one / "dvc.lock").read_text()
    for stage, pool in POOLS.items():
        ran = [path.parts[-2] for path in (workers[pool] / "1/.pathfinder/lineage").glob("*/*.json")]
        assert ran == [stage], "each stage ran in the clone of its own pool"
        assert f"[{stage}] waits for a worker of pool {pool}" in output
        (record,) = (many / ".pathfinder/lineage" / stage).glob("*.json")
        assert json.loads(record.read_text())["stage"] == stage, "the record came back"
    assert (many / "models/full/weights.txt").read_bytes() == (one / "models/full/weights.txt").read_bytes()
    assert not (workers["gpu"] / "1/models/plain").exists()
    fresh = here.clone("fresh")
    output = here.run(fresh, "-m", "flows.reproduce")
    assert "waits for a worker" not in output, "the remote has the results of the workers"
    assert (fresh / "dvc.lock").read_text() == (one / "dvc.lock").read_text()
    shutil.rmtree(many / "models")
    again = here.run(many, "-m", "flows.reproduce")
    assert "restored" in again
    assert "waits for a worker" not in again


def test_a_failure_of_a_worker_is_one_line_here(here: Site, finished: Finished) -> None:
    clone = finished.clone
    (clone / "params.yaml").write_text("train: {rate: 2, note: x}\n")
    with here.worker("gpu", "again"):
        output = here.run(clone, "-m", "flows.reproduce", code=1)
    failed = re.findall(r"^\[train@\w+\] train@(\w+) in pool .*\(.*full output: .*$", output, re.MULTILINE)
    assert sorted(failed) == ["full"], output
    assert "params.yaml: rate is 2; expected at most 1" in output
    assert "Traceback" not in output
    assert "pool pathfinder-judge has had no worker for 20 s; start one with `prefect worker start" in output


def test_a_worker_with_a_key_that_nobody_trusts_is_refused_in_one_line(here: Site, finished: Finished) -> None:
    clone, key = finished.clone, here.folder / "stranger/signing.pem"
    (clone / "params.yaml").write_text("train: {rate: 0.25, note: x}\n")
    ledger = (clone / LEDGER).read_bytes()
    with here.worker("gpu", "stranger", **{KEY_FILE: str(key)}):
        output = here.run(clone, "-m", "flows.reproduce", "train@full", code=1)
    assert re.search(r"^\[train@full\] train@full: key \w{12}, which is not trusted here, signed", output, re.MULTILINE)
    assert "Traceback" not in output
    assert (clone / LEDGER).read_bytes() == ledger


def test_ending_a_run_ends_the_stage_of_the_worker(here: Site, finished: Finished) -> None:
    clone = finished.clone
    (clone / "params.yaml").write_text("train: {rate: 0.125, note: x}\n")
    with here.worker("gpu", "third") as folder:
        process = here.start(clone, "-m", "flows.reproduce", "train@full")
        pid = int(wait_for(folder / "1/pid.txt", 300))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        assert gone(pid, 120)
    (clone / "params.yaml").write_text("train: {rate: 0.5, note: 'Ünïcode <+>'}\n")
    assert "waits for a worker" not in here.run(clone, "-m", "flows.reproduce"), "the run cache has them"
