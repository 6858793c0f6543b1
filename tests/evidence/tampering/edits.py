"""Ways to change a finished project, which the tamperings share."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from evidence.dvc.history import read_lock
from evidence.record.ledger import LEDGER
from evidence.record.reading import read_records
from ground.hashing import digest_path

Tampering = Callable[[Path], str]
"""Changes a project and returns what an error must say."""
STORE = "storage"
"""The remote that is a folder."""
OUTS = ("models/full", "models/plain", "metrics/train/full.json", "artifacts/raw")
STAGES = ("download", "train@full", "train@plain")


def rewrite(path: Path, text: str) -> None:
    """Replace a file that may be read-only."""
    path.unlink()
    path.write_text(text, encoding="utf-8")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, (path, old)
    rewrite(path, text.replace(old, new))


def edit_lock(project: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    edit(lock["stages"])
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))


def entry(stages: dict[str, Any], stage: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(e for k in ("deps", "outs") for e in stages[stage].get(k, ()) if e["path"] == path)
    return found


def claim_now(project: Path, *paths: str) -> None:
    """Make dvc.lock and data.dvc agree with the files, as someone who covers tracks would."""

    def edit(stages: dict[str, Any]) -> None:
        for body in stages.values():
            for claim in [*body["deps"], *body["outs"]]:
                if not paths or claim["path"] in paths:
                    digest = digest_path(project / claim["path"])
                    claim |= {"md5": digest.md5, "size": digest.size}
                    claim |= {"nfiles": len(digest.files)} if digest.is_folder else {}

    edit_lock(project, edit)


def objects(project: Path, path: str) -> tuple[str, str]:
    """The md5 of an out, and of its first file."""
    md5 = next(stage.outs[path] for stage in read_lock(project).values() if path in stage.outs)
    files = digest_path(project / path).files
    return md5, next(iter(files.values())).md5 if files else md5


def record_of(project: Path, stage: str) -> Path:
    return read_records(project, stage)[0].path


def forge(project: Path, stage: str, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """Replace the newest record of a stage by an edited one that has the right name for its content."""
    path = record_of(project, stage)
    content = json.loads(path.read_text())
    edit(content)
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    path.unlink()
    path = path.with_name(f"{hashlib.sha256(text.encode()).hexdigest()}.json")
    path.write_text(text)
    return path


def edit_ledger(project: Path, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    """Edit the lines of the ledger and chain them anew, as anyone can do who may write here."""
    path = project / LEDGER
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    edit(entries)
    lines: list[str] = []
    for number, body in enumerate(entries, start=1):
        body |= {"number": number, "previous": hashlib.sha256(lines[-1].encode()).hexdigest() if lines else None}
        lines.append(json.dumps(body, sort_keys=True) + "\n")
    rewrite(path, "".join(lines))


def on_file(name: str, harm: Callable[[Path], object]) -> Tampering:
    def tamper(project: Path) -> str:
        harm(project / name)
        return f"{name}: "

    return tamper


def flip(path: Path) -> None:
    """Change one byte and keep size and times."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def link(path: Path) -> None:
    """Move the file or folder away and put a symbolic link to it in its place."""
    away = Path(tempfile.mkdtemp(dir=path.parents[path.parts[::-1].index("project")])) / "away"
    path.rename(away)
    path.symlink_to(away)
