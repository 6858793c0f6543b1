"""A record as an in-toto Statement v1 with SLSA provenance v1, which public tools can verify.

Every file is a separate subject or dependency, because a folder has no standard digest.
Formats: https://in-toto.io/Statement/v1, https://slsa.dev/provenance/v1
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evidence.settings import VENDOR

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = f"urn:{VENDOR}:stage:v1"
BUILDER = f"urn:{VENDOR}:recorder:v2"
RECEIPT_TYPE = f"application/vnd.{VENDOR}.ledger-entry+json"
HEAD = "ledger"
"""The name by which a statement names the last line of the ledger before the record's own."""


def statement_of(record: Mapping[str, Any], digest: str, others: Mapping[str, str]) -> dict[str, Any]:
    """The statement about a record, which it names by its sha256, ``digest``, and ``others``: sha256 by name."""
    commit = record["git"]["commit"]
    dependencies = [
        *(file for kind in ("inputs", "rooms", "code") for file in _files(record[kind])),
        *_files({name: use["before"] for name, use in record.get("journals", {}).items() if use["before"]}),
    ]
    unique = {(each["name"], each["digest"]["sha256"]): each for each in dependencies}
    source = [{"name": "commit", "digest": {"gitCommit": commit}}] if commit else []
    return {
        "_type": STATEMENT,
        "subject": list(_files(record["outputs"])),
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"stage": record["stage"], "cmd": record["cmd"], "params": record["params"]},
                "internalParameters": {"environment": record["environment"], "actor": record["actor"]},
                "resolvedDependencies": [*source, *unique.values()],
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {
                    "invocationId": digest,
                    "startedOn": record["times"]["start"].replace("+00:00", "Z"),
                    "finishedOn": record["times"]["end"].replace("+00:00", "Z"),
                },
                "byproducts": [
                    {"name": name, "digest": {"sha256": value}} for name, value in {"record": digest, **others}.items()
                ],
            },
        },
    }


def byproducts(statement: Any) -> dict[str, str]:
    """The sha256 of the record (``record``) and of the other files that a statement names; empty without them."""
    try:
        if statement["predicateType"] != PREDICATE:
            return {}
        return {each["name"]: each["digest"]["sha256"] for each in statement["predicate"]["runDetails"]["byproducts"]}
    except (KeyError, TypeError):
        return {}


def is_about(statement: Any, record: Mapping[str, Any], digest: str) -> bool:
    """True if a statement says what a record says; the names of the tool and of other files may differ."""
    others = byproducts(statement)
    try:
        own = statement_of(record, digest, {name: sha256 for name, sha256 in others.items() if name != "record"})
        return _without_order(own) == _without_order(statement)
    except (KeyError, TypeError):
        return False


def _without_order(statement: Any) -> tuple[Any, ...]:
    """The files of a statement, sorted, and the rest as text, without the names of the tool."""
    predicate = statement["predicate"]
    definition, run = predicate["buildDefinition"], predicate["runDetails"] | {"builder": None}
    lists = (statement["subject"], definition["resolvedDependencies"])
    definition = definition | {"buildType": None, "resolvedDependencies": None}
    rest = statement | {"subject": None, "predicate": predicate | {"buildDefinition": definition, "runDetails": run}}
    ordered = (sorted(files, key=lambda file: (file["name"], *file["digest"].items())) for files in lists)
    return *ordered, json.dumps(rest, sort_keys=True)


def _files(entries: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, entry in entries.items():
        if entry.get("files"):
            yield from _files({f"{path}/{name}": file for name, file in entry["files"].items()})
        else:
            yield {"name": path, "digest": {"sha256": entry["sha256"]}}
