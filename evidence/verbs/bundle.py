"""One file with the evidence of a release: ``examples/verify_bundle.py`` verifies it with nothing else of this project.

It is a tar archive, compressed with xz. ``records/`` and ``keys/`` are as in a remote, ``keys/keys.json`` is the signed
list of keys, ``ledger.jsonl`` is this machine's ledger, ``log/`` has the newest entry of each remote's log, each
pipeline's ``dvc.lock`` is there, and ``files/`` has the files of the figures and of what they were made of, by path.
``index.dsse`` is signed: it names every other file by its sha256, the record of each stage, the end of the last run,
and the figures with their origins.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from evidence.audit.pointers import files_of, origins_of, value_at
from evidence.audit.trust import LIST
from evidence.dvc.history import MAIN_LOCK, overlap
from evidence.formats.lineage import Lineage, read_lineage
from evidence.record.environment import git
from evidence.record.ledger import LEDGER, RECEIPT, SIGNED
from evidence.record.model_signature import MODEL_SIGNATURE
from evidence.record.reading import record_folders
from evidence.record.signing import key_id, own_public_keys, sign
from evidence.settings import SETTINGS, VENDOR
from evidence.verbs.targets import Files, Target, target_of
from ground.io import DataError, sha256_of

BUNDLE_TYPE = f"application/vnd.{VENDOR}.bundle+json"
LARGEST = 1 << 26
"""The most bytes that the program that verifies a bundle unpacks."""
_LARGEST_DEFAULT = 1 << 20
"""The most bytes of an out that a bundle has without a target that names it."""


def bundle(root: Path, targets: Iterable[str] = ()) -> tuple[bytes, dict[str, Any]]:
    """The bundle of the current lock, and its signed index; equal evidence gives equal bytes.

    ``targets`` are outs, or figures in them; the default is the project's tables or, without any, the small outs that
    no stage reads. Raises ``DataError`` if no stage has a record, a file is not as its record says, or without a key.
    """
    lineage, files = read_lineage(root), Files(root)
    figures = {(target := target_of(text, root)): _origins(files, target) for text in targets or _default(lineage)}
    content = dict(_evidence(root, lineage))
    paths = [path for target, origins in figures.items() for path in (target.name, *origins)]
    content |= {f"files/{path}": _recorded(lineage, files, path) for path in dict.fromkeys(paths)}
    stages: dict[str, str | None] = {run.name: run.record.digest for run in lineage.runs}
    stages |= {stage.name: None for stage in lineage.unrecorded if stage.cmd and stage.file == MAIN_LOCK}
    commit = git("rev-parse", "HEAD", root=root)
    index = {
        "schema": 1,
        "project": SETTINGS.title or SETTINGS.name,
        "commit": commit.strip() if commit else None,
        "time": lineage.end,
        "stages": stages,
        "figures": {str(target): origins for target, origins in figures.items()},
        "files": {name: sha256_of(each) for name, each in content.items()},
    }
    content["index.dsse"] = json.dumps(sign(json.dumps(index).encode(), BUNDLE_TYPE)).encode()
    if (size := sum(map(len, content.values()))) > LARGEST // 2:
        largest = max(content, key=lambda name: len(content[name]))
        raise DataError(f"{largest}: the bundle would have {size >> 20} MiB; name fewer files as its targets")
    return lzma.compress(_archive(content), preset=6 | lzma.PRESET_EXTREME), index


def _default(lineage: Lineage) -> list[str]:
    small = [path for path, out in lineage.final.items() if not out.is_folder and out.size <= _LARGEST_DEFAULT]
    return [SETTINGS.tables] if lineage.makers(SETTINGS.tables) and SETTINGS.tables else small


def _origins(files: Files, target: Target) -> list[str]:
    """The files that a figure was made of, according to the file that has it; empty for an out."""
    if target.revision is not None:
        raise DataError(f"{target}: a bundle has the current outs; check out {target.revision} and restore its outs")
    if target.pointer is None:
        return []
    content = files.value(target.name)
    value_at(content, target.pointer, target.name)  # an error if there is none
    return sorted(files_of(origins_of(content, target.pointer).values()))


def _recorded(lineage: Lineage, files: Files, path: str) -> bytes:
    """The bytes of a file that a recorded stage made or read."""
    outs = (out for name, out in lineage.artefacts.items() if overlap(name, path))
    known = {file.path: file for out in outs for file in out.leaves()}
    artefact = known.get(path)
    if artefact is None:
        if inside := [name for name in known if name.startswith(f"{path}/")]:
            raise DataError(f"{path}: is a folder; name a file in it, such as {min(inside)}")
        raise DataError(f"{path}: no recorded stage made or read this file; name an out, or a file in one")
    content = files.read(path)
    if sha256_of(content) != artefact.sha256:
        raise DataError(f"{path}: differs from its record; `{SETTINGS.command} check {path}` says why")
    return content


def _evidence(root: Path, lineage: Lineage) -> Iterator[tuple[str, bytes]]:
    """The records with their signatures, locks, public keys and their list, ledger, and the newest entry of logs."""
    named = [(file, root / file) for file in sorted({MAIN_LOCK, *(run.stage.file for run in lineage.runs)})]
    named += [("ledger.jsonl", root / LEDGER), (f"keys/{LIST.name}", root / LIST)]
    for run in lineage.runs:
        for ending in (".json", SIGNED, RECEIPT, MODEL_SIGNATURE):
            named.append((f"records/{run.name}/{run.record.digest}{ending}", run.record.path.with_suffix(ending)))
    for number, place in enumerate(folder.parent for folder in record_folders(root)):
        for entry in sorted(place.glob("log/[!.]*.json"))[-1:]:
            signature = f"signatures/{sha256_of(entry.read_bytes())}.dsse"
            where = PurePosixPath("log", f"{number}-{place.parent.name}")  # folders of two remotes may share a name
            named += [((where / name).as_posix(), place / name) for name in (f"log/{entry.name}", signature)]
        named += [(f"keys/{file.name}", file) for file in sorted(place.glob("keys/*.pem"))]
    yield from ((name, file.read_bytes()) for name, file in named if file.is_file())
    yield from ((f"keys/{key_id(pem)}.pem", pem) for pem in own_public_keys())


def _archive(content: Mapping[str, bytes]) -> bytes:
    """The files as a tar archive without times and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(content):
            member = tarfile.TarInfo(name)
            member.size = len(content[name])
            try:
                archive.addfile(member, io.BytesIO(content[name]))
            except ValueError as error:
                raise DataError(f"{name}: cannot be in a bundle ({error}); give the file a shorter name") from error
    return buffer.getvalue()
