"""Small real wheels and a package index of them, so that tests install packages without a network."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """A pure Python wheel of these files (path: text)."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*content, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in content.items():
            archive.writestr(file, text)
    return path


def lock(wheels: Iterable[Path]) -> str:
    """A lock file that names exactly these wheels."""
    lines = []
    for path in sorted(wheels):
        name, version, *_ = path.name.split("-")
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    return "".join(lines)


def index(folder: Path, wheels: Iterable[Path]) -> str:
    """Write a package index below ``folder`` and return its URL."""
    links: dict[str, list[str]] = {}
    for path in wheels:
        link = f'<a href="{path.as_uri()}">{quote(path.name)}</a><br>\n'
        links.setdefault(path.name.partition("-")[0].replace("_", "-"), []).append(link)
    for name, lines in links.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "index.html").write_text(
            "".join(["<!DOCTYPE html><html><body>\n", *lines, "</body></html>\n"])
        )
    return folder.as_uri()
