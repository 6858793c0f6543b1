"""A release is built from a clone, twice to the same bytes, and refused if anything is not ready."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ground.io import sha256_file
from tests.support.miniature import GIT

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("pathfinder", "ground", "evidence", "extras", "docs/evidence")


def released(folder: Path, *words: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "infra/release.py"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, umask=umask)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of a release."""
    folder = tmp_path_factory.mktemp("release")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / file, folder / file)
    for path in (ROOT / "infra").glob("requirements*.in"):
        (folder / "infra").mkdir(exist_ok=True)
        shutil.copyfile(path, folder / "infra" / path.name)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        subprocess.run([*GIT, *command], cwd=folder, check=True)
    return folder


def version_of(folder: Path) -> str:
    found = re.search(r'^version = "(.+)"$', (folder / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_a_release_has_its_files_their_sums_and_a_tag(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "t")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "t@example.org")
    version = version_of(clone)
    done = released(clone, version, "--tag")
    assert done.returncode == 0, done.stderr
    sums = dict(line.split()[::-1] for line in done.stdout.splitlines())
    packages = [f"pathfinder_prm-{version}-py3-none-any.whl", f"pathfinder_prm-{version}.tar.gz"]
    assert list(sums) == ["notes.md", *packages, "quickstart.tar.xz", "runner.pem"]
    assert sums == {name: sha256_file(clone / "dist" / name) for name in sums}
    assert (clone / "dist/SHA256SUMS").read_text() == done.stdout
    assert (clone / "dist/notes.md").read_text().strip() in (clone / "CHANGELOG.md").read_text()
    tags = subprocess.run(["git", "tag", "--points-at", "HEAD"], cwd=clone, capture_output=True, text=True, check=True)
    assert tags.stdout == f"v{version}\n"


@pytest.mark.campaign
def test_two_builds_have_the_same_bytes(clone: Path) -> None:
    first = released(clone, version_of(clone))
    (clone / "pathfinder/cli.py").touch()
    second = released(clone, version_of(clone), umask=0o077)
    assert second.stdout == first.stdout != "", second.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "error"),
    [
        ("README.md", "#", "##", "README.md: differs from the commit; commit it or remove it"),
        ("CITATION.cff", "\nversion: ", "\nversion: 9", "CITATION.cff: the version is 9VERSION; change it, or release"),
        ("CHANGELOG.md", "## VERSION\n", "## Older\n", "CHANGELOG.md: no section VERSION with content"),
        pytest.param(
            "pyproject.toml",
            '"demo_model/*", ',
            "",
            "pathfinder_prm-VERSION-py3-none-any.whl: lacks pathfinder/demo_model/",
            marks=pytest.mark.campaign,
        ),
    ],
    ids=["tree", "version", "changelog", "wheel"],
)
def test_a_release_that_is_not_ready_is_refused(
    clone: Path, tmp_path: Path, file: str, old: str, new: str, error: str
) -> None:
    folder, version = Path(shutil.copytree(clone, tmp_path / "clone")), version_of(clone)
    text = (folder / file).read_text()
    (folder / file).write_text(text.replace(old.replace("VERSION", version), new, 1))
    if file != "README.md":
        subprocess.run([*GIT, "commit", "-qam", "Change"], cwd=folder, check=True)
    done = released(folder, version)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {error.replace('VERSION', version)}"), done.stderr
