"""A small project whose pipeline made a model with weights, an export and cards, with signed records."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.miniature import dvc
from tests.support.scratch import once

_PUBLISHED = '''
"""Make everything that publishing reads."""
from pathlib import Path
import numpy as np
import polars as pl
from safetensors.numpy import save_file
from ground.io import write_json, write_text
from evidence.record.stage import stage

@stage
def main() -> None:
    model = Path("models/tiny")
    model.mkdir(parents=True)
    save_file({"weight": np.ones((2, 3), dtype="float32")}, model / "model.safetensors")
    write_json(model / "config.json", {"model_type": "qwen2"})
    write_json(model / "pathfinder.json", {"variant": "full"})
    write_text(model / "README.md", "---\\nlicense: other\\n---\\n\\n# Without results\\n")
    write_json(Path("metrics/processbench/tiny.json"), {"readings": {"soundness": {"mean_f1": 61.5}}})
    result = """  - task: {type: text-classification}
    dataset: {name: 'ProcessBench (toy: generated stories)', type: processbench-toy}
    metrics:
    - type: f1
      value: 61.5
      name: mean F1 in percent (labels, then reward)
      args: {file: metrics/processbench/tiny.json, pointer: /readings/soundness/mean_f1}
"""
    card = f"---\\nlicense: apache-2.0\\nmodel-index:\\n- name: tiny\\n  results:\\n{result}---\\n\\n# A tiny model\\n"
    write_text(Path("reports/cards/tiny.md"), card)
    for form in ("paper", "trl"):
        folder = Path("artifacts/export", form)
        folder.mkdir(parents=True)
        pl.DataFrame({"prompt": ["1 + 1"]}).write_parquet(folder / "train.parquet")
        files = "- config_name: default\\n  data_files:\\n  - split: train\\n    path: train.parquet\\n"
        header = f"license: other\\nlicense_name: as-the-sources\\nsize_categories: ['n<1K']\\nconfigs:\\n{files}"
        write_text(folder / "README.md", f"---\\n{header}---\\n\\n# Form {form}\\n")
    write_json(Path("artifacts/export/croissant.json"), {"name": "tiny"})

if __name__ == "__main__":
    main()
'''
_STAGE = """
  publishable:
    cmd: python -m stages.publishable
    deps: [metrics/train/full.json, stages/publishable.py, ground, infra/locks]
    outs: [models/tiny, artifacts/export, reports/cards, metrics/processbench]
"""


@pytest.fixture(scope="session")
def publishable(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after one run. Tests must not change it."""
    return once(tmp_path_factory, "publishable", lambda project: _extend(made, project))


def _extend(made: Path, project: Path) -> None:
    shutil.copytree(made, project)
    (project / "stages/publishable.py").write_text(_PUBLISHED, encoding="utf-8")
    with (project / "dvc.yaml").open("a", encoding="utf-8") as pipeline:
        pipeline.write(_STAGE)
    with (project / ".gitignore").open("a", encoding="utf-8") as ignore:
        ignore.write("/reports\n")
    dvc(project, "repro", "-q", "publishable")


@pytest.fixture
def project(publishable: Path, working_copy: Callable[[Path], Path]) -> Path:
    """A copy of the project as the working directory."""
    return working_copy(publishable)
