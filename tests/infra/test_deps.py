"""``infra.deps``: missing and superfluous code dependencies are listed and corrected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evidence.dvc.pipeline import read_pipeline
from ground.io import DataError, write_text
from infra import deps

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "stages/__init__.py": "",
    "stages/train.py": "def main():\n    from pathfinder.tree.tree import grow\n",
    "pathfinder/__init__.py": "",
    "pathfinder/core/__init__.py": "",
    "ground/io.py": "",
    "pathfinder/tree/__init__.py": "",
    "pathfinder/tree/tree.py": "import ground.io\nimport evidence.record.stage\n",
    "evidence/record/__init__.py": "",
    "evidence/record/stage.py": "",
    "infra/pretraining/dvc.yaml": "stages: {}\n",
}
PIPELINE = """\
# A comment.
stages:
  train:
    cmd: python -m stages.train ${item}  # another
    deps: [data/b, data/a, CODE]
    outs: [models]
"""
CORRECT = "stages/train.py, stages/__init__.py, pathfinder/__init__.py, ground, pathfinder/tree, infra/locks"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        write_text(tmp_path / name, text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_correct_list_is_not_changed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PIPELINE.replace("CODE", CORRECT)
    (project / "dvc.yaml").write_text(text)
    deps.main([])
    deps.main(["--write"])
    assert (project / "dvc.yaml").read_text() == text
    assert "dvc.yaml lists the code that its stages import" in capsys.readouterr().out


def test_differences_are_listed_and_corrected(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "dvc.yaml").write_text(PIPELINE.replace("CODE", "stages/train.py, ground, pathfinder/judge"))
    with pytest.raises(SystemExit, match="--write"):
        deps.main([])
    listed = capsys.readouterr().out.splitlines()
    assert listed[:5] == [
        "train: missing infra/locks",
        "train: missing pathfinder/__init__.py",
        "train: missing pathfinder/tree",
        "train: missing stages/__init__.py",
        "train: superfluous pathfinder/judge",
    ]
    deps.main(["--write"])
    assert (project / "dvc.yaml").read_text() == PIPELINE.replace("CODE", CORRECT)


SECOND = """
  grow:
    desc: >-
      Two lines
      of text
    cmd: python -m stages.train grow
    deps: ["models/${item}", CODE]
    outs:
    -   models/grown

plots:
- a: {x: step,
    y: loss}
"""


def test_only_the_lists_that_are_wrong_change_and_keep_their_form(project: Path) -> None:
    path = project / "dvc.yaml"
    data = [f"artifacts/of_a_long_name/number_{number}" for number in range(4)]
    form = PIPELINE.replace("data/b, data/a", ", ".join(data)).replace("CODE", CORRECT) + SECOND
    path.write_text(form.replace("CODE", "stages/train.py, pathfinder/judge"))
    deps.main(["--write"])
    assert path.read_text() == form.replace("CODE", CORRECT)
    path.write_text(path.read_text().replace(", infra/locks", ""))
    deps.main(["--write"])
    lines = path.read_text().splitlines()
    assert max(map(len, lines)) <= 128
    assert not any(line != line.rstrip() for line in lines)
    assert lines[5].startswith("           artifacts/of_a_long_name/number_3, stages/train.py")


def test_a_list_without_brackets_is_not_touched(project: Path) -> None:
    (project / "dvc.yaml").write_text("stages:\n  train:\n    cmd: python -m stages.train a\n    deps:\n    - data/a\n")
    with pytest.raises(DataError, match=r"dvc.yaml: the list of stage train .* `deps: \[a, b\]`"):
        deps.main(["--write"])


def test_a_changed_parameter_of_the_report_reruns_no_scoring() -> None:
    stages = read_pipeline(ROOT).values()
    readers = {
        stage.name.partition("@")[0] for stage in stages if any(key.startswith("report") for key in stage.params)
    }
    assert readers == {"report", "truth"}
    sources = [path for folder in ("stages", "pathfinder") for path in (ROOT / folder).rglob("*.py")]
    pattern = re.compile(r"(params|profile|load_params\(\))\.report\b")
    users = {path.relative_to(ROOT).as_posix() for path in sources if pattern.search(path.read_text(encoding="utf-8"))}
    assert users == {"stages/report.py", "stages/truth.py"}
