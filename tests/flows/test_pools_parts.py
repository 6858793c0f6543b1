"""Parts of one stage on several workers, through a pool and the bucket: the same bytes as on one machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.miniature import GIT
from tests.support.pools import Site, project, site

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
PREPARE = '''
"""Write the texts in capitals."""
from pathlib import Path
from typing import Annotated
from ground.io import sha256_file, write_text
from pathfinder.core.parts import Part, Parts
from evidence.record.stage import stage

@stage
def main(*, part: Annotated[str, "only this part"] = "") -> None:
    files = sorted(Path("artifacts/raw/corpus").rglob("*.txt"))
    parts = Parts("prepare", lambda: {str(file): sha256_file(file) for file in files})
    if part:
        own = Part.parse(part)
        with parts.writing(own) as folder:
            for number, file in enumerate(files):
                if own.has(number):
                    write_text(folder / f"{number}.txt", file.read_text().upper())
        return
    texts, found = [], parts.collect()
    for number, file in enumerate(files):
        folder = next((folder for own, folder in found.items() if own.has(number)), None)
        texts.append((folder / f"{number}.txt").read_text() if folder else file.read_text().upper())
    write_text(Path("artifacts/steps/all.txt"), "".join(texts))
    parts.clear()

if __name__ == "__main__":
    main()
'''
STAGE = {
    "cmd": "python -m stages.prepare",
    "deps": ["artifacts/raw/corpus", "stages/prepare.py", "pathfinder/core", "infra/locks"],
    "outs": ["artifacts/steps"],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    table = "stages:\n- {stage: prepare, pool: cpu, parts: 3, wait: 2s}\n"
    folder = tmp_path_factory.mktemp("site")
    with site(folder, project(folder, table)) as found:
        author = found.clone("author")
        (author / "stages/prepare.py").write_text(PREPARE)
        pipeline = yaml.safe_load((author / "dvc.yaml").read_text())
        pipeline["stages"]["prepare"] = STAGE
        (author / "dvc.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False))
        for words in (["add", "-A"], ["commit", "-qm", "Add a stage"], ["push", "-q", "origin", "HEAD:main"]):
            subprocess.run([*GIT, *words], cwd=author, check=True)
        yield found


def test_three_workers_compute_parts_and_the_stage_merges_them(here: Site, tmp_path: Path) -> None:
    one, many, alone = here.clone("one"), here.clone("many"), here.clone("alone")
    (one / "infra/resources.yaml").write_text("stages: []\n")
    here.run(one, "-m", "flows.reproduce", "prepare", PATHFINDER_REMOTE=str(tmp_path / "first"))
    output = here.run(alone, "-m", "flows.reproduce", "prepare", PATHFINDER_REMOTE=str(tmp_path / "second"))
    assert output.count("is missing, so the stage does its work: prepare: pool pathfinder-cpu has had no worker") == 3
    with here.worker("cpu") as worker:
        output = here.run(many, "-m", "flows.reproduce", "prepare")
    assert "prepare: uses 3 of 3 parts" in output
    assert "is missing" not in output
    assert all(f"python -m stages.prepare --part {n}/3: not listed" in output for n in (1, 2, 3))
    assert sorted(path.name for path in worker.iterdir() if path.is_dir()) == ["1", "2", "3"], "a clone for each part"
    text = (one / "artifacts/steps/all.txt").read_text()
    for clone in (alone, many):
        assert (clone / "dvc.lock").read_text() == (one / "dvc.lock").read_text()
        assert (clone / "artifacts/steps/all.txt").read_text() == text
    for folder in (many, worker / "1", worker / "2", worker / "3"):
        assert not list(folder.glob(".pathfinder/parts/prepare/*"))
    (record,) = (many / ".pathfinder/lineage/prepare").glob("*.json")
    assert '"3-of-3"' in record.read_text(), "the record names the parts"
    again = here.run(many, "-m", "flows.reproduce", "prepare")
    assert "nothing to do" in again
