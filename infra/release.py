"""Build a release of the current commit in dist/: sdist, wheel, notes, bundle of evidence, and all files' checksums.

The same commit and the same version of setuptools give the same bytes.

Run     python -m infra.release VERSION [--tag]     --tag also creates the tag vVERSION
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ground.io import DataError, atomic_folder, remove, sha256_file, write_bytes, write_text
from ground.text import errors_without_traceback

DIST, EVIDENCE = Path("dist"), Path("docs/evidence")
_SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
_STATED = (("pyproject.toml", r'^version = "(.+)"$'), ("CITATION.cff", r"^version: (.+)$"))


def notes(version: str) -> str:
    """The changelog's section of a version. Raises ``DataError`` if tree, section or a version is not ready."""
    if changed := _run("git", "status", "--porcelain"):
        raise DataError(f"{changed[3:].splitlines()[0]}: differs from the commit; commit it or remove it")
    for file, pattern in _STATED:
        stated = re.findall(pattern, Path(file).read_text(encoding="utf-8"), re.MULTILINE)
        if stated != [version]:
            raise DataError(f"{file}: the version is {', '.join(stated)}; change it, or release that version")
    parts = re.split(r"^## (.+)\n", Path("CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    section = dict(zip(parts[1::2], parts[2::2], strict=True)).get(version, "").strip()
    if not section:
        raise DataError(f"CHANGELOG.md: no section {version} with content; give the section Unreleased this title")
    return section + "\n"


def build(target: Path) -> None:
    """Build the sdist from the committed files and the wheel from it. Raises ``DataError`` if a file is missing."""
    moment = _run("git", "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory() as temporary:
        _run("git", "checkout-index", "--all", f"--prefix={temporary}/source/")
        name = _run(sys.executable, "-c", _SDIST, temporary, cwd=Path(temporary, "source")).split()[-1]
        write_bytes(target / name, _normal(Path(temporary, name), int(moment)))
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
        _run("env", f"SOURCE_DATE_EPOCH={moment}", *pip, str(target), str(target / name))
    (wheel,) = target.glob("*.whl")
    wanted = ("pathfinder", "ground/*.py", "evidence/*.py", "extras/*.py", ":!extras/experiment")
    own = _run("git", "ls-files", *wanted).split()
    if lost := set(own) - set(zipfile.ZipFile(wheel).namelist()):
        raise DataError(f"{wheel.name}: lacks {min(lost)}; name its kind in package-data of pyproject.toml")


def _normal(sdist: Path, moment: int) -> bytes:
    """The archive without compression and owners; its members are sorted and have the same time."""
    raw = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as new:
        for member in sorted(old, key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return raw.getvalue()


def _run(*words: str, cwd: Path = Path()) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, umask=0o022)
    if done.returncode:
        raise DataError(f"{' '.join(words)[:80]} failed; correct the cause: {(done.stderr or done.stdout)[-300:]}")
    return done.stdout


def main(argv: Sequence[str] | None = None) -> None:
    """Check, build and, if asked, tag."""
    parser = argparse.ArgumentParser(prog="python -m infra.release", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("version", metavar="VERSION", help="as in pyproject.toml, such as 0.1.0")
    parser.add_argument("--tag", action="store_true", help="create the tag vVERSION")
    given = parser.parse_args(argv)
    section = notes(given.version)
    remove(DIST)
    with atomic_folder(DIST) as folder:
        build(folder)
        write_text(folder / "notes.md", section)
        shutil.copytree(EVIDENCE, folder, dirs_exist_ok=True)
        sums = "".join(f"{sha256_file(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
        write_text(folder / "SHA256SUMS", sums)
    if given.tag:
        _run("git", "tag", "--annotate", f"v{given.version}", "--message", f"pathfinder-prm {given.version}")
    print(sums, end="")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
