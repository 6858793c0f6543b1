"""Every deployment of prefect.yaml can be started from Prefect's page: its parameters are typed, described and checked.

The server checks parameters with the functions that are called here.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from prefect.utilities.callables import parameter_schema_from_entrypoint
from prefect.utilities.schema_tools.validation import ValidationError, validate

from tests.flows.conftest import ROOT

DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
# The request of the page: the values of its form, in JSON.
GIVEN: dict[str, dict[str, Any]] = {
    "nightly": {
        "branch": "main",
        "targets": ["train@full", "report"],
        "profile": "quickstart",
        "overrides": ["train.seed=2"],
        "force": True,
        "pull": False,
        "jobs": 2,
        "repository": "",
    },
    "reproduce": {"targets": ["report"], "force": False, "pull": True, "jobs": 0},
    "audit": {"full": True, "strict": False},
    "garbage": {"where": "cache", "delete": False, "days": 14, "repository": ""},
    "promote": {"branch": "runs/2026-01-01-0a1b2c3d", "target": "main", "largest_drop": 2.5, "repository": ""},
    "stage": {"order": {"payloadType": "", "payload": "", "signatures": []}},
}
WRONG = [
    ("nightly", {"profile": "quick"}),
    ("nightly", {"targets": ["trane"]}),
    ("nightly", {"overrides": ["train.seed"]}),
    ("nightly", {"jobs": "two"}),
    ("nightly", {"branch": ""}),
    ("reproduce", {"targets": "report"}),
    ("reproduce", {"jobs": -1}),
    ("audit", {"full": "yes"}),
    ("garbage", {"where": "everywhere"}),
    ("garbage", {"days": 0}),
    ("promote", {"branch": "main"}),
    ("promote", {"largest_drop": -1}),
    ("stage", {"order": "train@full"}),
    ("stage", {}),
]


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Any]]:
    """The schema of each flow, as ``prefect deploy`` sends it."""
    entrypoints = {item["entrypoint"] for item in DEPLOYMENTS}
    return {
        entrypoint.rpartition(":")[2]: parameter_schema_from_entrypoint(str(ROOT / entrypoint)).model_dump_for_openapi()
        for entrypoint in sorted(entrypoints)
    }


def test_every_parameter_has_a_type_and_a_description(schemas: dict[str, dict[str, Any]]) -> None:
    assert schemas.keys() == GIVEN.keys()
    for flow, schema in schemas.items():
        for name, parameter in schema["properties"].items():
            assert parameter.get("description"), f"{flow}: {name}"
            assert {"type", "enum", "anyOf", "$ref"} & parameter.keys(), f"{flow}: {name}"


def test_parameters_with_choices_offer_them(schemas: dict[str, dict[str, Any]]) -> None:
    nightly = schemas["nightly"]["properties"]
    assert {"", "quickstart", "paper"} <= set(nightly["profile"]["enum"])
    assert {"train", "train@full", "report"} <= set(nightly["targets"]["items"]["enum"])
    assert schemas["garbage"]["properties"]["where"]["enum"] == ["remote", "cache", "remote and cache"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda item: item["name"])
def test_the_page_can_start_every_deployment(deployment: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> None:
    flow = deployment["entrypoint"].rpartition(":")[2]
    optional = deployment["parameters"] if flow != "stage" else GIVEN[flow]
    for given in (optional, GIVEN[flow]):
        validate(given, schemas[flow], raise_on_error=True)


@pytest.mark.parametrize(("flow", "given"), WRONG)
def test_wrong_parameters_are_refused(flow: str, given: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        validate(given, schemas[flow], raise_on_error=True)
