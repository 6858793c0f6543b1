"""Stages on other machines: three clones with a worker each give the dvc.lock of one machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.pools import POOLS, Site, site

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
TABLE = "stages:\n" + "".join(f"- {{stage: '{stage}', pool: {pool}, wait: 20s}}\n" for stage, pool in POOLS.items())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("site"), TABLE) as found:
        yield found


def test_three_clones_give_the_lock_of_one_machine(here: Site, tmp_path: Path) -> None:
    one, many = here.clone("one"), here.clone("many")
    (one / "infra/resources.yaml").write_text("stages: []\n")
    here.run(one, "-m", "flows.reproduce", PATHFINDER_REMOTE=str(tmp_path / "other"))
    with ExitStack() as stack:
        workers = {pool: stack.enter_context(here.worker(pool)) for pool in POOLS.values()}
        output = here.run(many, "-m", "flows.reproduce")
    assert (many / "dvc.lock").read_text() == (one / "dvc.lock").read_text()
    for stage, pool in POOLS.items():
        ran = [path.parts[-2] for path in (workers[pool] / "1/.pathfinder/lineage").glob("*/*.json")]
        assert ran == [stage], "each stage ran in the clone of its own pool"
        assert f"[{stage}] waits for a worker of pool {pool}" in output
        (record,) = (many / ".pathfinder/lineage" / stage).glob("*.json")
        assert json.loads(record.read_text())["stage"] == stage, "the record came back"
    assert (many / "models/full/weights.txt").read_bytes() == (one / "models/full/weights.txt").read_bytes()
    assert not (workers["gpu"] / "1/models/plain").exists()
    shutil.rmtree(many / "models")
    again = here.run(many, "-m", "flows.reproduce")
    assert "restored" in again
    assert "waits for a worker" not in again
