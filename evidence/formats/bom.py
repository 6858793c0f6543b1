"""A bill of materials of the models: CycloneDX 1.6 with models, data sets and packages, and what each depends on.

Source: https://cyclonedx.org/docs/1.6/json/. Packages and their hashes are those of the record and the lock; a licence
is given if this environment has the same version installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from evidence.dvc import history
from evidence.formats.artefacts import Artefact, media_type
from evidence.formats.identifiers import LICENCE, PROJECT, package_url, uuid_of
from evidence.formats.lineage import Lineage, Run, text_of
from evidence.record.identity import LOCKS

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LONGEST_LICENCE = 80
_MODELS = ("models/", "artifacts/raw/models/")
Component = dict[str, Any]


def bom(lineage: Lineage) -> Component:
    """The CycloneDX document as a JSON value; its serial number is made from the digests of the records."""
    newest = max(lineage.runs, key=lambda run: run.end)
    main = {
        "type": "application",
        "bom-ref": "project",
        "name": PROJECT,
        "version": str(newest.content["git"]["commit"] or "not in a repository"),
        "licenses": [{"license": {"id": LICENCE}}],
    }
    packages = {(name, version) for run in lineage.runs for name, version in run.packages.items()}
    hashes = _locked_hashes(lineage)
    components = [
        *(_artefact(artefact, lineage) for artefact in _whole(lineage)),
        *(_package(name, version, hashes.get((name, version), [])) for name, version in sorted(packages)),
    ]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid_of('bom', lineage.digest)}",
        "version": 1,
        "metadata": {"timestamp": lineage.end, "component": main},
        "components": components,
        "dependencies": [*_dependencies(lineage), *_package_dependencies(lineage)],
    }


def _whole(lineage: Lineage) -> list[Artefact]:
    """The models and data sets, without code; a source's folder is a part of its own, artifacts/raw is not."""
    sources = [f"artifacts/raw/{name}" for name in lineage.sources]
    found = dict(lineage.artefacts)
    for raw in [each for path, each in lineage.artefacts.items() if path == "artifacts/raw"]:
        del found[raw.path]
        for folder in sources:
            files = {path: file for path, file in raw.files.items() if path.startswith(f"{folder}/")}
            if folder not in found and files:
                size = sum(file.size for file in files.values())
                found[folder] = Artefact(folder, ".dir", "", size, files)
    return [found[path] for path in sorted(found)]


def _artefact(artefact: Artefact, lineage: Lineage) -> Component:
    is_model = artefact.path.startswith(_MODELS)
    runs = [run for run in lineage.makers(artefact.path) if artefact.path in run.outputs]
    source = lineage.source_of(artefact.path)
    files = [_file(file) for file in artefact.leaves()] if artefact.is_folder else []
    component: Component = {
        "type": "machine-learning-model" if is_model else "data",
        "bom-ref": _ref(artefact.path),
        "name": artefact.path,
        "version": artefact.sha256[:16] or "see files",
        **({} if artefact.is_folder else {"hashes": _hashes(artefact)}),
        **({"licenses": [_licence(str(source[1]["licence"]))]} if source else {}),
        **({"components": files} if files else {}),
        "properties": _properties(artefact, source, runs),
    }
    if is_model:
        component["modelCard"] = _model_card(runs, lineage)
    else:
        kind = "configuration" if media_type(artefact.path) == "application/yaml" else "dataset"
        component["data"] = [{"type": kind, "name": artefact.path}]
    return component


def _properties(artefact: Artefact, source: Any, runs: list[Run]) -> list[dict[str, str]]:
    facts = [("md5", artefact.md5), ("bytes", str(artefact.size))]
    if artefact.is_folder and artefact.sha256:
        facts.append(("sha256 of the list of files", artefact.sha256))
    if source:
        facts += [("source", f"{source[1]['kind']} {source[1]['location']}")]
        facts += [("revision", str(source[1]["revision"]))] if source[1].get("revision") else []
    for run in runs:
        facts += [("stage", run.name), ("record", run.record.digest), ("command", run.stage.cmd)]
        facts += [("statement", run.statement.sha256)] if run.statement else []
        facts += [(f"param:{key}", text_of(value)) for key, value in sorted(run.params.items())]
    return [{"name": f"pathfinder:{name}", "value": value} for name, value in facts if value and value != ".dir"]


