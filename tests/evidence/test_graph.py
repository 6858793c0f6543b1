"""``lineage up``: the tree from a result to its sources."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.record.reading import read_records
from ground.io import DataError
from tests.support.upwards import up


def test_up_traces_a_model_to_the_source_files(made: Path) -> None:
    tree = up("models/full", made)
    (record,) = read_records(made, "train@full")
    for text in (
        "train@full  $ python -m stages.train full",
        record.digest[:16],
        '"rate": 0.5',
        "pathfinder/mixing",
        "shipped data/corpus, licence Apache-2.0",
        hashlib.sha256(b"one\n").hexdigest(),
        "download  $ python -m stages.download",
        "data.dvc",
    ):
        assert text in tree
    assert "train@plain" not in tree
    order = ["models/full", "train@full", "artifacts/raw/corpus", "download", "data.dvc"]
    places = [tree.index(text) for text in order]
    assert places == sorted(places)


@pytest.mark.parametrize("path", ["models/full/weights.txt", "./models/full", "metrics/train/full.json"])
def test_up_accepts_files_inside_outs_and_metrics(made: Path, path: str) -> None:
    assert "train@full  $" in up(path, made)


def test_up_of_a_folder_of_outs_writes_a_shared_ancestor_once(made: Path) -> None:
    tree = up("models", made)
    assert tree.count("download  $") == 1
    assert tree.count("download  (above)") == 1
    assert "train@full  $" in tree
    assert "train@plain  $" in tree


def test_up_notes_a_missing_record(project: Path) -> None:
    for record in list(read_records(project, "train@full")):
        record.path.unlink()
    assert "none on this machine" in up("models/full", project)


def test_the_error_for_an_unknown_path_names_the_command_that_lists_the_known_ones(made: Path) -> None:
    with pytest.raises(
        DataError, match=r"not an output in dvc\.lock; did you mean .*\? `pathfinder lineage list outs`"
    ):
        up("models/other", made)


def test_the_error_without_a_run_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pathfinder run"):
        up("models/full", tmp_path)


def test_the_audit_works_without_dvc_and_prefect(made: Path) -> None:
    code = (
        "import sys; sys.modules['dvc'] = sys.modules['prefect'] = None\n"
        "from evidence.__main__ import app\napp(['check', 'models/full'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 stages attested by this user's own key" in done.stdout
