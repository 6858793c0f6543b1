"""``pathfinder publish``: what it builds, what it refuses, and what arrives at a stand-in of the Hub."""

from __future__ import annotations

import base64
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from huggingface_hub import DatasetCard, ModelCard
from typer.testing import CliRunner

from evidence.formats.lineage import read_lineage
from extras.cli import publish as verb
from extras.publish.checks import check_repository
from extras.publish.folder import Repository, build_model
from ground.io import DataError, TransientError, read_json, sha256_file, write_json
from tests.support.hub_uploads import upload_server
from tests.support.verbs import checked

MODEL, DATA = Path(".pathfinder/publish/tiny/model"), Path(".pathfinder/publish/tiny/data")


def publish(*arguments: str) -> Any:
    """The result as JSON; raises what the verb raises."""
    app = typer.Typer()
    app.command()(verb)
    return checked("publish", CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout)


def test_a_dry_run_builds_everything_and_says_what_would_be_uploaded(project: Path) -> None:
    found = publish("models/tiny", "--dry-run")
    model, data = found["repositories"]
    names = [file["file"] for file in model["files"]]
    expected = ["README.md", "config.json", "model.pem", "model.safetensors", "model.sig", "pathfinder.json"]
    assert names == expected
    for about in (model, data):
        for file in about["files"]:
            path = Path(about["folder"]) / file["file"]
            assert (file["bytes"], file["sha256"]) == (path.stat().st_size, sha256_file(path))
        assert about["commit"] is None
    assert "model: 1 figures equal the metric files of tiny" in found["checks"]
    assert (MODEL / "model.safetensors").read_bytes() == Path("models/tiny/model.safetensors").read_bytes()
    assert "Without results" not in (MODEL / "README.md").read_text()
    assert "Without results" in Path("models/tiny/README.md").read_text()


def test_the_cards_are_valid_for_the_hub_and_name_the_lineage(project: Path) -> None:
    publish("models/tiny/", "--dry-run")
    card: Any = ModelCard((MODEL / "README.md").read_text())
    assert [(each.dataset_name, each.metric_value) for each in card.data.eval_results] == [
        ("ProcessBench (toy: generated stories)", 61.5)
    ]
    assert read_lineage(project, "models/tiny").digest in card.text
    assert sha256_file(Path("models/tiny/model.safetensors")) in card.text
    data: Any = DatasetCard((DATA / "README.md").read_text())
    assert [(each["config_name"], each["data_files"][0]["path"]) for each in data.data.configs] == [
        ("paper", "paper/train.parquet"),
        ("trl", "trl/train.parquet"),
    ]
    assert "# Form paper" in data.text
    assert read_lineage(project, "artifacts/export").digest in data.text


def test_others_can_verify_the_signature_in_the_folder(project: Path) -> None:
    publish("models/tiny", "--dry-run")
    verifying: Any = importlib.import_module("model_signing.verifying")
    config = verifying.Config().use_elliptic_key_verifier(public_key=MODEL / "model.pem")
    config.set_ignore_unsigned_files(True).verify(MODEL, MODEL / "model.sig")
    resources = signed_statement(MODEL / "model.sig")["predicate"]["resources"]
    assert [each["name"] for each in resources] == ["config.json", "model.safetensors", "pathfinder.json"]
    write_json(MODEL / "pathfinder.json", {"variant": "other"})
    with pytest.raises(ValueError, match="Signature mismatch"):
        config.verify(MODEL, MODEL / "model.sig")


def signed_statement(signature: Path) -> dict[str, Any]:
    """The statement in a signature."""
    content: dict[str, Any] = json.loads(base64.b64decode(read_json(signature)["dsseEnvelope"]["payload"]))
    return content


def test_a_model_whose_history_does_not_pass_the_audit_is_refused(project: Path) -> None:
    write_json(Path("metrics/processbench/tiny.json"), {"readings": {"soundness": {"mean_f1": 99.0}}})
    with pytest.raises(DataError, match="the model is not published"):
        publish("models/tiny", "--dry-run")
    assert not MODEL.exists()


