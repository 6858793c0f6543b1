"""DVC's own commands with the project's settings: few figures, a clean status, a whole clone, plots without a network.

The pipeline is a small one; the settings, the ignored files and the page of the plots are the project's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.flows.conftest import ROOT
from tests.flows.test_branch import git
from tests.support.miniature import dvc

PIPELINE = """\
stages:
  data:
    cmd: mkdir -p out && cp given.txt out/data.txt && echo data >> ran.txt
    deps: [given.txt]
    outs: [out/data.txt]
  train:
    matrix: {run: [full, plain]}
    cmd: cp params.yaml out/${item.run}.txt && echo ${item.run} >> ran.txt
    deps: [out/data.txt]
    params: ["train.${item.run}"]
    outs: ["out/${item.run}.txt"]
  report:
    cmd: python report.py
    deps: [report.py, out/full.txt, out/plain.txt]
    outs: [reports/plots, metrics/details.json]
    metrics: [metrics/summary.json: {cache: false}]
plots:
- loss: {template: infra/plots/lines_by_system.json, x: step, y: {reports/plots/loss.json: loss}}
- score: {template: bar_horizontal, x: value, y: {reports/plots/score.json: name}}
"""
REPORT = """\
import json, pathlib
text = pathlib.Path("out/full.txt").read_text()
value = int(text.split("full: ")[1].split(",")[0])
for folder in ("metrics", "reports/plots"):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
def write(path, content):
    pathlib.Path(path).write_text(json.dumps(content))
write("metrics/summary.json", {"benchmarks": {"f1": value}})
write("metrics/details.json", {"many": {str(number): number for number in range(50)}})
write("reports/plots/loss.json", [{"system": "full", "step": step, "loss": value / (step + 1)} for step in range(5)])
write("reports/plots/score.json", [{"name": "<b>full</b>", "value": value}, {"name": "plain", "value": 1}])
with open("ran.txt", "a") as handle:
    print("report", file=handle)
"""
SETTINGS = (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore", "infra/plots", "infra/pretraining/dvc.yaml")
CHROMIUM = shutil.which("chromium")


def ran(root: Path) -> list[str]:
    """The stages that ran since the last call."""
    path = root / "ran.txt"
    names = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(names)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline after a run, committed and pushed; a person's clone of it is in ``../clone``."""
    root = tmp_path_factory.mktemp("dvc") / "project"
    for name in SETTINGS:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)
        else:
            shutil.copyfile(ROOT / name, root / name)
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / "report.py").write_text(REPORT)
    (root / "given.txt").write_text("given\n")
    (root / "params.yaml").write_text("train: {full: 80, plain: 3}\n")
    with (root / ".gitignore").open("a") as handle:
        handle.write("/out\n/ran.txt\n")
    git(root.parent, "init", "-q", "-b", "main", "project")
    for key, value in (("user.name", "someone"), ("user.email", "someone@example.org")):
        git(root, "config", key, value)
    dvc(root, "repro", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "First run")
    dvc(root, "push", "-q")
    git(root.parent, "clone", "-q", "project", "clone")
    dvc(root.parent / "clone", "remote", "modify", "--local", "storage", "url", str(root / ".pathfinder/storage"))
    return root


def test_the_pipeline_lists_one_small_metrics_file_that_git_holds() -> None:
    content = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    listed = [entry for stage in content["stages"].values() for entry in stage.get("metrics", ())]
    assert listed == [{"metrics/summary.json": {"cache": False}}]
    ignored = subprocess.run(["git", "check-ignore", "-q", "metrics/summary.json"], cwd=ROOT, check=False)
    assert ignored.returncode == 1
    committed = json.loads(git(ROOT, "show", "HEAD:metrics/summary.json"))
    assert 10 <= sum(len(part) for part in committed.values()) <= 20


def test_a_clone_pulls_and_shows_figures_and_changes(project: Path) -> None:
    clone = project.parent / "clone"
    dvc(clone, "pull", "-q")
    assert dvc(clone, "status").strip() == "Data and pipelines are up to date."
    assert json.loads(dvc(clone, "metrics", "show", "--json"))[""]["data"].keys() == {"metrics/summary.json"}
    (clone / "params.yaml").write_text("train: {full: 90, plain: 3}\n")
    dvc(clone, "repro", "-q")
    assert ran(clone) == ["full", "report"]
    changes = json.loads(dvc(clone, "metrics", "diff", "--json"))
    assert changes == {"metrics/summary.json": {"benchmarks.f1": {"old": 80, "new": 90, "diff": 10}}}
    git(clone, "checkout", "-q", "--force", "main")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not on the path")
