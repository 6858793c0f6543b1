"""Findings of `check` about the files of a small project, one difference at a time (records: ``test_evidence``).

The project takes milliseconds, so `make mutate` can try each change of ``evidence/verbs/check.py`` on these tests.
``test_check`` and ``test_tampering`` run DVC.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from evidence.audit import claims, objects
from evidence.dvc.stores import object_file
from evidence.verbs import finding
from evidence.verbs.check import check
from ground import progress
from ground.hashing import digest_path, md5_of
from ground.io import DataError, write_json
from tests.evidence.small import (
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


def edit_lock(small: Path, stage: str, edit: Any, file: str = "dvc.lock") -> None:
    content = yaml.safe_load((small / file).read_text())
    edit(content["stages"][stage])
    (small / file).write_text(yaml.safe_dump(content))


def test_a_changed_source_is_one_finding(small: Path) -> None:
    (small / RAW / "corpus/one.txt").write_text("two\n")
    assert sum(text.startswith(f"error: {RAW}/corpus/one.txt: ") for text in found(small)) == 1


def test_a_sound_project_is_sound_in_whole_and_in_part(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small)
    whole = check()
    assert ([str(finding) for finding in whole.findings], whole.summary()) == ([NOTE], SOUND)
    part = check(Path(RAW))
    assert ([str(finding) for finding in part.findings], part.summary()) == ([NOTE], SOUND.replace("2 of 2", "1 of 1"))
    assert check("./data/").summary().startswith("SOUND: no stage was asked for, only files whose digests git has; ")
    assert found(small, strict=True) == []


def test_only_stages_of_the_main_pipeline_count(small: Path) -> None:
    shutil.rmtree(small / ".pathfinder/lineage/train")
    (small / ".pathfinder/lineage/ledger.jsonl").unlink()
    report = check(None, small)
    assert (report.stages, report.attested, len(report.signers)) == (2, 1, 1)


def test_a_stage_that_a_lock_lacks_is_named_and_its_files_are_not_looked_for(small: Path) -> None:
    content = yaml.safe_load((small / "dvc.lock").read_text())
    del content["stages"]["train"]
    (small / "dvc.lock").write_text(yaml.safe_dump(content))
    text = "error: dvc.lock: lacks stages that dvc.yaml defines: they never ran, or were removed from it (train)"
    assert found(small) == found(small, MODEL) == [text]
    assert found(small, RAW) == []
    assert (
        check(None, small)
        .summary()
        .startswith("ALTERED: 1 difference; 1 of 2 stages attested by this user's own key; ")
    )


def test_an_input_without_an_origin_is_named(small: Path) -> None:
    (small / "data.dvc").unlink()
    (text,) = found(small, RAW)
    assert text.startswith("error: data: has no origin: ")
    assert text.endswith(" (download)")


def test_a_remote_on_another_machine_is_said_not_to_be_read(small: Path) -> None:
    config = small / ".dvc/config"
    config.write_text(config.read_text() + "['remote \"far\"']\n    url = s3://bucket/prefix\n")
    report = check(None, small)
    assert report.not_read == ["remote far (s3://bucket/prefix)"]
    assert report.read == ["workspace", "cache", "remote storage"]


def test_every_claim_about_a_file_is_compared_with_its_bytes(small: Path) -> None:
    (small / MODEL / "weights.txt").write_text("0.7\n")
    (text,) = found(small)
    assert text.startswith(f"error: {MODEL}/weights.txt: md5 is ")
    assert text.endswith(" (train)")
    assert found(small, RAW) == []


def test_damaged_objects_of_the_cache_and_a_remote_are_found(small: Path) -> None:
    store(small, MODEL, "storage")
    assert found(small) == []
    md5 = digest_path(small / MODEL / "weights.txt").md5
    for folder in (".dvc/cache", "storage"):
        object_file(small / folder, md5).write_text("0.7\n")
        assert f"{folder}/files/md5/{md5[:2]}/{md5[2:]}: md5 is " in "".join(found(small))
        assert found(small, RAW) == []
        object_file(small / folder, md5).write_text("0.5\n")


def test_the_cache_may_be_the_one_that_all_projects_of_a_user_share(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("[cache]\n    dir = ~/shared\n")
    cache = (small / ".dvc/cache").rename(tmp_path / "shared")
    assert found(small) == []
    object_file(cache, digest_path(small / MODEL).md5).write_text("[]")
    assert "error: cache files/md5/" in "".join(found(small))


def test_objects_of_an_out_that_names_its_remote_must_be_there(small: Path) -> None:
    edit_lock(small, "train", lambda stage: stage["outs"][0].update(remote="storage"))
    (text,) = found(small)
    assert text.startswith("error: storage/files/md5/")
    assert text.endswith(f": is missing; it belongs to {MODEL}, which dvc.lock names; push it again")
    store(small, MODEL, "storage")
    assert found(small) == []


def test_a_cached_run_that_would_restore_something_else_is_found(small: Path) -> None:
    entry = yaml.safe_load((small / "dvc.lock").read_text())["stages"]["train"]
    entry["outs"][0]["md5"] = "1" * 32 + ".dir"
    file = small / ".dvc/cache/runs/00/11/22"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(entry))
    text = f"would restore {MODEL}, which the recorded run made differently; delete the entry"
    assert found(small) == [f"error: .dvc/cache/runs/00/11/22: {text} (train)"]


def test_two_stages_that_differ_about_a_path_are_named_unless_an_edit_of_the_path_explains_it(small: Path) -> None:
    """The out of a stage of the pretraining pipeline that its own file does not name any more."""

    def read_as_another(stage: dict[str, Any]) -> None:
        stage["deps"] = [{"path": path, "md5": "1" * 32 + ".dir"} for path in (MODEL, RAW)]

    edit_lock(small, "world", read_as_another, "infra/pretraining/dvc.lock")
    made = digest_path(small / MODEL).md5
    text = f"error: infra/pretraining/dvc.lock: world read {MODEL} as {'1' * 32}.dir, train made {made}"
    other = f"error: infra/pretraining/dvc.lock: world read {RAW} as {'1' * 32}.dir, download made "
    assert text in found(small)
    (small / MODEL / "weights.txt").write_text("0.7\n")
    assert text not in found(small), "the model was edited, which says enough"
    assert other in "".join(found(small))


def test_a_stage_of_the_pretraining_pipeline_that_read_other_bytes_is_named_although_they_are_not_here(
    small: Path,
) -> None:
    """The note that the outs are missing explains no difference between the entries of the lock."""
    lock, path = small / "infra/pretraining/dvc.lock", PRETRAINED.replace("shipped", "texts")
    content = yaml.safe_load(lock.read_text())
    content["stages"]["texts"] = {"cmd": "python -m texts", "outs": [{"path": path, "md5": "1" * 32}]}
    content["stages"]["world"]["deps"] = [{"path": path, "md5": "2" * 32}]
    lock.write_text(yaml.safe_dump(content))
    pipeline = yaml.safe_load(lock.with_suffix(".yaml").read_text())
    pipeline["stages"]["texts"] = {"wdir": "../..", "cmd": "python -m texts", "outs": [path]}
    pipeline["stages"]["world"]["deps"] = [path]
    lock.with_suffix(".yaml").write_text(yaml.safe_dump(pipeline))
    text = f"error: infra/pretraining/dvc.lock: world read {path} as {'2' * 32}, texts made {'1' * 32}"
    assert text in found(small)


@pytest.mark.parametrize("path", [".", "planted\0file"])
def test_a_path_that_no_stage_can_read_is_a_finding_and_no_traceback(small: Path, path: str) -> None:
    edit_lock(small, "train", lambda stage: stage["deps"].append({"path": path, "md5": "1" * 32}))
    assert f"error: dvc.lock: train: deps differ from dvc.yaml: {path} (train)" in found(small)


def test_a_parameter_that_the_pipeline_no_longer_names_is_found(small: Path) -> None:
    pipeline = yaml.safe_load((small / "dvc.yaml").read_text())
    del pipeline["stages"]["train"]["params"]
    (small / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    assert found(small) == ["error: dvc.lock: train: params differ from dvc.yaml: rate (train)"]


def test_a_stage_in_two_locks_is_refused_because_one_would_hide_the_other(small: Path) -> None:
    content = yaml.safe_load((small / "dvc.lock").read_text())
    other = small / "infra/pretraining/dvc.lock"
    both = yaml.safe_load(other.read_text())
    both["stages"]["train"] = content["stages"]["train"]
    other.write_text(yaml.safe_dump(both))
    edit_lock(small, "train", lambda stage: stage["outs"][0].update(md5="1" * 32 + ".dir"))
    with pytest.raises(DataError, match=r"^infra/pretraining/dvc\.lock: has train, as has dvc\.lock; restore"):
        check(None, small)


@pytest.mark.parametrize("cmd", ["", [], [""]])
def test_a_stage_of_a_lock_without_a_command_is_no_origin(small: Path, cmd: object) -> None:
    (small / "planted.txt").write_text("planted\n")
    content = yaml.safe_load((small / "dvc.lock").read_text())
    content["stages"]["planted"] = {"cmd": cmd, "outs": [claim(small, "planted.txt")]}
    (small / "dvc.lock").write_text(yaml.safe_dump(content))
    with pytest.raises(DataError, match=r"^dvc\.lock: planted: has no command; restore"):
        check(None, small)


def test_data_that_differs_from_what_the_pretraining_pipeline_made_is_named(small: Path) -> None:
    def made_another(stage: dict[str, Any]) -> None:
        stage["outs"][0]["md5"] = "1" * 32 + ".dir"

    shipped = digest_path(small / DATA / "corpus").md5
    edit_lock(small, "world", made_another, "infra/pretraining/dvc.lock")
    texts = found(small)
    assert f"error: {DATA}/corpus: is shipped as {shipped}, world made {'1' * 32}.dir" in texts, texts
    assert PRETRAINED not in "".join(texts)
    other = PRETRAINED.replace("corpus", "other")
    shutil.copytree(small / DATA, small / other)
    made = claim(small, other)
    edit_lock(small, "world", lambda stage: stage["outs"].append(made), "infra/pretraining/dvc.lock")
    assert f"error: {DATA}/other: is shipped as nothing, world made {made['md5']}" in found(small)


@pytest.mark.parametrize(("kind", "folders"), [("shipped", ("artifacts/raw", "data")), ("hub", ("artifacts/raw",))])
def test_sources_are_compared_with_their_manifest(small: Path, kind: str, folders: tuple[str, ...]) -> None:
    manifest = json.loads((small / RAW / "manifest.json").read_text())
    now = manifest["corpus"]["files"]["one.txt"]["sha256"]
    manifest["corpus"]["files"]["one.txt"]["sha256"] = "1" * 64
    manifest["corpus"]["files"]["two.txt"] = {"sha256": "2" * 64, "bytes": 1}
    manifest["corpus"]["kind"] = kind
    write_json(small / RAW / "manifest.json", manifest)
    expected = []
    for folder in folders:
        message = f"sha256 is {now}, the manifest of sources has {'1' * 64}"
        expected.append(f"error: {folder}/corpus/one.txt: {message}")
        expected.append(f"error: {folder}/corpus/two.txt: is missing, but the manifest of sources lists it")
    assert [text for text in found(small, RAW) if "the manifest of sources" in text] == expected


def test_a_source_that_is_missing_is_one_finding_with_the_stage_that_reads_it(small: Path) -> None:
    names = [f"{RAW}/corpus/one.txt", f"{RAW}/manifest.json"]
    pipeline = yaml.safe_load((small / "dvc.yaml").read_text())
    pipeline["stages"]["train"]["deps"] += names
    (small / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    edit_lock(small, "train", lambda stage: stage["deps"].extend(claim(small, name) for name in names))
    for name in names:
        (small / name).rename(small / "away")
        texts = [text for text in found(small) if text.startswith(f"error: {name}: is missing")]
        assert sum("dvc pull" in text for text in texts) == 1, texts
        assert sum("manifest of sources" in text for text in texts) == 0, texts
        (small / "away").rename(small / name)


def test_a_manifest_that_is_missing_or_broken_is_named(small: Path) -> None:
    file = small / RAW / "manifest.json"
    file.unlink()
    assert f"error: {RAW}/manifest.json: is missing; get it with `dvc pull` or `dvc repro`" in found(small)
    write_json(file, [])
    assert any(line.startswith(f"error: {RAW}/manifest.json: not a manifest of sources: ") for line in found(small))
    assert not any("manifest" in line for line in found(small, DATA)), "this part has no sources"


def test_objects_with_the_bytes_of_the_workspace_are_compared_and_not_hashed(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []

    def noted(path: Path) -> str:
        hashed.append(path)
        return md5_of(path)

    monkeypatch.setattr(objects, "md5_of", noted)
    assert found(small) == []
    assert hashed != []
    assert [path for path in hashed if path.suffix != ".dir"] == []
    weights = object_file(small / ".dvc/cache", digest_path(small / MODEL).files["weights.txt"].md5)
    weights.write_text("0.6\n")
    assert any("not the one in its name" in line for line in found(small))


def test_a_check_that_takes_long_shows_its_progress(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(None, small)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_QUIET_S", -1.0)
    check(None, small)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        f"{place}: 4/4 stages" for place in ("workspace", "cache", "remote storage")
    ]


@pytest.mark.parametrize("value", ["nothing", None])
def test_a_parameter_that_is_absent_differs_from_one_whose_text_says_so(small: Path, value: str | None) -> None:
    assert list(claims.differing("", ({"note": value}, {}))) == [("note", (value, claims.NONE))]
    edit_lock(small, "train", lambda stage: stage["params"]["params.yaml"].update({"train.note": value}))
    shown = json.dumps(value)
    told = f"error: dvc.lock: train.note is {shown} in dvc.lock; params.yaml and the record have nothing; restore"
    assert any(text.startswith(told) for text in found(small)), found(small)


def test_facts_keep_the_order_of_the_record() -> None:
    names = [f"package-{number}" for number in range(50)]
    environment = {"packages": dict.fromkeys(names, "1"), "wheels": dict.fromkeys(names, "a")}
    assert [list(each["wheels"]) for each in claims.comparable(environment, environment)] == [names, names]
    assert [name for name, _ in finding._facts(dict.fromkeys(names, "1"))] == names