def _model_card(runs: list[Run], lineage: Lineage) -> Component:
    read = [path for run in runs for path in run.inputs if not path.startswith((*_MODELS, "metrics/"))]
    refs = {_ref(whole.path) for whole in _whole(lineage) for path in read if history.overlap(whole.path, path)}
    parameters: Component = {"task": "process reward" if runs else "language model"}
    if runs:
        parameters |= {"approach": {"type": "supervised"}, "datasets": [{"ref": ref} for ref in sorted(refs)]}
    return {"modelParameters": parameters}


def _file(file: Artefact) -> Component:
    return {
        "type": "file",
        "bom-ref": f"{_ref(file.path)}#file",
        "mime-type": media_type(file.path),
        "name": file.path,
        "hashes": _hashes(file),
    }


def _package(name: str, version: str, hashes: list[str]) -> Component:
    licence = _installed_licence(name, version)
    address = package_url(name, version)
    contents = [{"alg": "SHA-256", "content": each} for each in hashes]
    return {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": version,
        "purl": address,
        **({"licenses": [licence]} if licence else {}),
        "externalReferences": [{"type": "distribution", "url": address, **({"hashes": contents} if contents else {})}],
    }


def _dependencies(lineage: Lineage) -> Iterator[Component]:
    """The inputs of each model or data set, and the project's code."""
    whole = _whole(lineage)
    for artefact in whole:
        runs = [run for run in lineage.runs if artefact.path in run.outputs]
        read = {path for run in runs for path in run.inputs}
        above = {_ref(other.path) for other in whole for path in read if history.overlap(other.path, path)}
        above -= {_ref(artefact.path)}
        yield {"ref": _ref(artefact.path), "dependsOn": sorted(above | ({"project"} if runs else set()))}


def _package_dependencies(lineage: Lineage) -> Iterator[Component]:
    newest = max(lineage.runs, key=lambda run: run.end)
    yield {"ref": "project", "dependsOn": sorted(package_url(*pair) for pair in newest.packages.items())}


def _locked_hashes(lineage: Lineage) -> dict[tuple[str, str], list[str]]:
    """sha256 of the distributions of each locked package, from the lock files here that a record names."""
    found: dict[tuple[str, str], list[str]] = {}
    locks = lineage.code.get(LOCKS)
    for file in locks.leaves() if locks else ():
        path: Path = lineage.root / file.path
        package: tuple[str, str] | None = None
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            if pin := _PINNED.match(line):
                package = pin[1].lower(), pin[2]
            if package and (hashes := _HASH.findall(line)):
                known = found.setdefault(package, [])
                known += [each for each in hashes if each not in known]
    return found


def _installed_licence(name: str, version: str) -> Component | None:
    """The licence that the installed package of this version states."""
    try:
        installed = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if installed["Version"] != version:
        return None
    if expression := installed.get_all("License-Expression"):
        return {"expression": expression[0]}
    names = [each.rpartition(" :: ")[2] for each in installed.get_all("Classifier") or () if "License ::" in each]
    stated = (installed.get_all("License") or [""])[0].strip().split("\n")[0]
    title = ", ".join(names) or stated
    return {"license": {"name": title[:_LONGEST_LICENCE]}} if title else None


def _licence(name: str) -> Component:
    """A source's licence by name: the catalogue may name one that SPDX does not list."""
    return {"license": {"name": name}}


def _hashes(file: Artefact) -> list[Component]:
    return [{"alg": "SHA-256", "content": file.sha256}, {"alg": "MD5", "content": file.md5}]


def _ref(path: str) -> str:
    return f"artefact:{path}"
