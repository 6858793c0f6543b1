"""What `check` says about the files of a small project, one difference at a time; ``test_evidence``: about its records.

The project takes milliseconds, so `make mutate` can try each change of ``pathfinder/lineage/check.py`` on these tests.
``test_check`` and ``test_tampering`` run DVC.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pathfinder.core import progress
from pathfinder.core.io import write_json
from pathfinder.lineage.check import check
from pathfinder.lineage.stores import object_file
from pathfinder.provenance.hashing import digest_path
from tests.lineage.small import (
    DATA,
    MODEL,
    NOTE,
    PRETRAINED,
    RAW,
    SOUND,
    claim,
    found,
    store,
)


def edit_lock(root: Path, stage: str, edit: Any, file: str = "dvc.lock") -> None:
    content = yaml.safe_load((root / file).read_text())
    edit(content["stages"][stage])
    (root / file).write_text(yaml.safe_dump(content))


def test_a_changed_source_is_one_finding(root: Path) -> None:
    (root / RAW / "corpus/one.txt").write_text("two\n")
    assert sum(text.startswith(f"error: {RAW}/corpus/one.txt: ") for text in found(root)) == 1


def test_a_sound_project_is_sound_in_whole_and_in_part(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    whole = check()
    assert ([str(finding) for finding in whole.findings], whole.summary()) == ([NOTE], SOUND)
    part = check(Path(RAW))
    assert ([str(finding) for finding in part.findings], part.summary()) == ([NOTE], SOUND.replace("2 of 2", "1 of 1"))
    assert check("./data/").summary().startswith("0 of 0 stages attested; ")
    assert found(root, strict=True) == []


def test_only_stages_of_the_main_pipeline_count(root: Path) -> None:
    shutil.rmtree(root / ".pathfinder/lineage/train")
    (root / ".pathfinder/lineage/ledger.jsonl").unlink()
    report = check(None, root)
    assert (report.stages, report.attested, len(report.signers)) == (2, 1, 1)


def test_a_stage_that_a_lock_lacks_is_named_and_its_files_are_not_looked_for(root: Path) -> None:
    content = yaml.safe_load((root / "dvc.lock").read_text())
    del content["stages"]["train"]
    (root / "dvc.lock").write_text(yaml.safe_dump(content))
    text = "error: dvc.lock: lacks stages that dvc.yaml defines: they never ran, or were removed from it (train)"
    assert found(root) == found(root, MODEL) == [text]
    assert found(root, RAW) == []
    assert check(None, root).summary().startswith("1 difference; 1 of 2 stages attested by 1 key; ")


def test_an_input_without_an_origin_is_named(root: Path) -> None:
    (root / "data.dvc").unlink()
    (text,) = found(root, RAW)
    assert text.startswith("error: data: has no origin: ")
    assert text.endswith(" (download)")


def test_a_remote_on_another_machine_is_said_not_to_be_read(root: Path) -> None:
    config = root / ".dvc/config"
    config.write_text(config.read_text() + "['remote \"far\"']\n    url = s3://bucket/prefix\n")
    report = check(None, root)
    assert report.not_read == ["remote far (s3://bucket/prefix)"]
    assert report.read == ["workspace", "cache", "remote storage"]


def test_every_claim_about_a_file_is_compared_with_its_bytes(root: Path) -> None:
    (root / MODEL / "weights.txt").write_text("0.7\n")
    (text,) = found(root)
    assert text.startswith(f"error: {MODEL}/weights.txt: md5 is ")
    assert text.endswith(" (train)")
    assert found(root, RAW) == []


def test_damaged_objects_of_the_cache_and_a_remote_are_found(root: Path) -> None:
    store(root, MODEL, "storage")
    assert found(root) == []
    md5 = digest_path(root / MODEL / "weights.txt").md5
    for folder in (".dvc/cache", "storage"):
        object_file(root / folder, md5).write_text("0.7\n")
        assert f"{folder}/files/md5/{md5[:2]}/{md5[2:]}: md5 is " in "".join(found(root))
        assert found(root, RAW) == []
        object_file(root / folder, md5).write_text("0.5\n")


def test_the_cache_may_be_the_one_that_all_projects_of_a_user_share(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("[cache]\n    dir = ~/shared\n")
    cache = (root / ".dvc/cache").rename(tmp_path / "shared")
    assert found(root) == []
    object_file(cache, digest_path(root / MODEL).md5).write_text("[]")
    assert "error: cache files/md5/" in "".join(found(root))


def test_objects_of_an_out_that_names_its_remote_must_be_there(root: Path) -> None:
    edit_lock(root, "train", lambda stage: stage["outs"][0].update(remote="storage"))
    (text,) = found(root)
    assert text.startswith("error: storage/files/md5/")
    assert text.endswith(f": is missing; it belongs to {MODEL}, which dvc.lock names; push it again")
    store(root, MODEL, "storage")
    assert found(root) == []


def test_a_cached_run_that_would_restore_something_else_is_found(root: Path) -> None:
    entry = yaml.safe_load((root / "dvc.lock").read_text())["stages"]["train"]
    entry["outs"][0]["md5"] = "1" * 32 + ".dir"
    file = root / ".dvc/cache/runs/00/11/22"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(entry))
    text = (
        f"error: .dvc/cache/runs/00/11/22: would restore another {MODEL} than the recorded run made; delete the entry"
    )
    assert found(root) == [f"{text} (train)"]


def test_two_stages_that_differ_about_a_path_are_named_unless_an_edit_of_the_path_explains_it(root: Path) -> None:
    """The out of a stage of the pretraining pipeline that its own file does not name any more."""

    def read_as_another(stage: dict[str, Any]) -> None:
        stage["deps"] = [{"path": path, "md5": "1" * 32 + ".dir"} for path in (MODEL, RAW)]

    edit_lock(root, "world", read_as_another, "infra/pretraining/dvc.lock")
    made = digest_path(root / MODEL).md5
    text = f"error: infra/pretraining/dvc.lock: world read {MODEL} as {'1' * 32}.dir, train made {made}"
    other = f"error: infra/pretraining/dvc.lock: world read {RAW} as {'1' * 32}.dir, download made "
    assert text in found(root)
    (root / MODEL / "weights.txt").write_text("0.7\n")
    assert text not in found(root), "the model was edited, which says enough"
    assert other in "".join(found(root))


def test_data_that_differs_from_what_the_pretraining_pipeline_made_is_named(root: Path) -> None:
    def made_another(stage: dict[str, Any]) -> None:
        stage["outs"][0]["md5"] = "1" * 32 + ".dir"

    shipped = digest_path(root / DATA / "corpus").md5
    edit_lock(root, "world", made_another, "infra/pretraining/dvc.lock")
    texts = found(root)
    assert f"error: {DATA}/corpus: is shipped as {shipped}, world made {'1' * 32}.dir" in texts, texts
    assert PRETRAINED not in "".join(texts)
    other = PRETRAINED.replace("corpus", "other")
    shutil.copytree(root / DATA, root / other)
    made = claim(root, other)
    edit_lock(root, "world", lambda stage: stage["outs"].append(made), "infra/pretraining/dvc.lock")
    assert f"error: {DATA}/other: is shipped as nothing, world made {made['md5']}" in found(root)


@pytest.mark.parametrize(("kind", "folders"), [("shipped", ("artifacts/raw", "data")), ("hub", ("artifacts/raw",))])
def test_sources_are_compared_with_their_manifest(root: Path, kind: str, folders: tuple[str, ...]) -> None:
    manifest = json.loads((root / RAW / "manifest.json").read_text())
    now = manifest["corpus"]["files"]["one.txt"]["sha256"]
    manifest["corpus"]["files"]["one.txt"]["sha256"] = "1" * 64
    manifest["corpus"]["files"]["two.txt"] = {"sha256": "2" * 64, "bytes": 1}
    manifest["corpus"]["kind"] = kind
    write_json(root / RAW / "manifest.json", manifest)
    expected = []
    for folder in folders:
        message = f"sha256 is {now}, the manifest of sources has {'1' * 64}"
        expected.append(f"error: {folder}/corpus/one.txt: {message}")
        expected.append(f"error: {folder}/corpus/two.txt: is missing, but the manifest of sources lists it")
    assert [text for text in found(root, RAW) if "the manifest of sources" in text] == expected


def test_a_source_that_is_missing_is_one_finding_with_the_stage_that_reads_it(root: Path) -> None:
    names = [f"{RAW}/corpus/one.txt", f"{RAW}/manifest.json"]
    pipeline = yaml.safe_load((root / "dvc.yaml").read_text())
    pipeline["stages"]["train"]["deps"] += names
    (root / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    edit_lock(root, "train", lambda stage: stage["deps"].extend(claim(root, name) for name in names))
    for name in names:
        (root / name).rename(root / "away")
        texts = [text for text in found(root) if text.startswith(f"error: {name}: is missing")]
        assert sum("dvc pull" in text for text in texts) == 1, texts
        assert sum("manifest of sources" in text for text in texts) == 0, texts
        (root / "away").rename(root / name)


def test_a_manifest_that_is_missing_or_broken_is_named(root: Path) -> None:
    file = root / RAW / "manifest.json"
    file.unlink()
    assert f"error: {RAW}/manifest.json: is missing; get it with `dvc pull` or `dvc repro`" in found(root)
    write_json(file, [])
    assert any(line.startswith(f"error: {RAW}/manifest.json: not a manifest of sources: ") for line in found(root))
    assert not any("manifest" in line for line in found(root, DATA)), "this part has no sources"


def test_a_check_that_takes_long_shows_its_progress(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(None, root)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_QUIET_S", -1.0)
    check(None, root)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        f"{place}: 4/4 stages" for place in ("workspace", "cache", "remote storage")
    ]
