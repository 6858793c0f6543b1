"""Faults of whole runs, on the miniature project and a real server. ``make test`` leaves them out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest

from flows.local.storage import REMOTE
from tests.flows.conftest import Project, make_project  # noqa: F401

pytestmark = pytest.mark.faults


def test_a_clone_restores_a_run_although_its_lock_names_other_outs(
    make_project: Callable[[], Project],  # noqa: F811
) -> None:
    here, there = make_project(), make_project()
    here, there = (
        replace(project, environment={**project.environment, REMOTE: str(here.root.parent / "remote")})
        for project in (here, there)
    )
    here.reproduce()
    lock = (here.root / "dvc.lock").read_text()
    other = re.sub(r"(outs:\n(?:    - path: .*\n      hash: md5\n)      md5: )\w{4}", r"\g<1>0000", lock)
    assert other != lock
    (there.root / "dvc.lock").write_text(other)
    there.reproduce("--pull")
    assert there.ran() == []
    assert (there.root / "out/total.txt").read_bytes() == (here.root / "out/total.txt").read_bytes()
    shutil.rmtree(here.root.parent / "remote")


def test_a_manifest_that_cannot_be_written_fails_the_run_and_the_next_one_writes_it(
    make_project: Callable[[], Project],  # noqa: F811
) -> None:
    project = make_project()
    published = project.root / ".pathfinder/storage/pathfinder"
    published.mkdir(parents=True)
    (published / "manifests").touch()  # a file where a folder must be
    output = project.reproduce(code=1)
    assert "[storage] the run could not be published: " in output
    assert "[pathfinder] all stages succeeded; not published (run the whole pipeline again to publish)" in output
    assert "Traceback" not in output
    (published / "manifests").unlink()
    project.ran()
    assert "pushing outputs that .pathfinder/storage does not have" in project.reproduce()
    assert project.ran() == []
    assert [path.name for path in (published / "log").iterdir()] == ["00000001.json"]
