"""Validate a crate with roc-validator and ask it the competency questions; prints JSON.

It runs in an environment of its own, because the validator pins an older ``rich`` than the project, and it loads
nothing from the internet: the JSON-LD context of RO-Crate 1.1 comes from the package ``rocrate``.

Run     python crate_checks.py FOLDER
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import rdflib
from questions import QUESTIONS, query  # type: ignore[import-not-found]  # this file runs in its own folder
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession  # type: ignore[import-not-found]
from rocrate_validator import models, services  # type: ignore[import-not-found]
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


class Packaged(HTTPAdapter):
    """Answers every request with the context."""

    def send(self, request: Any, *_: Any, **__: Any) -> Any:
        body = io.BytesIO(json.dumps(context()).encode())
        headers = {"Content-Type": "application/ld+json"}
        return self.build_response(request, HTTPResponse(body, headers, 200, preload_content=False))


def context() -> Any:
    """The published context, as the package contains it."""
    spec = importlib.util.find_spec("rocrate")
    assert spec is not None
    assert spec.origin is not None
    content = json.loads((Path(spec.origin).parent / "data" / "ro-crate.jsonld").read_bytes())
    assert content["@id"] == CONTEXT
    return content


def validated(folder: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        cache = Path(temporary) / "http"
        with CachedSession(cache_name=str(cache), backend="sqlite") as session:
            session.mount("https://", Packaged())
            session.get(CONTEXT)
        settings = models.ValidationSettings(
            rocrate_uri=folder,
            profile_identifier="provenance-run-crate",
            requirement_severity=models.Severity.RECOMMENDED,
            cache_path=cache,
        )
        result = services.validate(settings)
    issues = [
        [each.severity.name, each.check.identifier, each.violatingEntity, each.message] for each in result.get_issues()
    ]
    return {"issues": issues, "checks": len(result.executed_checks), "passed": result.passed()}


def answers(folder: str) -> dict[str, list[list[str]]]:
    """The rows of every question."""
    content = json.loads((Path(folder) / "ro-crate-metadata.json").read_bytes())
    named, own = content["@context"]
    assert named == CONTEXT
    content["@context"] = [context()["@context"], own]
    graph = rdflib.Graph().parse(data=json.dumps(content), format="json-ld", publicID=Path(folder).as_uri() + "/")
    found: dict[str, Any] = {name: list(graph.query(query(name))) for name in QUESTIONS}
    return {name: sorted([str(cell or "") for cell in row] for row in rows) for name, rows in found.items()}


if __name__ == "__main__":
    print(json.dumps(validated(sys.argv[1]) | {"answers": answers(sys.argv[1])}))
