"""A bill of materials of the models: CycloneDX 1.6 with models, data sets and packages, and what each depends on.

Source: https://cyclonedx.org/docs/1.6/json/. Packages come from the records and their hashes from the lock; a licence
is given if this environment has the same version installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from evidence.audit.sources import RAW
from evidence.dvc import history
from evidence.formats.artefacts import MODELS, TITLE, Artefact, media_type, package_url, uuid_of
from evidence.formats.lineage import Lineage, Run, text_of
from evidence.record.identity import LOCKS
from evidence.record.materials import pinned_files
from evidence.settings import SETTINGS

_LONGEST_LICENCE = 80
Component = dict[str, Any]


def bom(lineage: Lineage) -> Component:
    """The CycloneDX document as a JSON value; its serial number is made from the digests of the records."""
    newest = max(lineage.runs, key=lambda run: run.end)
    main = {
        "type": "application",
        "bom-ref": "project",
        "name": TITLE,
        "version": str(newest.content["git"]["commit"] or "not in a repository"),
        **({"licenses": [{"license": {"id": SETTINGS.licence}}]} if SETTINGS.licence else {}),
    }
    packages = sorted({pair for run in lineage.runs for pair in run.packages.items()})
    hashes, whole = _locked_hashes(lineage), _whole(lineage)
    components = [
        *(_artefact(each, lineage, whole) for each in whole),
        *(_package(*package, hashes.get(package, [])) for package in packages),
    ]
    needed = {"ref": "project", "dependsOn": sorted(package_url(*pair) for pair in newest.packages.items())}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid_of('bom', lineage.digest)}",
        "version": 1,
        "metadata": {"timestamp": lineage.end, "component": main},
        "components": components,
        "dependencies": [*(_dependency(each, lineage, whole) for each in whole), needed],
    }


def _whole(lineage: Lineage) -> list[Artefact]:
    """The models and data sets, without code; each source replaces its part of the folder of sources."""
    found = dict(lineage.artefacts)
    if raw := found.pop(RAW, None):
        for folder in (f"{RAW}/{name}" for name in lineage.sources):
            files = {path: file for path, file in raw.files.items() if path.startswith(f"{folder}/")}
            if files:
                size = sum(file.size for file in files.values())
                found.setdefault(folder, Artefact(folder, ".dir", "", size, files))
    return [found[path] for path in sorted(found)]


def _artefact(artefact: Artefact, lineage: Lineage, whole: list[Artefact]) -> Component:
    runs = _makers(artefact, lineage)
    source = lineage.source_of(artefact.path)
    files = [_file(file, artefact) for file in artefact.leaves()] if artefact.is_folder else []
    kind = "configuration" if media_type(artefact.path) == "application/yaml" else "dataset"
    return {
        "type": "machine-learning-model" if artefact.is_model else "data",
        "bom-ref": _ref(artefact.path),
        "name": artefact.path,
        "version": artefact.sha256[:16] or "see files",
        **({} if artefact.is_folder else {"hashes": _hashes(artefact)}),
        # by name: the catalogue may name a licence that SPDX does not list
        **({"licenses": [{"license": {"name": str(source[1]["licence"])}}]} if source else {}),
        **({"components": files} if files else {}),
        "properties": _properties(artefact, source, runs),
        **(
            {"modelCard": {"modelParameters": _model_parameters(runs, whole)}}
            if artefact.is_model
            else {"data": [{"type": kind, "name": artefact.path}]}
        ),
    }


def _properties(artefact: Artefact, source: Any, runs: list[Run]) -> list[dict[str, str]]:
    facts = [("md5", artefact.md5), ("bytes", str(artefact.size))]
    if artefact.is_folder:
        facts.append(("sha256 of the list of files", artefact.sha256))
    if source:
        facts += [("source", f"{source[1]['kind']} {source[1]['location']}")]
        facts += [("revision", str(source[1].get("revision") or ""))]
    for run in runs:
        facts += [("stage", run.name), ("record", run.record.digest), ("command", run.stage.cmd)]
        facts += [("statement", run.statement.sha256 if run.statement else "")]
        facts += [(f"param:{key}", text_of(value)) for key, value in sorted(run.params.items())]
    return [{"name": f"{SETTINGS.name}:{name}", "value": value} for name, value in facts if value and value != ".dir"]


def _model_parameters(runs: list[Run], whole: list[Artefact]) -> Component:
    if not runs:
        return {"task": "language model"}
    no_data = tuple(filter(None, (*MODELS, SETTINGS.metrics)))
    read = [path for run in runs for path in run.inputs if not path.startswith(no_data)]
    datasets = [{"ref": ref} for ref in sorted(_refs(read, whole))]
    return {"task": SETTINGS.task, "approach": {"type": "supervised"}, "datasets": datasets}


def _file(file: Artefact, folder: Artefact) -> Component:
    return {
        "type": "file",
        "bom-ref": f"{_ref(folder.path)}#{file.path.removeprefix(f'{folder.path}/')}",  # unique: folders may overlap
        "mime-type": media_type(file.path),
        "name": file.path,
        "hashes": _hashes(file),
    }


def _package(name: str, version: str, hashes: list[str]) -> Component:
    licence, address = _installed_licence(name, version), package_url(name, version)
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


def _dependency(artefact: Artefact, lineage: Lineage, whole: list[Artefact]) -> Component:
    """The inputs of a model or data set, and the project's code."""
    runs = _makers(artefact, lineage)
    above = _refs({path for run in runs for path in run.inputs}, whole) - {_ref(artefact.path)}
    return {"ref": _ref(artefact.path), "dependsOn": sorted(above | ({"project"} if runs else set()))}


def _makers(artefact: Artefact, lineage: Lineage) -> list[Run]:
    return [run for run in lineage.runs if artefact.path in run.outputs]


def _refs(paths: Iterable[str], whole: list[Artefact]) -> set[str]:
    """The models and data sets that have a part at one of the paths."""
    return {_ref(each.path) for each in whole for path in paths if history.overlap(each.path, path)}


def _locked_hashes(lineage: Lineage) -> dict[tuple[str, str], list[str]]:
    """sha256 of the distributions of each locked package, from the lock files here that a record names."""
    found: dict[tuple[str, str], list[str]] = {}
    for file in lineage.code[LOCKS].leaves() if LOCKS in lineage.code else ():
        path: Path = lineage.root / file.path
        for package, hashes in pinned_files(path.read_text(encoding="utf-8")).items() if path.is_file() else ():
            found[package] = list(dict.fromkeys([*found.get(package, ()), *hashes]))
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


def _hashes(file: Artefact) -> list[Component]:
    return [{"alg": "SHA-256", "content": file.sha256}, {"alg": "MD5", "content": file.md5}]


def _ref(path: str) -> str:
    return f"artefact:{path}"
