from __future__ import annotations

from pathlib import Path

import pytest

from evidence.record.identity import import_closure, module_of
from ground.io import DataError, write_text

FILES = {
    "stages/__init__.py": "",
    "stages/train.py": "import os\nfrom pathfinder.models import model\ndef main():\n    from .parts.lazy import x\n",
    "pathfinder/__init__.py": "",
    "pathfinder/models/__init__.py": "",
    "stages/parts/__init__.py": "",
    "pathfinder/models/model.py": "import torch\nimport pathfinder.models.deep as deep\n",
    "pathfinder/models/deep.py": "from pathfinder.models.model import again\n",
    "stages/parts/lazy.py": "",
    "pathfinder/models/unused.py": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write_text(tmp_path / name, text)
    return tmp_path


def test_closure_follows_lazy_relative_and_circular_imports(project: Path) -> None:
    assert import_closure("stages.train", project) == tuple(sorted(set(FILES) - {"pathfinder/models/unused.py"}))


def test_module_that_does_not_exist_is_an_error(project: Path) -> None:
    with pytest.raises(DataError, match=r"stages\.search: no such module"):
        import_closure("stages.search", project)


def test_file_that_cannot_be_parsed_is_named(project: Path) -> None:
    (project / "pathfinder/models/deep.py").write_text("def (:\n")
    with pytest.raises(DataError, match=r"deep\.py: line 1 cannot be parsed"):
        import_closure("stages.train", project)


@pytest.mark.parametrize(
    ("cmd", "module"),
    [("python -m stages.train full", "stages.train"), ("python -m stages.filter", "stages.filter"), ("bash x", None)],
)
def test_module_of_a_command(cmd: str, module: str | None) -> None:
    assert module_of(cmd) == module
