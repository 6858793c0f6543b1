"""W3C PROV as PROV-JSON: files and folders are entities, runs are activities, people and software are agents.

Sources: PROV-DM (https://www.w3.org/TR/prov-dm/), PROV-JSON (https://www.w3.org/submissions/prov-json/).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from evidence.dvc import history
from evidence.formats.artefacts import Artefact
from evidence.formats.identifiers import NAMESPACE, PROJECT
from evidence.formats.lineage import Lineage, Run, text_of
from ground.io import digest_of

_PREFIX = "pf"
Document = dict[str, dict[str, Any]]


def prov(lineage: Lineage) -> Document:
    """The PROV-JSON document as a JSON value.

    A folder is a collection of its files. Code is an entity that a run used, with the role ``code``.
    """
    document: Document = {
        "prefix": {_PREFIX: NAMESPACE},
        "entity": {},
        "activity": {},
        "agent": {_name("project"): {"prov:type": _term("prov:Organization"), "prov:label": PROJECT}},
        "used": {},
        "wasGeneratedBy": {},
        "wasAssociatedWith": {},
        "actedOnBehalfOf": {},
        "hadMember": {},
        "wasDerivedFrom": {},
    }
    for artefact in [*lineage.artefacts.values(), *lineage.code.values()]:
        _add_artefact(document, artefact, lineage)
    for run in lineage.runs:
        _add_run(document, run)
    for run in lineage.runs:
        for path in run.inputs:
            for out in (out for maker in lineage.makers(path) for out in maker.outputs if out != path):
                whole, part = (out, path) if path.startswith(f"{out}/") else (path, out)
                if history.overlap(out, path):
                    _member(document, whole, part)
    return {part: entries for part, entries in document.items() if entries}


def _add_artefact(document: Document, artefact: Artefact, lineage: Lineage) -> None:
    name = _entity(artefact.path)
    document["entity"][name] = _described(artefact) | (
        {"prov:type": _term("prov:Collection")} if artefact.is_folder else {}
    )
    for path, file in artefact.files.items():
        document["entity"].setdefault(_entity(path), _described(file))
        _member(document, artefact.path, path)
    if source := lineage.source_of(artefact.path):
        title, entry = source
        origin = _name("source", title)
        document["entity"][origin] = {
            "prov:label": title,
            "prov:location": str(entry["location"]),
            f"{_PREFIX}:kind": str(entry["kind"]),
            f"{_PREFIX}:licence": str(entry["licence"]),
            f"{_PREFIX}:revision": str(entry["revision"] or "none"),
        }
        _relate(document, "wasDerivedFrom", {"prov:generatedEntity": name, "prov:usedEntity": origin})


def _add_run(document: Document, run: Run) -> None:
    name = _name("run", run.record.digest)
    document["activity"][name] = {
        "prov:startTime": run.start,
        "prov:endTime": run.end,
        "prov:label": run.name,
        f"{_PREFIX}:command": run.stage.cmd,
        f"{_PREFIX}:record": run.record.digest,
        f"{_PREFIX}:statement": run.statement.sha256 if run.statement else "none",
        f"{_PREFIX}:commit": str(run.content["git"]["commit"] or "none"),
        **{f"{_PREFIX}:param_{quote(key, safe='')}": text_of(value) for key, value in sorted(run.params.items())},
    }
    for role, read in (("data", run.inputs), ("code", run.rooms)):
        for path in read:
            used = {"prov:activity": name, "prov:entity": _entity(path), "prov:role": role}
            _relate(document, "used", used)
    for path in run.outputs:
        _relate(
            document,
            "wasGeneratedBy",
            {"prov:entity": _entity(path), "prov:activity": name, "prov:time": run.end},
        )
    user = run.actor.get("user")
    agent = _name("user", str(user)) if user else _name("project")
    if user:
        document["agent"][agent] = {"prov:type": _term("prov:Person"), "prov:label": str(user)}
        _relate(document, "actedOnBehalfOf", {"prov:delegate": agent, "prov:responsible": _name("project")})
    _relate(document, "wasAssociatedWith", {"prov:activity": name, "prov:agent": agent})


def _described(artefact: Artefact) -> dict[str, Any]:
    return {
        "prov:label": artefact.path,
        f"{_PREFIX}:sha256": artefact.sha256,
        f"{_PREFIX}:md5": artefact.md5,
        f"{_PREFIX}:bytes": artefact.size,
    }


def _member(document: Document, whole: str, part: str) -> None:
    _relate(document, "hadMember", {"prov:collection": _entity(whole), "prov:entity": _entity(part)})


def _relate(document: Document, relation: str, ends: Mapping[str, Any]) -> None:
    """Add a relation, once; its identifier is made from its ends."""
    document[relation][f"_:{relation}-{digest_of(ends)[:16]}"] = dict(ends)


def _term(name: str) -> dict[str, str]:
    return {"$": name, "type": "prov:QUALIFIED_NAME"}


def _entity(path: str) -> str:
    return _name("file", path)


def _name(kind: str, name: str = "") -> str:
    return f"{_PREFIX}:{kind}/{quote(name)}" if name else f"{_PREFIX}:{kind}"