def _built(project: Path) -> Repository:
    return build_model(project, "models/tiny")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pytorch_model.bin", b"\x80\x02.", "only .safetensors, "),
        ("tokenizer.model", b"\x80\x04\x95", "begins like a pickle"),
        ("modeling.py", b"import os", "only .safetensors, "),
        ("notes.txt", b"one\nmy token is hf_" + b"a" * 34, r"notes.txt:2: has what looks like a token"),
        ("notes.txt", b"-----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
        ("notes.txt", b"sesame opens it", "holds the value of the variable SHOP_PASSWORD"),
        ("more.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}", "not a complete safetensors file"),
        ("README.md", b"# no header\n", "names no licence"),
        (
            "README.md",
            b"---\nlicense: mit\nmodel-index:\n- results: [{}]\n---\n",
            "the Hub's client refuses the header",
        ),
    ],
)
def test_what_must_not_be_published_is_refused(
    name: str, content: bytes, message: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "sesame opens")
    built = _built(project)
    (built.folder / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        check_repository(built, project)


def test_a_link_is_refused(project: Path) -> None:
    built = _built(project)
    (built.folder / "more.json").symlink_to(project / "params.yaml")
    with pytest.raises(DataError, match=r"only \.safetensors, "):
        check_repository(built, project)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "value: 61.5",
            "value: 91.5",
            "is 91.5, but metrics/processbench/tiny.json#/readings/soundness/mean_f1 is 61.5",
        ),
        ("processbench/tiny.json", "processbench/full.json", "which is not a metric file of tiny"),
        ("/mean_f1", "/best_f1", "has no 'best_f1'"),
    ],
)
def test_a_figure_that_is_not_that_of_the_run_is_refused(old: str, new: str, message: str, project: Path) -> None:
    built = _built(project)
    card = built.folder / "README.md"
    card.write_text(card.read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        check_repository(built, project)


def test_a_signature_of_other_files_is_refused(project: Path) -> None:
    config = read_json(Path("models/tiny/config.json"))
    write_json(Path("models/tiny/config.json"), config | {"more": 1})
    with pytest.raises(DataError, match="signs different files of models/tiny"):
        _built(project)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models/tiny"], "name the repository with --to"),
        (["models/tiny", "--to", "no-name"], "'no-name' is not the name of a repository"),
        (["metrics/train", "--dry-run"], "not a trained model of this project"),
        (["models/none", "--dry-run"], "not a trained model of this project"),
        (["models/full", "--dry-run"], r"has no card \(reports/cards/full.md\); run the stage report"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str, project: Path) -> None:
    with pytest.raises(DataError, match=message):
        publish(*arguments)


def test_an_upload_arrives_whole_in_private_repositories(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with upload_server() as hub:
        hub.lead_here(monkeypatch)
        found = publish("models/tiny", "--to", "me/prm", "--data", "me/prm-data")
        assert [about["commit"].startswith(f"{hub.url}/me/prm") for about in found["repositories"]] == [True, True]
        for name, folder in (("me/prm", MODEL), ("me/prm-data", DATA)):
            files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
            assert hub.repositories[name] == {file: path.read_bytes() for file, path in files.items()}
        assert hub.private == {"me/prm", "me/prm-data"}
        del hub.repositories["me/prm-data"]
        publish("models/tiny", "--to", "me/prm")  # again, and without the data
        assert hub.repositories.keys() == {"me/prm"}


def test_what_the_hub_refuses_is_one_line_with_a_remedy(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with upload_server() as hub:
        hub.lead_here(monkeypatch)
        with pytest.raises(DataError, match=r"answered 403 for others/prm: .*check the name"):
            publish("models/tiny", "--to", "others/prm")
        hub.refuse_commits = 503
        with pytest.raises(TransientError, match="answered 503 for me/prm: not now; try again later"):
            publish("models/tiny", "--to", "me/prm")
        monkeypatch.delenv("HF_TOKEN")
        with pytest.raises(DataError, match="HF_TOKEN is not set"):
            publish("models/tiny", "--to", "me/prm")
