"""OpenLineage events (specification 2-0-2): START and COMPLETE of each recorded run, one event per line.

Sources: https://openlineage.io/spec/2-0-2/OpenLineage.json and the facets that each ``_schemaURL`` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from evidence.formats.artefacts import NAMESPACE, Artefact, uri, uuid_of
from evidence.formats.lineage import Lineage, Run, text_of
from evidence.settings import SETTINGS

_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs"
_VERSIONS = {
    "DatasetTypeDatasetFacet": "1-0-1",
    "DatasetVersionDatasetFacet": "1-0-1",
    "EnvironmentVariablesRunFacet": "1-0-0",
    "ExecutionParametersRunFacet": "1-0-0",
    "InputStatisticsInputDatasetFacet": "1-0-0",
    "JobTypeJobFacet": "2-0-4",
    "OutputStatisticsOutputDatasetFacet": "1-0-2",
    "ParentRunFacet": "1-2-0",
    "ProcessingEngineRunFacet": "1-1-1",
    "SourceCodeJobFacet": "1-0-1",
}
_PRODUCER, _PLACE = uri("exporter"), NAMESPACE.rstrip("/")
"""The namespace of jobs and data sets; data sets are named by their paths in the project."""

Event = dict[str, Any]


def events(lineage: Lineage) -> Iterator[Event]:
    """The events by time, a START before its COMPLETE, as JSON values; equal records have equal run ids."""
    found = (_event(run, kind) for run in lineage.runs for kind in ("START", "COMPLETE"))
    yield from sorted(found, key=lambda each: (each["eventTime"], each["job"]["name"], each["eventType"] != "START"))


def _event(run: Run, kind: str) -> Event:
    return {
        "eventType": kind,
        "eventTime": run.start if kind == "START" else run.end,
        "producer": _PRODUCER,
        "schemaURL": f"{_EVENT}/RunEvent",
        "run": {"runId": uuid_of("run", run.record.digest), "facets": _run_facets(run)},
        "job": {
            "namespace": _PLACE,
            "name": run.name,
            "facets": {
                "jobType": _facet("JobTypeJobFacet", processingType="BATCH", integration="DVC", jobType="STAGE"),
                "sourceCode": _facet("SourceCodeJobFacet", language="shell", sourceCode=run.stage.cmd),
            },
        },
        "inputs": [_dataset(each, "input") for each in run.inputs.values()],
        "outputs": [_dataset(each, "output") for each in run.outputs.values()] if kind == "COMPLETE" else [],
    }


def _run_facets(run: Run) -> Event:
    environment = run.content["environment"]
    variables = [{"name": name, "value": value} for name, value in sorted(environment.get("variables", {}).items())]
    parameters = [{"key": key, "name": key, "value": text_of(value)} for key, value in sorted(run.params.items())]
    flow = run.actor.get("flow_run")
    parent = {"run": {"runId": _uuid(str(flow))}, "job": {"namespace": _PLACE, "name": "pipeline"}}
    return {
        "processing_engine": _facet("ProcessingEngineRunFacet", name="DVC", version=run.packages.get("dvc", "unknown")),
        "environmentVariables": _facet("EnvironmentVariablesRunFacet", environmentVariables=variables),
        "executionParameters": _facet("ExecutionParametersRunFacet", parameters=parameters),
        **({"parent": _facet("ParentRunFacet", **parent)} if flow else {}),
        f"{SETTINGS.name}_record": {
            "_producer": _PRODUCER,
            "_schemaURL": f"{_EVENT}/RunFacet",
            "sha256": run.record.digest,
            "statement": run.statement.sha256 if run.statement else None,
            "commit": run.content["git"]["commit"],
            "code": {path: each.sha256 for path, each in run.rooms.items()},
        },
    }


def _uuid(flow: str) -> str:
    """The id of a scheduler's run; OpenLineage demands a UUID, which not every scheduler has."""
    try:
        return str(UUID(flow))
    except ValueError:
        return uuid_of("flow", flow)


def _dataset(artefact: Artefact, side: str) -> Event:
    kind, form = "MODEL" if artefact.is_model else "FILE", f"{side.title()}Statistics{side.title()}DatasetFacet"
    statistics = _facet(form, size=artefact.size, fileCount=len(artefact.leaves()))
    return {
        "namespace": _PLACE,
        "name": artefact.path,
        "facets": {
            "datasetType": _facet("DatasetTypeDatasetFacet", datasetType=kind),
            "version": _facet("DatasetVersionDatasetFacet", datasetVersion=f"sha256:{artefact.sha256}"),
        },
        f"{side}Facets": {f"{side}Statistics": statistics},
    }


def _facet(name: str, /, **values: Any) -> Event:
    schema = f"{_SPEC}/facets/{_VERSIONS[name]}/{name}.json#/$defs/{name}"
    return {"_producer": _PRODUCER, "_schemaURL": schema} | values
