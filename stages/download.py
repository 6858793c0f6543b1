"""Fetch the sources of the catalogue, check their sha256, and write a manifest with revisions and licences.

Reads   data (the shipped world) and the sources that the catalogue names; params: download, baselines
Writes  artifacts/raw/<source>/…, artifacts/raw/manifest.json; models of the Hub go to the Hub's cache (HF_HOME), and
        artifacts/raw/models/<name>/hub.json names their repository, commit and files
Run     python -m stages.download
        python -m stages.download --pin     before the first run, to pin the current state of a Hub branch
        python -m stages.download --models  on a machine whose Hub cache lacks the models of artifacts/raw

Files arrive in .pathfinder/download/ and move to artifacts/raw together. An interrupted run resumes from that folder.
``PATHFINDER_MIRROR`` is the root of ``mirror`` sources. Exit status 75 means that the network failed; try again.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

from evidence.record.stage import stage
from ground.io import DataError, atomic_folder, digest_of, remove, write_json
from pathfinder.core.hub import HUB_FILE, read_hub_model
from pathfinder.core.params import PARAMS_FILE, Download, Params, Source, load_params
from pathfinder.sources.catalogue import Fetched, fetch_source, look_up_all
from pathfinder.sources.catalogue import pin as write_pins

RAW = Path("artifacts/raw")
WORK = Path(".pathfinder/download")
_MODELS = ("base", "judge", "policy")
"""The models that have their own stages; every other model is a published PRM."""


@stage
def main(
    pin: Annotated[bool, "fetch, write commit ids and sha256 into params.yaml, and stop"] = False,
    models: Annotated[bool, "fetch the models of artifacts/raw into the Hub's cache again, and stop"] = False,
) -> None:
    """Run the stage."""
    settings = _wanted(load_params())
    if models:
        _fetch_models(settings)
        return
    fetched = _fetch(settings)
    if pin:
        _pin(settings, fetched)
        return
    with atomic_folder(RAW) as raw:
        for source in settings.sources:
            for file in fetched[source.name].files:
                target = raw / source.name / file
                target.parent.mkdir(parents=True, exist_ok=True)
                (_work_folder(source) / file).replace(target)
        write_json(
            raw / "manifest.json", {source.name: _entry(source, fetched[source.name]) for source in settings.sources}
        )
    shutil.rmtree(WORK)


def _wanted(params: Params) -> Download:
    """The settings without the models of published PRMs that ``baselines`` does not list.

    Before anything is fetched, raises ``DataError`` if a listed PRM has no source.
    """
    used = {*_MODELS, *params.baselines}
    parts = {source.name: source.name.split("/") for source in params.download.sources}
    if missing := [name for name in params.baselines if f"models/{name}" not in parts]:
        raise DataError(
            f"{PARAMS_FILE}: download.sources has no models/{missing[0]}, which `baselines` lists; copy its entry from "
            "infra/profiles/evaluate-published.yaml, or see docs/extend.md#add-a-published-prm"
        )
    kept = [s for s in params.download.sources if parts[s.name][0] != "models" or parts[s.name][1] in used]
    return params.download.model_copy(update={"sources": kept})


def _fetch(settings: Download) -> dict[str, Fetched]:
    """Fetch every source into its work folder."""
    listings = look_up_all(settings)
    fetched = {}
    for source in settings.sources:
        fetched[source.name] = fetch_source(source, _work_folder(source), settings, listings.get(source.name))
        if not source.is_pinned:
            at = f" at {source.revision or 'main'}" if source.kind == "hub" else ""
            came = f"; fetched commit {fetched[source.name].revision}" if source.kind == "hub" else ""
            print(
                f"download: {source.name} is not pinned: {source.location}{at} can change{came}. To pin it: "
                "python -m stages.download --pin",
                file=sys.stderr,
            )
    return fetched


def _work_folder(source: Source) -> Path:
    """A different location, revision or upstream path of a file means a different work folder."""
    identity = source.model_dump(include={"name", "kind", "location", "revision", "licence"})
    paths = {name: path for name in source.files if (path := source.path_of(name)) != name}
    return WORK / digest_of(identity | {"paths": paths})[:16]


def _entry(source: Source, fetched: Fetched) -> dict[str, Any]:
    entry: dict[str, Any] = source.model_dump(include={"kind", "location", "licence"})
    entry |= {"revision": fetched.revision, "files": fetched.files}
    if source.kind not in ("shipped", "mirror"):
        entry["pinned"] = source.is_pinned
    return entry | ({"cached": fetched.cached} if fetched.cached else {})


def _pin(settings: Download, fetched: dict[str, Fetched]) -> None:
    """Write the pins; the fetched files wait in the work folders of the pinned sources."""
    changed = write_pins(PARAMS_FILE, fetched)
    old = {source.name: _work_folder(source) for source in settings.sources}
    for source in load_params().download.sources:
        if old.get(source.name, _work_folder(source)) != _work_folder(source):
            remove(_work_folder(source))
            old[source.name].replace(_work_folder(source))
    print(f"download: {PARAMS_FILE} now pins {', '.join(changed) or 'nothing more'}; run the pipeline next")


def _fetch_models(settings: Download) -> None:
    """Fetch the models that the ``hub.json`` files below artifacts/raw name, by commit and digest."""
    sources = []
    for file in sorted((RAW / "models").rglob(HUB_FILE)):
        model = read_hub_model(file.parent)
        if model is not None:
            digests = {name: entry["sha256"] for name, entry in model.files.items()}
            name = file.parent.relative_to(RAW).as_posix()
            values = {"name": name, "kind": "hub", "location": model.repo, "revision": model.revision}
            sources.append(Source.model_validate(values | {"licence": "as fetched", "files": digests}))
    wanted = settings.model_copy(update={"sources": sources})
    listings = look_up_all(wanted)
    for source in sources:
        fetch_source(source, WORK / "models" / source.name, wanted, listings[source.name])
    print(
        f"download: the Hub cache holds {', '.join(source.name for source in sources) or 'no model of artifacts/raw'}"
    )


if __name__ == "__main__":
    main()
