"""Evidence serves projects that are not ours: recorded, published, checked, and tampered with in every way."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from ground.io import sha256_file
from tests.evidence.foreign import EXAMPLE, SHELL, WRAPPER, run_in, write_project
from tests.evidence.test_bundle import verified

FILES = {"example": EXAMPLE, "shell": SHELL}
PARTLY = {
    "dvc.yaml": f"""
stages:
  sort:
    cmd: {WRAPPER} sh sort.sh
    deps: [data/text.txt, sort.sh]
    outs: [work/sorted]
  join:
    cmd: {WRAPPER} sort -m work/note.txt work/sorted/text.txt -o joined.txt
    deps: [work]
    outs: [joined.txt]
""",
    "data/text.txt": "two\none\n",
    "work/note.txt": "three\n",
    "sort.sh": "mkdir work/sorted\nsort data/text.txt > work/sorted/text.txt\n",
}
"""A stage reads a folder with a file that git has and an out of another stage."""


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.campaign] * (name == "example")) for name in FILES]
)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project after its run, with the evidence published."""
    project: Path = tmp_path_factory.mktemp(request.param) / "project"
    project.mkdir()
    write_project(project, FILES[request.param])
    return project


def test_a_recorded_and_published_project_is_sound(foreign: Path) -> None:
    report = json.loads(run_in(foreign, "python", "-m", "evidence", "check", "--strict", "--json"))
    assert report["findings"] == []
    assert report["stages"] == report["attested"] >= 2
    assert len(report["keys"]) == 1
    assert report["read"] == ["workspace", "cache", "remote storage"]
    assert not (foreign / ".pathfinder").exists()


def test_an_export_carries_nothing_of_this_project(foreign: Path) -> None:
    for form in ("crate", "openlineage", "cyclonedx"):
        text = run_in(foreign, "python", "-m", "evidence", "export", "--format", form)
        assert "evidence" in text
        words = set(re.findall(r"[a-z:/]*pathfinder[\w.-]*", text.lower()))
        assert {word for word in words if not word.endswith("pathfinder-prm")} == set()  # the installed package


def test_a_bundle_leads_a_stranger_to_the_upstream_file(foreign: Path) -> None:
    is_example, folder = (foreign / "eval").exists(), foreign.parent
    output = ("--json", "--output", "../b.tar.xz")
    printed = json.loads(run_in(foreign, "python", "-m", "evidence", "bundle", *output))
    assert printed["unrecorded"] == []
    assert printed["figures"] == ([] if is_example else ["top.txt"])  # the metrics are in a folder
    if is_example:
        run_in(foreign, "python", "-m", "evidence", "bundle", "eval/metrics.json#/gap", *output)
    run_in(foreign, "openssl", "pkey", "-in", "../keys/signing.pem", "-pubout", "-out", "../runner.pem")
    status, lines = verified(folder / "b.tar.xz", "--key", folder / "runner.pem", "--here", foreign / "storage")
    assert (status, lines[-1].partition(": ")[0]) == (0, "SOUND"), lines
    upstream = "data/data.xml" if is_example else "data/text.txt"
    assert [line for line in lines if line.endswith(f"  {upstream} (its bytes are here)")] != []
    with tarfile.open(folder / "b.tar.xz") as archive:
        assert any(name.startswith("log/0-storage/log/") for name in archive.getnames())


@pytest.mark.campaign
@pytest.mark.parametrize("foreign", ["example", "shell"], indirect=True)
def test_every_tampering_is_found_and_the_broken_link_named(foreign: Path) -> None:
    found = json.loads(run_in(foreign, "python", "-m", "tests.evidence.foreign"))
    assert len(found) >= 60
    assert [
        (name, expected, says) for name, expected, says in found if not any(expected in text for text in says)
    ] == []


def test_a_record_names_the_program_and_its_words(foreign: Path) -> None:
    if not (foreign / "src/count.sh").exists():
        pytest.skip("one project is enough")
    (path,) = (foreign / ".evidence/lineage/count").glob("*.json")
    record = json.loads(path.read_text())
    assert record["notes"]["program"] == {"name": "sh", "sha256": sha256_file(Path(shutil.which("sh") or "").resolve())}
    assert record["cmd"] == "python -m evidence record -- sh src/count.sh 'two words' words"
    assert (foreign / "words/title.txt").read_text() == "two words\n"
    assert record["unlisted_modules"] == {}
    assert [stage["stage"] for stage in json.loads(run_in(foreign, "python", "-m", "evidence", "list", "--json"))]


def test_a_folder_that_git_has_in_part_is_replayed_and_exported(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write_project(project, PARTLY)
    assert "identical" in run_in(project, "python", "-m", "evidence", "replay", "join")
    parts = json.loads(run_in(project, "python", "-m", "evidence", "export", "--format", "cyclonedx"))["components"]
    names = [each["bom-ref"] for part in parts for each in (part, *part.get("components", ()))]
    assert {"artefact:work#sorted/text.txt", "artefact:work/sorted#text.txt"} <= set(names)
    assert len(names) == len(set(names))
