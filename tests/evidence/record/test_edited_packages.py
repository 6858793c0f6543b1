"""Files of installed packages that were edited, and files that Python runs at its start."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.record import environment
from evidence.record.environment import describe_environment
from evidence.verbs.check import check
from evidence.verbs.diff import _environment
from tests.evidence import small as project
from tests.support.miniature import ROOT

SOURCE = "VALUE = 1\n"


def install(folder: Path, files: dict[str, str], version: str = "1.0") -> None:
    """A package as an installer leaves it."""
    info = folder / f"Planted_Package-{version}.dist-info"
    info.mkdir(parents=True)
    lines = []
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,", "../../../bin/tool,sha256=AAAA,9"]) + "\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, with one that is loaded."""
    folder = tmp_path / "site-packages"
    install(folder, {"planted_package/__init__.py": "", "planted_package/core.py": SOURCE, "planted.pth": "other\n"})
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    importlib.invalidate_caches()
    importlib.import_module("planted_package.core")
    yield folder
    for name in ("planted_package", "planted_package.core", "usercustomize"):
        sys.modules.pop(name, None)


def test_packages_as_they_were_installed_are_not_named(site: Path) -> None:
    assert environment.edited_files(environment.installed_records()) == {}
    assert len(environment.installed_wheels(environment.installed_records())["planted-package"]) == 32
    assert describe_environment()["edited_files"] == {}


def test_the_digest_does_not_depend_on_the_place_of_the_environment(site: Path) -> None:
    before = environment.installed_wheels(environment.installed_records())["planted-package"]
    (record,) = site.glob("*.dist-info/RECORD")
    record.write_text(record.read_text().replace("AAAA", "BBBB"))
    assert environment.installed_wheels(environment.installed_records())["planted-package"] == before
    record.write_text(record.read_text().replace("planted.pth,", "planted-2.pth,"))
    assert environment.installed_wheels(environment.installed_records())["planted-package"] != before


def test_an_edited_module_is_named(site: Path) -> None:
    (site / "planted_package/core.py").write_text("VALUE = 2\n")
    stated, now = (hashlib.sha256(text.encode()).hexdigest() for text in (SOURCE, "VALUE = 2\n"))
    assert environment.edited_files(environment.installed_records()) == {"planted_package/core.py": [stated, now]}


def test_files_that_python_runs_at_its_start_are_named(site: Path) -> None:
    (site / "planted.pth").write_text("import os\n")
    (site / "new.pth").write_text("import os\n")
    (site / "usercustomize.py").write_text("")
    importlib.import_module("usercustomize")
    found = environment.edited_files(environment.installed_records())
    assert {name: stated is None for name, (stated, _) in found.items()} == {
        "planted.pth": False,
        "new.pth": True,
        "usercustomize.py": True,
    }


def test_a_new_file_where_packages_have_no_record_is_told_apart(site: Path) -> None:
    """Distributions of Linux install packages without RECORD."""
    (site / "other.egg-info").mkdir()
    (site / "new.pth").write_text("import os\n")
    (name,) = environment.edited_files(environment.installed_records())
    assert name == "new.pth (where packages have no RECORD)"
    assert environment.may_be_sound(name)
    assert environment.may_be_sound("_virtualenv.pth")


@pytest.mark.parametrize(
    ("name", "stated", "expected"),
    [
        ("torch/nn/functional.py", "1" * 64, "error: torch/nn/functional.py: the run loaded this file of a package"),
        ("new.pth", None, "error: new.pth: Python ran this file (sha256 2222"),
        ("sitecustomize.py", None, "error: sitecustomize.py: Python ran this file"),
        ("_virtualenv.pth", None, "note: _virtualenv.pth: Python ran this file"),
    ],
)
def test_check_names_the_file(small: Path, name: str, stated: str | None, expected: str) -> None:
    environment = {"cpu": "one", "edited_files": {name: [stated, "2" * 64]}}
    (small / project.MODEL / "weights.txt").write_text("0.7\n")
    project.write_locks(small)
    project.store(small, project.MODEL)
    project.add_record(small, "train", environment=environment)
    (line,) = [each for each in project.found(small) if "sha256" in each]
    assert line.startswith(expected)
    assert line.endswith(" (train)")
    assert check(None, small).verdict == ("SOUND" if expected.startswith("note") else "ALTERED")


def test_another_process_names_an_edited_package_in_its_environment(tmp_path: Path) -> None:
    install(tmp_path / "site", {"planted_package/__init__.py": SOURCE})
    (tmp_path / "site/planted_package/__init__.py").write_text("VALUE = 3\n")
    code = f"""import json, sys
sys.path[:0] = [{str(tmp_path / "site")!r}, {str(ROOT)!r}]
import planted_package
from evidence.record.environment import describe_environment
print(json.dumps(describe_environment()["edited_files"]))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert list(json.loads(done.stdout)) == ["planted_package/__init__.py"]


def test_environments_are_compared_by_what_both_know() -> None:
    old = {"packages": {"torch": "2", "polars": "1"}}
    one = {"packages": {"torch": "2", "polars": "1"}, "wheels": {"torch": "a", "polars": "b"}}
    two = {"packages": {"torch": "2", "polars": "3"}, "wheels": {"torch": "c", "polars": "d"}, "edited_files": {}}
    assert [change.about for change in _environment(old, one)] == []
    assert [(change.about, change.left, change.right) for change in _environment(one, two)] == [
        ("polars", "1", "3"),
        ("files of package torch", "a", "c"),
    ]
    edited = two | {"edited_files": {"torch/nn/__init__.py": ["1", "2"]}}
    assert [change.about for change in _environment(two, edited)] == ["edited file torch/nn/__init__.py"]