def test_plots_are_drawn_without_a_network(project: Path, tmp_path: Path) -> None:
    dvc(project, "plots", "show", "-q", "-o", str(tmp_path / "plots"))
    page = tmp_path / "plots/index.html"
    assert not re.search(r"""(src|href)=["']?http""", page.read_text())
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", page.as_uri()]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert len(re.findall(r"<polyline points=\"[\d.,]+ [\d., ]+\"", drawn)) == 1
    assert len(re.findall(r"<rect ", drawn)) == 2
    assert "&lt;b&gt;full&lt;/b&gt;</text>" in drawn


@pytest.mark.campaign
def test_experiments_run_only_what_a_parameter_changes(project: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(project, tmp_path / "project"))
    ran(root)
    dvc(root, "exp", "run", "-q", "-S", "train.full=81", "-n", "first")
    assert ran(root) == ["full", "report"]
    dvc(root, "exp", "run", "-q", "--queue", "-S", "train.full=82", "-n", "second")
    assert "second" in dvc(root, "queue", "status")
    dvc(root, "queue", "start", "-q")
    deadline = time.monotonic() + 300
    while not re.search(r"second .*Success", status := dvc(root, "queue", "status")):
        assert time.monotonic() < deadline, status
        time.sleep(2)
    dvc(root, "queue", "stop", "-q")
    shown = dvc(root, "exp", "show", "--csv", "--no-pager")
    header, *rows = [line.split(",") for line in shown.splitlines()]
    figures = {row[header.index("Experiment")]: row[header.index("benchmarks.f1")] for row in rows}
    assert (figures["first"], figures["second"]) == ("81", "82")
    assert not [name for name in header if "many" in name]
    assert dvc(root, "exp", "diff", "first", "second", "--json")
    dvc(root, "exp", "apply", "-q", "second")
    assert json.loads((root / "metrics/summary.json").read_text()) == {"benchmarks": {"f1": 82}}
    assert dvc(root, "status").strip() == "Data and pipelines are up to date."


@pytest.mark.campaign
def test_commands_that_look_and_tidy_up(project: Path) -> None:
    stages = dvc(project, "stage", "list", "--name-only").split()
    assert stages == ["data", "train@full", "train@plain", "report"], "the pipeline of infra/pretraining is hidden"
    assert "pretraining" not in dvc(project, "dag", "--mermaid")
    before = sum(path.is_file() for path in (project / ".dvc/cache").rglob("*"))
    dvc(project, "gc", "--workspace", "--dry", "--force")
    assert sum(path.is_file() for path in (project / ".dvc/cache").rglob("*")) == before
    assert "in sync" in dvc(project, "status", "--cloud")
    (project / "params.yaml").write_text("train: {full: 90, plain: 3}\n")
    assert "train.full" in dvc(project, "params", "diff")
    git(project, "checkout", "-q", "--force", "main")
    assert dvc(project, "data", "status").strip() == "No changes."


@pytest.mark.campaign
@pytest.mark.skipif("PATHFINDER_FINISHED_RUN" not in os.environ, reason="PATHFINDER_FINISHED_RUN names no folder")
def test_a_finished_run_is_clean_for_dvc(tmp_path: Path) -> None:
    root = Path(os.environ["PATHFINDER_FINISHED_RUN"])
    assert dvc(root, "status").strip() == "Data and pipelines are up to date."
    figures = json.loads(dvc(root, "metrics", "show", "--json"))[""]["data"]["metrics/summary.json"]["data"]
    assert 10 <= sum(len(part) for part in figures.values()) <= 20
    dvc(root, "push", "-q")
    git(tmp_path, "clone", "-q", str(root), "clone")
    clone = tmp_path / "clone"
    shutil.copyfile(root / "dvc.lock", clone / "dvc.lock")
    shutil.copytree(root / "metrics", clone / "metrics", dirs_exist_ok=True)
    dvc(clone, "remote", "modify", "--local", "storage", "url", str(root / ".pathfinder/storage"))
    dvc(clone, "pull", "-q", "--force")
    assert dvc(clone, "status").strip() == "Data and pipelines are up to date."
