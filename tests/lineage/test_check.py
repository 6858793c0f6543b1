"""Planted harms: every manipulation of a finished run is found and named."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from pathfinder.lineage.__main__ import app
from pathfinder.lineage.check import check
from pathfinder.lineage.history import read_lock, read_records
from pathfinder.provenance.hashing import digest_path
from tests.support.miniature import dvc


def errors(project: Path, path: str | None = None) -> list[str]:
    return [str(finding) for finding in check(path, project) if finding.level == "error"]


def test_a_fresh_run_has_no_findings(made: Path) -> None:
    assert check(None, made) == []


def edit_out(project: Path) -> str:
    (project / "models/full/weights.txt").write_text("better weights")
    return "models/full/weights.txt: md5 is"


def add_a_file_to_an_out(project: Path) -> str:
    (project / "models/full/extra.txt").write_text("stowaway")
    return "models/full/extra.txt: md5 is"


def remove_out(project: Path) -> str:
    (project / "metrics/train/full.json").unlink()
    return "metrics/train/full.json: is missing, but train@full names it"


def edit_metric(project: Path) -> str:
    (project / "metrics/train/full.json").write_text('{"loss": 0.1}\n')
    return "metrics/train/full.json: md5 is"


def edit_source(project: Path) -> str:
    (project / "data/corpus/one.txt").write_text("uno\n")
    return "data/corpus/one.txt: sha256 is"


def edit_downloaded_file(project: Path) -> str:
    (project / "artifacts/raw/corpus/b/two.txt").write_text("due\n")
    return "artifacts/raw/corpus/b/two.txt: sha256 is"


def edit_manifest(project: Path) -> str:
    path = project / "artifacts/raw/manifest.json"
    path.write_text(path.read_text().replace("Apache-2.0", "MIT"))
    return "artifacts/raw/manifest.json: md5 is"


def edit_code(project: Path) -> str:
    path = project / "pathfinder/mixing/mix.py"
    path.write_text(path.read_text() + "# changed\n")
    return "pathfinder/mixing/mix.py: md5 is"


def edit_params(project: Path) -> str:
    (project / "params.yaml").write_text("train: {rate: 0.25, note: 'Ünïcode <+>'}\n")
    return "params.yaml: train differs from the value that train@full ran with"


def edit_record(project: Path) -> str:
    (record,) = read_records(project, "train@full")
    record.path.write_text(record.path.read_text().replace('"rate": 0.5', '"rate": 0.7'))
    return "it was edited"


def break_record(project: Path) -> str:
    (record,) = read_records(project, "train@full")
    record.path.write_text("{")
    return "it was edited"


def cached(project: Path, path: str) -> Path:
    md5 = next(stage.outs[path] for stage in read_lock(project).values() if path in stage.outs)
    return project / ".dvc/cache/files/md5" / md5[:2] / md5[2:]


def edit_cached_metric(project: Path) -> str:
    file = cached(project, "metrics/train/full.json")
    file.chmod(0o644)
    file.write_text('{"loss": 0.1}\n')
    return "it is of metrics/train/full.json"


def edit_cached_file_of_a_folder(project: Path) -> str:
    (entry,) = json.loads(cached(project, "models/full").read_text())
    file = project / ".dvc/cache/files/md5" / entry["md5"][:2] / entry["md5"][2:]
    file.chmod(0o644)
    file.write_text("better weights")
    return "it is of models/full/weights.txt"


def edit_cached_listing(project: Path) -> str:
    file = cached(project, "models/full")
    file.chmod(0o644)
    file.write_text("[]")
    return "it is of models/full"


def edit_lock(project: Path) -> str:
    text = (project / "dvc.lock").read_text()
    md5 = digest_path(project / "metrics/train/full.json").md5
    assert md5 in text
    (project / "dvc.lock").write_text(text.replace(md5, "0" * 32))
    return "recorded runs with the same inputs made other outputs"


def edit_lock_and_out_together(project: Path) -> str:
    """A metric and the lock are forged to agree; the record of the real run still differs."""
    metric = project / "metrics/train/full.json"
    before = digest_path(metric).md5
    metric.write_text('{"loss": 0.1}\n')
    text = (project / "dvc.lock").read_text()
    stage = re.search(r"train@full:.*?(?=train@plain:)", text, re.S)
    assert stage
    (project / "dvc.lock").write_text(text.replace(stage[0], stage[0].replace(before, digest_path(metric).md5)))
    return "recorded runs with the same inputs made other outputs"


def edit_input_in_lock(project: Path) -> str:
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    corpus = next(dep for dep in lock["stages"]["download"]["deps"] if dep["path"] == "data")
    corpus["md5"] = "1" * 32 + ".dir"
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    return "download read data as 1111"


def edit_command_in_lock(project: Path) -> str:
    path = project / "dvc.lock"
    path.write_text(path.read_text().replace("python -m stages.train full", "python -m stages.train fuller"))
    return "dvc.yaml has"


def edit_lock_file(project: Path) -> str:
    path = project / "infra/locks/cpu.lock"
    path.write_text(path.read_text().replace("0123", "4567"))
    return "infra/locks/cpu.lock: md5 is"


def add_code(project: Path) -> str:
    (project / "pathfinder/core/sitecustom.py").write_text("patched = True\n")
    return "pathfinder/core/sitecustom.py: md5 is"


HARM: list[Callable[[Path], str]] = [
    edit_out,
    add_a_file_to_an_out,
    remove_out,
    edit_metric,
    edit_source,
    edit_downloaded_file,
    edit_manifest,
    edit_code,
    edit_params,
    edit_record,
    break_record,
    edit_cached_metric,
    edit_cached_file_of_a_folder,
    edit_cached_listing,
    edit_lock,
    edit_lock_and_out_together,
    edit_input_in_lock,
    edit_command_in_lock,
    edit_lock_file,
    add_code,
]


@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__)
def test_harm_is_found_and_named(project: Path, harm: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = harm(project)
    found = errors(project)
    assert any(expected in text for text in found), found
    assert any(expected in text for text in errors(project, "models/full")) or "metrics" in expected
    monkeypatch.chdir(project)
    result = CliRunner().invoke(app, ["check"])
    assert result.exit_code == 1
    assert expected in result.output


def remove_listings(project: Path) -> None:
    """Keep the record intact, but without the files of its folders."""
    for record in list(read_records(project, "train@full")):
        content = json.loads(record.path.read_text())
        for kind in ("inputs", "rooms", "outputs"):
            for entry in content[kind].values():
                entry.pop("files", None)
        text = json.dumps(content)
        record.path.unlink()
        record.path.with_name(f"{hashlib.sha256(text.encode()).hexdigest()}.json").write_text(text)


def test_without_a_listing_in_the_records_the_room_is_named(project: Path) -> None:
    edit_code(project)
    assert any("pathfinder/mixing/mix.py: md5 is" in text for text in errors(project, "models/full"))
    remove_listings(project)
    found = errors(project, "models/full")
    assert len(found) == 1
    assert found[0].startswith("error: pathfinder/mixing: md5 is")


def test_a_missing_file_and_a_new_file_of_a_room_are_named(project: Path) -> None:
    (project / "pathfinder/mixing/mix.py").rename(project / "pathfinder/mixing/blend.py")
    found = errors(project, "models/full")
    assert any(t.startswith("error: pathfinder/mixing/mix.py: is missing, the record of train@full has") for t in found)
    assert any("pathfinder/mixing/blend.py: md5 is" in t and "does not list it" in t for t in found)
    assert len(found) == 2


def test_only_the_ancestors_of_the_path_are_checked(project: Path) -> None:
    (project / "models/plain/weights.txt").write_text("worse weights")
    assert errors(project, "models/full") == []
    assert errors(project, "models/plain")


def test_a_damaged_remote_object_is_found_although_dvc_does_not_see_it(project: Path) -> None:
    dvc(project, "remote", "add", "-d", "-q", "storage", "storage")
    dvc(project, "push", "-q")
    assert errors(project) == []
    md5 = digest_path(project / "metrics/train/full.json").md5
    file = project / "storage/files/md5" / md5[:2] / md5[2:]
    file.chmod(0o644)
    file.write_text('{"loss": 0.1}\n')
    file.chmod(0o444)
    assert "in sync" in dvc(project, "status", "-c")
    assert any("storage/files" in text for text in errors(project))


def test_a_missing_record_is_a_note_and_not_an_error(project: Path) -> None:
    for record in list(read_records(project, "train@full")):
        record.path.unlink()
    assert [(finding.level, finding.where) for finding in check("models/full", project)] == [("note", "train@full")]


def test_a_rerun_after_a_changed_parameter_is_clean(project: Path) -> None:
    edit_params(project)
    dvc(project, "repro", "-q")
    assert check(None, project) == []
    assert len(list(read_records(project, "train@full"))) == 2
