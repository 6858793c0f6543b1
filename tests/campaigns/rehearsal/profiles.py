"""The GPU profiles, what the rehearsal overrides in them, and the commands that the documentation gives for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ground.io import DataError
from ground.settings import read_settings
from pathfinder.core.commented_yaml import dump_commented, load_commented
from pathfinder.core.params import Params, Source
from pathfinder.planning import profiles
from tests.campaigns.rehearsal.models import model_folder
from tests.support.hub_server import HubServer

_REMOTE = ("hub", "https", "s3")
_BLOCK = re.compile(r"^```console ([a-z0-9-]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOOP = re.compile(r"(?<=for run in )[^;]+(?=;)")
PAGES = ("docs/paper.md", "README.md")
CRITICS = ["critic-qwq-32b-preview", "critic-gpt-4o", "critic-o1-mini"]
"""One judge with votes, one with a system turn, one that accepts no sampling settings."""


def gpu_profiles(root: Path) -> list[str]:
    """The profiles that fetch published sources."""
    found = []
    for name in profiles.names(root):
        content = yaml.safe_load(profiles.render(root, name))
        if any(source["kind"] in _REMOTE for source in content["download"]["sources"]):
            found.append(name)
    return sorted(found)


class Machine(NamedTuple):
    """A machine that a profile is for: its cards and the memory of each in GB."""

    cards: int
    gigabytes: int


def machine(root: Path, name: str) -> Machine:
    """The machine that the head of a profile names, as ``8 x H100 80 GB``; of several equal machines, the first."""
    stated = profiles.summary(root, name).machine
    found = re.match(r"(\d+) x .+ (\d+) GB(?: \(\w+ machines of (\d+)\))?", stated)
    if found is None:
        raise DataError(f"infra/profiles/{name}.yaml: its head names no machine; expected `# machine: 8 x H100 80 GB`")
    return Machine(int(found[3] or found[1]), int(found[2]))


def commands(root: Path, profile: str) -> list[str]:
    """The commands of the documentation's ``console <profile>`` blocks; raises ``DataError`` if there are none."""
    found = []
    for page in PAGES:
        if (root / page).exists():
            for name, block in _BLOCK.findall((root / page).read_text(encoding="utf-8")):
                if name == profile:
                    found += [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    if not found:
        raise DataError(f"{' and '.join(PAGES)} have no block `console {profile}`; write its commands there")
    return found


def second_machine(root: Path, profile: str, runs: Sequence[str]) -> list[str]:
    """The commands for the second machine, reduced to ``runs``."""
    found = commands(root, f"{profile}-second-machine")
    return [_LOOP.sub(lambda loop: " ".join(run for run in loop[0].split() if run in runs), line) for line in found]


def serve_sources(params: Params, hub: HubServer, records: Path) -> None:
    """Serve every source of a profile: tiny models and a few records, under the revisions that the profile names."""
    for source in params.download.sources:
        if source.kind == "hub":
            folder = _hub_folder(source, records)
            commit = source.revision if _COMMIT.fullmatch(source.revision or "") else None
            hub.add(source.location, folder, commit=commit)
        elif source.kind == "https":
            hub.add_raw(_address(source), _raw_folder(source, records))


def _hub_folder(source: Source, records: Path) -> Path:
    if source.name.startswith("models/"):
        return model_folder(source.name.removeprefix("models/"), source.location)
    return records / source.name


def _address(source: Source) -> str:
    return "/".join(part for part in (source.location.partition("://")[2].strip("/"), source.revision) if part)


def _raw_folder(source: Source, records: Path) -> Path:
    """A folder with the source's upstream paths, filled with the records of the same set or of the same file name."""
    folder = records / "raw" / _address(source)
    for name in source.files:
        path = folder / source.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((records / source.name / Path(name).name).read_bytes())
    return folder


def override(root: Path, url: str, servers: dict[str, str]) -> list[str]:
    """Change ``params.yaml`` in the clone; returns the changes, one line each.

    ``servers`` maps a section (label, search, critic) to the base URL of the server that the rehearsal runs for it.
    """
    path = root / "params.yaml"
    content: Any = load_commented(path, "see infra/profiles/paper.yaml")
    notes = []
    for source in content["download"]["sources"]:
        if source["kind"] == "https":
            source["location"] = f"{url}/{source['location'].partition('://')[2]}"
            source["files"] = {name: _without_digest(entry) for name, entry in source["files"].items()}
            notes.append(f"download.sources {source['name']}: a local address, no sha256")
    for key, value in _changes(content, servers):
        *sections, last = key.split(".")
        place = content
        for section in sections:
            place = place[section]
        if last in place and place[last] != value:
            notes.append(f"{key}: {place[last]} -> {value}")
            place[last] = value
    path.write_text(dump_commented(content, 4096), encoding="utf-8")
    read_settings(Params, path, "the rehearsal's overrides are wrong")
    return notes


def _without_digest(entry: Any) -> Any:
    return {"path": entry["path"], "sha256": None} if isinstance(entry, dict) else None


def _changes(content: Any, servers: dict[str, str]) -> Iterator[tuple[str, Any]]:
    yield "report.bootstrap_samples", 50
    yield "validate.mix_tolerance", 0.0
    runs, joins = list(content["runs"]), content["train"]["launch"] == "nodes"
    yield "runs", runs[:1] + (runs[-1:] if joins else [])
    if not runs:  # one set for each of many published PRMs; the other profiles search all six with our own
        yield "search.sets", content["search"]["sets"][:1]
    yield "train.epochs", 2
    yield "train.save_every", 1
    yield "train.token_budget", 2048
    yield "score.processes", 2 if content["profile"] == profiles.BASE else 1
    if joins:
        yield "score.engine", "vllm"  # the other profiles score in process
    yield "search.max_rounds", min(content["search"]["max_rounds"], 11)
    if "label" in servers and content["label"]["engine"] == "openai":
        yield "label.base_urls", [servers["label"]]
    if "search" in servers and content["search"]["engine"] == "openai":
        yield "search.base_url", servers["search"]
    if "critic" in servers:
        yield "critics", CRITICS
        yield "critic.base_urls", [servers["critic"]]


def launch_overrides(root: Path, params: Params) -> list[str]:
    """Give the profile's launcher two processes in all; returns the changes."""
    if not params.train.launch:
        return []
    path = root / f"infra/accelerate/{params.train.launch}.yaml"
    content: Any = load_commented(path, "see infra/accelerate/machine.yaml")
    before = content["num_processes"]
    content["num_processes"] = 2
    path.write_text(dump_commented(content, 4096), encoding="utf-8")
    return [f"{path.relative_to(root)}: num_processes: {before} -> 2"]
