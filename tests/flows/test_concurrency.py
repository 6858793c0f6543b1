"""Runs at the same time: in one folder one proceeds and the others name it, in two clones both proceed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from evidence.dvc.history import read_lock
from evidence.dvc.stores import object_key
from flows.local.dvc import Dvc
from flows.local.lock import LOCK
from flows.local.storage import REMOTE
from ground.remote import open_store
from tests.flows.conftest import Project
from tests.flows.watch import soon

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
WAIT = """\
while not pathlib.Path('go.txt').exists():
    time.sleep(0.1)
"""
STAGES = ["numbers", "even", "odd", "total"]


@pytest.mark.parametrize("count", [2, 8])
def test_one_of_the_runs_in_a_folder_proceeds(project: Project, count: int) -> None:
    project.trap("numbers", WAIT)
    runs = [project.start("-m", "flows.reproduce", "--jobs", "2") for _ in range(count)]
    assert soon(lambda: sum(run.poll() is not None for run in runs) == count - 1, 600)
    (first,) = (run for run in runs if run.poll() is None)
    (project.root / "go.txt").touch()
    output = first.communicate()[0]
    assert first.returncode == 0, output
    wanted = (
        rf"error: another run is in progress in this folder \(PID {first.pid}, since [^()]*: -m flows\.reproduce .*\)"
    )
    for run in runs:
        if run is not first:
            assert re.fullmatch(rf"{wanted}; wait for it or end it\n", said := run.communicate()[0]), said
            assert run.returncode == 1
    assert sorted(project.ran()) == sorted(STAGES)
    assert (project.root / "out/total.txt").read_text() == "285\n"
    assert Dvc(project.root).status() == {}
    assert (project.root / LOCK).read_text() == ""


def test_clones_that_share_a_remote_both_proceed_and_lose_nothing(make_project: Callable[[], Project]) -> None:
    clones = [make_project() for _ in range(3)]
    remote = clones[0].root.parent / f"{clones[0].root.name}-remote"
    clones = [replace(one, environment={**one.environment, REMOTE: str(remote)}) for one in clones]
    (clones[1].root / "params.yaml").write_text("count: 12\n")
    runs = [one.start("-m", "flows.reproduce", "--jobs", "2") for one in clones[:2]]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    store = open_store(str(remote))
    assert {f"pathfinder/log/{number:08d}.json" for number in (1, 2)} <= set(store.keys("pathfinder/log/"))
    for one in clones[:2]:
        for stage in read_lock(one.root).values():
            for md5 in stage.outs.values():
                assert hashlib.md5(store.read(object_key(md5)), usedforsecurity=False).hexdigest() == md5
    for count, total in ((10, "285\n"), (12, "506\n")):
        (clones[2].root / "params.yaml").write_text(f"count: {count}\n")
        clones[2].reproduce("--pull")
        assert clones[2].ran() == []
        assert (clones[2].root / "out/total.txt").read_text() == total
