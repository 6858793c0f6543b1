"""Every other format against its own public validator, and what must hold of all of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest
from huggingface_hub import DatasetCard, ModelCard
from openlineage.client import event_v2, facet_v2
from openlineage.client.serde import Serde
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.formats import Format, descriptions, exported
from evidence.formats.bom import bom
from evidence.formats.crate import crate
from evidence.formats.descriptions import card, croissant
from evidence.formats.lineage import Lineage, read_lineage
from evidence.formats.openlineage import events
from ground.io import DataError
from tests.evidence.formats.conftest import HOSTILE
from tests.support.miniature import ROOT, run_in

TARGETS: dict[Format, str | None] = dict.fromkeys(get_args(Format)) | {"card": "models/full"}
FACETS: dict[str, Any] = {
    "datasetType": facet_v2.dataset_type_dataset.DatasetTypeDatasetFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    "environmentVariables": facet_v2.environment_variables_run.EnvironmentVariablesRunFacet,
    "executionParameters": facet_v2.execution_parameters_run.ExecutionParametersRunFacet,
    "inputStatistics": facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "parent": facet_v2.parent_run.ParentRunFacet,
    "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
    "sourceCode": facet_v2.source_code_job.SourceCodeJobFacet,
}


@pytest.mark.parametrize("form", TARGETS)
def test_the_same_records_give_the_same_bytes_in_any_folder(form: Format, study: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(study, tmp_path / "elsewhere"))
    texts = {exported(read_lineage(root, TARGETS[form]), form) for root in (study, study, moved)}
    assert len(texts) == 1
    assert not any(str(root) in text for root in (study, moved) for text in texts)


def test_another_record_gives_other_bytes(study: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(study, tmp_path / "changed"))
    assert run_in(changed, "-m", "stages.train", "full").returncode == 0  # the same outs, made at another time
    for form, target in TARGETS.items():
        if form != "croissant":  # train@full has no part in it
            assert exported(read_lineage(study, target), form) != exported(read_lineage(changed, target), form)


def test_the_documentation_fills_what_the_records_know_and_marks_the_rest(study: Path) -> None:
    text = exported(read_lineage(study, "models/full"), "documentation")
    sections = dict(part.partition("\n\n")[::2] for part in text.split("\n## ")[1:])
    points = [heading.partition(" ")[0] for heading in sections]
    assert points == ["1", *(f"2({letter})" for letter in "abcdefgh"), *map(str, range(3, 10))]
    steps = sections["2(a) Methods and steps of the development"]
    assert descriptions.MISSING not in steps
    run = next(run for run in read_lineage(study).runs if run.name == "train@full")
    assert f"| train@full | python -m stages.train full | {run.end} |" in steps
    assert run.record.digest[:16] in steps
    assert "metrics/train/full.json" in sections["2(g) Validation and testing"]
    assert f"by key {run.key_ids[0][:16]}. " in sections["2(h) Cybersecurity"]
    unknown = [title for title, part in sections.items() if part.startswith(descriptions.MISSING)]
    assert {"2(e) Human oversight", "5 Risk management", "8 Declaration of conformity"} <= set(unknown)
    assert f"fills {len(sections) - len(unknown)} of 16 points" in text
    for target in (None, f"artifacts/export/{HOSTILE}.txt"):
        assert "<img" not in exported(read_lineage(study, target), "documentation")


def rebuilt(event: dict[str, Any]) -> event_v2.RunEvent:
    """The event as objects of the public library, which check it."""

    def facets(values: dict[str, Any]) -> dict[str, Any]:
        known = {name: value for name, value in values.items() if name in FACETS}
        kept = {n: {k: v for k, v in value.items() if k[0] != "_"} for n, value in known.items()}
        return {n: FACETS[n](producer=known[n]["_producer"], **value) for n, value in kept.items()}

    def data(values: dict[str, Any], kind: Any, own: str) -> Any:
        extra = {own: facets(values[own])}
        return kind(namespace=values["namespace"], name=values["name"], facets=facets(values["facets"]), **extra)

    job = event["job"]
    return event_v2.RunEvent(
        eventType=event_v2.RunState[event["eventType"]],
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=event_v2.Run(runId=event["run"]["runId"], facets=facets(event["run"]["facets"])),
        job=event_v2.Job(namespace=job["namespace"], name=job["name"], facets=facets(job["facets"])),
        inputs=[data(each, event_v2.InputDataset, "inputFacets") for each in event["inputs"]],
        outputs=[data(each, event_v2.OutputDataset, "outputFacets") for each in event["outputs"]],
    )


def test_the_public_library_writes_the_same_openlineage_events(lineage: Lineage) -> None:
    found = list(events(lineage))
    assert [event["eventTime"] for event in found] == sorted(event["eventTime"] for event in found)
    assert len(found) == 2 * len(lineage.runs)
    kinds = {run.name: [each["eventType"] for each in found if each["job"]["name"] == run.name] for run in lineage.runs}
    assert {*map(tuple, kinds.values())} == {("START", "COMPLETE")}, "although a run may start and end in one second"
    for event in found:
        own = event["run"]["facets"].pop("pathfinder_record")
        run = next(run for run in lineage.runs if run.name == event["job"]["name"])
        assert own["sha256"] == run.record.digest
        assert json.loads(Serde.to_json(rebuilt(event))) == event


def test_a_scheduler_without_uuids_gets_one_in_an_event(lineage: Lineage) -> None:
    run = replace(lineage.runs[0], actor={"flow_run": "nightly/7"})
    first, second = events(replace(lineage, runs=[run]))
    assert first["run"]["facets"]["parent"] == second["run"]["facets"]["parent"]
    assert UUID(first["run"]["facets"]["parent"]["run"]["runId"]).version == 5
    first["run"]["facets"].pop("pathfinder_record")
    assert json.loads(Serde.to_json(rebuilt(first))) == first


def test_a_namespace_without_a_slash_at_its_end_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "evidence.toml").write_text('namespace = "https://example.org"\n')
    script = "from evidence.formats.artefacts import uri; print(uri('stage', 'train'))"
    done = run_in(tmp_path, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {script}")
    assert done.stdout == "https://example.org/stage/train\n", done.stderr


def test_an_empty_parameter_has_a_value_in_the_crate(lineage: Lineage) -> None:
    graph = crate(replace(lineage, runs=[replace(lineage.runs[0], params={"launch": ""})]))["@graph"]
    assert [each["value"] for each in graph if each.get("name") == "launch" and "Value" in each["@type"]] == ["(empty)"]


def test_the_strict_validator_accepts_the_bill_of_materials(study: Path, lineage: Lineage) -> None:
    content = bom(lineage)
    from cyclonedx.schema import SchemaVersion  # its grammars take seconds, in every process that collects tests
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(exported(lineage, "cyclonedx")) is None
    parts = {each["bom-ref"]: each for each in content["components"]}
    inner = {file["bom-ref"]: file for each in parts.values() for file in each.get("components", ())}
    assert all(set(each["dependsOn"]) <= parts.keys() | {"project"} for each in content["dependencies"])
    model = parts["artefact:models/full"]
    assert model["type"] == "machine-learning-model"
    assert [each["ref"] for each in model["modelCard"]["modelParameters"]["datasets"]] == [
        "artefact:artifacts/raw/corpus"
    ]
    assert parts["artefact:artifacts/raw/corpus"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    weights = hashlib.sha256((study / "models/full/weights.txt").read_bytes()).hexdigest()
    assert {"alg": "SHA-256", "content": weights} in inner["artefact:models/full#weights.txt"]["hashes"]
    package = next(each for each in parts.values() if each["name"] == "pydantic")
    assert package["purl"] == f"pkg:pypi/pydantic@{package['version']}"
    assert package["licenses"] == [{"expression": "MIT"}]


def test_hashes_of_packages_are_those_of_the_lock(study: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(study, tmp_path / "copy"))
    lock = copy / "infra/locks/cpu.lock"
    digests = ["a" * 64, "b" * 64]
    pin = lock.read_text(encoding="utf-8").partition(" ")[0]
    lock.write_text(f"{pin} \\\n    --hash=sha256:{digests[0]} \\\n    --hash=sha256:{digests[1]}\n", encoding="utf-8")
    package = next(each for each in bom(read_lineage(copy))["components"] if each["name"] == "pydantic")
    assert [each["content"] for each in package["externalReferences"][0]["hashes"]] == digests


def test_mlcroissant_accepts_the_description_with_its_provenance(study: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(study, tmp_path / "copy"))
    history = read_lineage(copy)
    (copy / "croissant.json").write_text(exported(history, "croissant"), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("mlcroissant")), "validate", "--jsonld", "croissant.json"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    content = croissant(history)
    run = next(run for run in history.runs if run.name == "export")
    assert content["@context"]["prov"] == "http://www.w3.org/ns/prov#"
    assert content["prov:hadPrimarySource"]["@id"] == f"urn:sha256:{run.record.digest}"
    assert [each["prov:label"] for each in content["prov:wasDerivedFrom"]] == ["corpus, Apache-2.0"]
    assert all((copy / each["contentUrl"]).is_file() for each in content["distribution"])


@pytest.mark.parametrize(
    ("target", "kind"), [("models/full", ModelCard), ("artifacts/export/trl", DatasetCard)], ids=["model", "data"]
)
def test_the_hub_reads_the_cards_and_they_name_the_record(target: str, kind: Any, study: Path) -> None:
    history = read_lineage(study, target)
    read = kind(card(history))
    run = next(run for run in history.runs if any(target.startswith(out) for out in run.outputs))
    assert run.record.digest in read.text
    assert history.digest in read.text
    assert read.data.to_dict()["license"] in ("apache-2.0", "other")
    file = "models/full/weights.txt" if kind is ModelCard else "artifacts/export/trl/train.parquet"
    assert hashlib.sha256((study / file).read_bytes()).hexdigest() in read.text


def test_a_target_limits_the_history(study: Path) -> None:
    history = read_lineage(study, "models/full")
    assert [run.name for run in history.runs] == ["download", "train@full"]
    assert [stage.name for stage in history.unrecorded] == ["data.dvc"]
    assert not any("plain" in each["@id"] for each in crate(history)["@graph"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "card"], "no target: no recorded stage made it; name an out"),
        (["--format", "card", "reports/tables.json"], "reports/tables.json/README.md); name a model"),
        (["--format", "card", "models/plain"], "has no card (reports/cards/plain.md); run the stage report"),
        (["--format", "croissant", "models/full"], "croissant.json: no recorded stage made it"),
        (["--format", "crate", "nowhere"], "nowhere: not an output in dvc.lock"),
    ],
)
def test_what_cannot_be_exported_is_named(
    arguments: list[str], message: str, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study)
    done = CliRunner().invoke(app, ["export", *arguments])
    assert isinstance(done.exception, DataError)
    assert message in str(done.exception)


def test_an_unknown_format_is_answered_with_the_known_ones() -> None:
    done = CliRunner().invoke(app, ["export", "--format", "prov"])
    assert done.exit_code == 2
    assert all(f"'{form}'" in done.output for form in get_args(Format))


def test_a_project_without_records_is_told_what_to_do(study: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(study, tmp_path / "copy"))
    shutil.rmtree(copy / ".pathfinder/lineage")
    with pytest.raises(DataError, match="no stage behind it has a record"):
        read_lineage(copy)


@pytest.mark.parametrize("place", ["a folder", "a copy of another machine"])
def test_a_restored_clone_uses_the_records_of_its_remote(place: str, study: Path, tmp_path: Path) -> None:
    clone = Path(shutil.copytree(study, tmp_path / "clone"))
    address, folder = "../remote", clone / "remote"
    if place != "a folder":
        address, folder = "s3://bucket/runs", clone / ".pathfinder/evidence/storage"
    (clone / ".dvc/config").write_text(f"['remote \"storage\"']\n    url = {address}\n", encoding="utf-8")
    (folder / "pathfinder").mkdir(parents=True)
    (clone / ".pathfinder/lineage").rename(folder / "pathfinder/records")
    history = read_lineage(clone)
    there = read_lineage(study)
    assert [run.record.digest for run in history.runs] == [run.record.digest for run in there.runs]
    assert exported(history, "openlineage") == exported(there, "openlineage")
    assert all((clone / run.file.path).is_file() for run in history.runs)


def test_the_verb_writes_a_file_and_reads_other_revisions(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study)
    file = tmp_path / "crate.json"
    here = CliRunner().invoke(app, ["export", "--format", "crate", "models/full"])
    there = CliRunner().invoke(
        app, ["export", "--format", "crate", "models/full", "--at", "HEAD", "--output", str(file)]
    )
    assert (here.exit_code, there.exit_code) == (0, 0)
    whole, at_head = json.loads(here.stdout), json.loads(file.read_text(encoding="utf-8"))
    runs = [
        {each["@id"]: each for each in content["@graph"] if each["@type"] == "CreateAction"}
        for content in (at_head, whole)
    ]
    assert len(runs[0]) == 3  # the whole run and two stages
    assert runs[0] == runs[1]
