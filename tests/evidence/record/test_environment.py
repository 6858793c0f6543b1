"""The description of a run's environment: JSON, with the commit and the files that differ from it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from evidence.audit.workspace import Workspace
from evidence.record.environment import (
    describe_actor,
    describe_commit,
    describe_environment,
    describe_tree,
    image_of,
    installed_packages,
    peak_rss_bytes,
)
from evidence.remote.publication import publication
from ground.io import DataError
from tests.support.miniature import GIT


def test_the_environment_is_json_with_packages_processor_and_kernels() -> None:
    code = (
        "import json, torch\nfrom evidence.record.environment import describe_environment\n"
        "print(json.dumps(describe_environment()))"
    )
    variables = {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["torch"]["capability"], found["torch"]["threads"]) == ("DEFAULT", 1)
    assert found["variables"].items() >= {name: variables[name] for name in list(variables)[:2]}.items()
    assert "sse2" in (found["cpu_flags"] or "sse2").split()
    assert describe_environment()["torch"] is None or "torch" in sys.modules


def test_variables_hold_no_secret_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("HF_TOKEN", "HF_PASS", "PATHFINDER_API_KEY", "PATHFINDER_NOTIFY", "PATHFINDER_WEBHOOK", "VLLM_PASSWORD")
    for name in (*secrets, "AWS_REGION", "HOME"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("HF_HOME", "/home/someone/models")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    found = describe_environment()["variables"]
    assert "secret" not in found.values()
    assert found["TOKENIZERS_PARALLELISM"] == "false"
    assert found["HF_HOME"] == f"sha256 {hashlib.sha256(b'/home/someone/models').hexdigest()[:16]}"


def test_every_installed_distribution_is_listed_with_its_version() -> None:
    found = installed_packages()
    assert len(found) > 150
    for name in ("polars", "great-expectations", "pyyaml"):
        assert found[name] == metadata.version(name)


def test_the_actor_names_user_host_and_flow_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHFINDER_FLOW_RUN", "7")
    monkeypatch.setenv("LOGNAME", "someone")
    found = describe_actor()
    assert (found["user"], found["flow_run"], found["image"]) == ("someone", "7", None)


def test_podman_s_file_names_the_image(tmp_path: Path) -> None:
    marker = tmp_path / ".containerenv"
    marker.write_text(f'engine="podman-4.9"\nimage="docker.io/x"\nimageid="{"a" * 64}"\n')
    assert image_of(marker) == f"sha256:{'a' * 64}"
    marker.write_text("")
    assert image_of(marker) is None
    assert image_of(tmp_path / "none") is None


def test_changed_and_untracked_paths_are_listed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    paths = ["stages", "pathfinder/mixing", "params.yaml"]
    clean = describe_commit(paths)
    assert (len(clean["commit"]), clean["dirty"], clean["changed"]) == (40, False, [])
    before = describe_tree()
    assert (len(before["tree"]), list(before["changed"]), before["more"]) == (40, ["dvc.lock"], 0)
    (project / "pathfinder/mixing/new.py").touch()
    (project / "params.yaml").write_text("train: {}\n")
    (project / "dvc.yaml").unlink()
    assert describe_commit(paths)["changed"] == ["params.yaml", "pathfinder/mixing/new.py"]
    assert describe_tree()["changed"] == before["changed"] | {
        "dvc.yaml": None,
        "params.yaml": hashlib.sha256(b"train: {}\n").hexdigest(),
        "pathfinder/mixing/new.py": hashlib.sha256(b"").hexdigest(),
    }


def test_a_dependency_outside_the_repository_hides_no_change(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "params.yaml").write_text("train: {}\n")
    for outside in ("/data/corpus", "../corpus"):
        assert describe_commit(["params.yaml", outside])["changed"] == ["params.yaml"]
    assert describe_commit([str(project / "params.yaml")])["changed"] == ["params.yaml"]


def test_a_project_in_a_folder_of_a_repository_names_its_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("sub/code.py", "above.txt"):
        (tmp_path / name).touch()
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*GIT, *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path / "sub")
    for name in ("code.py", "../above.txt"):
        Path(name).write_text("changed\n")
    digest = hashlib.sha256(b"changed\n").hexdigest()
    assert describe_tree()["changed"] == {"../above.txt": digest, "code.py": digest}
    assert describe_commit(["code.py"])["changed"] == ["code.py"]


def test_with_a_damaged_index_the_changes_are_unknown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    before = describe_tree()
    (project / ".git/index").write_bytes(b"damaged")
    unknown = {"commit": before["commit"], "changed": None}
    assert describe_commit(["params.yaml"]) == unknown | {"dirty": None}
    assert describe_tree() == unknown | {"tree": before["tree"], "more": None}
    assert Workspace(project).state_of_commit().endswith(" with uncommitted changes: git status fails")
    with pytest.raises(DataError, match="`git diff HEAD` fails"):
        publication(project)


def test_outside_a_repository_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_commit(["."]) == {"commit": None, "dirty": None, "changed": None}
    assert set(describe_tree().values()) == {None}


def test_macos_counts_no_usable_processors_and_measures_memory_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = peak_rss_bytes()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert describe_environment()["cpus_usable"] == os.cpu_count()
    assert peak_rss_bytes() < before / 100
