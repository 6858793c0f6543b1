"""Build the folders for the upload: a model with its card and signature, and its training data with a card."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evidence.audit.trust import trusted_keys
from evidence.formats.descriptions import DESCRIPTION, card, lineage_section
from evidence.formats.lineage import Lineage, read_lineage
from evidence.record.model_signature import MODEL_SIGNATURE, MODELS, Bundle, model_of, verify_model
from evidence.settings import parsed
from evidence.verbs.check import check
from ground.io import DataError, atomic_folder, sha256_file, write_bytes, write_text
from pathfinder.core.hub import CARD

SIGNATURE, KEY = "model.sig", "model.pem"
ADDED = (CARD, SIGNATURE, KEY)
"""The files that publishing adds to the model's folder; the card replaces the model's card without results."""
PREPARED = Path(".pathfinder/publish")
EXPORT = Path(DESCRIPTION).parent
_WEIGHTS = ".safetensors"


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder to upload as a repository of the Hub; ``kind`` is ``model`` or ``dataset``."""

    kind: str
    folder: Path

    def paths(self) -> list[Path]:
        """Every file and every link in the folder."""
        return [path for path in sorted(self.folder.rglob("*")) if not path.is_dir() or path.is_symlink()]

    def files(self) -> Iterator[dict[str, Any]]:
        """Path, bytes and sha256 of each file."""
        for path in self.paths():
            name = path.relative_to(self.folder).as_posix()
            yield {"file": name, "bytes": path.stat().st_size, "sha256": sha256_file(path)}


def require_sound(root: Path, *targets: Path) -> list[str]:
    """The verdict and summary of each target's audit; raises ``DataError`` with the first difference that it finds."""
    summaries = []
    for target in targets:
        report = check(target, root)
        if report.errors:
            more = f" (and {len(report.errors) - 1} more)" if len(report.errors) > 1 else ""
            raise DataError(
                f"{report.errors[0].where}: {report.errors[0].message}{more}; the model is not published. "
                f"`pathfinder lineage check {target.as_posix()}` prints every difference"
            )
        summaries.append(f"{target.as_posix()}: {report.summary()}")
    return summaries


def build_model(root: Path, model: str) -> Repository:
    """The folder of a model, such as ``models/full``, with its card and the signature of its files.

    The weights are hard links if the file system allows it, so the folder takes little space. Raises ``DataError`` if
    the model has no record or no card.
    """
    if not model.startswith(MODELS) or not (root / model).is_dir():
        raise DataError(f"{model}: not a trained model of this project; name one such as models/full")
    lineage = read_lineage(root, model)
    text, target = card(lineage), root / PREPARED / Path(model).name / "model"
    with atomic_folder(target) as folder:
        shutil.copytree(root / model, folder, dirs_exist_ok=True, copy_function=_copy)
        write_text(folder / CARD, f"{text}\n{_add_signature(lineage, folder)}\n")
    return Repository("model", target)


def build_data(root: Path, model: str) -> Repository:
    """The folder of the exported training data, with one card for all its forms.

    Raises ``DataError`` if the export has no record or no card.
    """
    text, target = data_card(root), root / PREPARED / Path(model).name / "data"
    with atomic_folder(target) as folder:
        shutil.copytree(root / EXPORT, folder, dirs_exist_ok=True)
        for path in folder.glob(f"*/{CARD}"):
            path.unlink()  # the cards of the forms
        write_text(folder / CARD, text)
    return Repository("dataset", target)


def data_card(root: Path) -> str:
    """One card for all forms of the exported data: each form is a configuration, and all share one lineage.

    Raises ``DataError`` if the export has no card or no record.
    """
    cards = {path.parent.name: _parts(path) for path in sorted((root / EXPORT).glob(f"*/{CARD}"))}
    if not cards:
        raise DataError(f"{EXPORT.as_posix()}: has no card; run the stage export")
    headers = {name: header for name, (header, _) in cards.items()}
    first = next(iter(headers.values()))
    configs = [
        {"config_name": name, "data_files": [file | {"path": f"{name}/{file['path']}"} for file in _files_of(header)]}
        for name, header in headers.items()
    ]
    sizes = sorted({size for header in headers.values() for size in header["size_categories"]})
    shared = first | {"pretty_name": "PathFinder training data", "size_categories": sizes, "configs": configs}
    bodies = "\n\n".join(body.strip() for _, body in cards.values())
    section = lineage_section(read_lineage(root, EXPORT.as_posix()), EXPORT.as_posix())
    return f"---\n{yaml.safe_dump(shared, sort_keys=False)}---\n\n{bodies}\n\n{section}"


def _parts(path: Path) -> tuple[dict[str, Any], str]:
    _, header, body = path.read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(header), body


def _files_of(header: Mapping[str, Any]) -> list[dict[str, str]]:
    return [file for config in header["configs"] for file in config["data_files"]]


def _add_signature(lineage: Lineage, folder: Path) -> str:
    """Copy the signature of the model and its key to ``folder``, and say how to verify it.

    Raises ``DataError`` unless it signs exactly the files in ``folder``.
    """
    record = lineage.makers(lineage.target or "")[0].record
    signed = model_of(record.content)
    path = record.path.with_suffix(MODEL_SIGNATURE)
    if signed is None or not path.is_file():
        return "The model is not signed."
    content, keys = path.read_bytes(), trusted_keys(lineage.root)
    files = {file.relative_to(folder).as_posix(): sha256_file(file) for file in folder.rglob("*") if file.is_file()}
    if not verify_model(content, signed[0], files, keys, path.as_posix()):
        return "The model is signed by a key that is not trusted on the machine that published it."
    write_bytes(folder / SIGNATURE, content)
    write_bytes(folder / KEY, keys[parsed(Bundle, content, path.as_posix()).material.public_key.hint])
    return (
        f"{SIGNATURE} signs every file of the model except {', '.join(ADDED)} (OpenSSF Model Signing). The package "
        f"model-signing verifies it. Get the public key from someone you trust and compare it with {KEY}:\n\n"
        f"    model_signing verify key --signature {SIGNATURE} --public_key {KEY} --ignore_unsigned_files ."
    )


def _copy(source: str, target: str) -> str:
    """Copy a file; link it if it holds weights."""
    if source.endswith(_WEIGHTS):
        try:
            os.link(source, target)
            return target
        except OSError:  # another file system
            pass
    shutil.copyfile(source, target)
    return target
