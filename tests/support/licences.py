"""The licence of every locked package that is installed: python -m tests.support.licences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LOCKS = (ROOT / "infra/locks/cpu.lock", ROOT / "infra/requirements-dev.lock")
_PIN = re.compile(r"^([a-z0-9._-]+)==", re.MULTILINE)


def licences() -> Iterator[tuple[str, str]]:
    """Each locked package that is installed, with the licence that its metadata name; empty if they name none."""
    names = sorted({name for lock in LOCKS for name in _PIN.findall(lock.read_text(encoding="utf-8"))})
    for name in names:
        try:
            found: Any = metadata.metadata(name)
        except metadata.PackageNotFoundError:  # for another platform
            continue
        classifiers = [text for text in found.get_all("Classifier") or () if text.startswith("License ::")]
        stated = found.get("License-Expression") or "; ".join(text.rpartition(":: ")[2] for text in classifiers)
        yield name, stated or (found.get("License") or "").partition("\n")[0]


if __name__ == "__main__":
    for package, licence in licences():
        print(f"{package:<40} {licence}")
