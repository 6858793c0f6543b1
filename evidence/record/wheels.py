"""The files of installed packages: a digest of each package's RECORD, and the loaded files that differ from it.

An installer writes RECORD, which has the sha256 of every file of a package. Python also runs lines of ``.pth`` files
and the modules ``sitecustomize`` and ``usercustomize`` when it starts.
"""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path

from ground.io import sha256_file, sha256_of

_HASH = b",sha256="
_OF_INSTALLER = re.compile(
    rb"\.\./|__editable__|[^/]+\.dist-info/(INSTALLER|REQUESTED|direct_url\.json|uv_[a-z]+\.json),"
)
"""Lines about files that differ between two installations of one wheel."""
_AT_START = ("sitecustomize", "usercustomize")
_UNSURE = " (where packages have no RECORD)"


def may_be_sound(name: str) -> bool:
    """True for a file that no package has in an environment where that happens without an edit."""
    return name.startswith("_virtualenv.") or name.endswith(_UNSURE)


def installed_wheels() -> dict[str, str]:
    """Half of the sha256 of the lines in each installed package's RECORD, by the package's name."""
    return {name: sha256_of(b"\n".join(sorted(lines)))[:32] for name, lines in _records().items()}


def edited_files() -> dict[str, list[str | None]]:
    """Files that this process ran and that differ from a package's RECORD: the sha256 there, and the sha256 now.

    The former is ``None`` for a file that Python ran at its start and that no package has.
    """
    stated = {file: sha256 for lines in _records().values() for file, sha256 in map(_parsed, lines)}
    found: dict[str, list[str | None]] = {}
    for file, name in sorted(_loaded().items()):
        expected = stated.get(name.encode())
        is_own = name.startswith("__editable__")  # the record names the modules that it leads to
        if is_own or (expected is None and file.suffix != ".pth" and file.stem not in _AT_START):
            continue
        if (now := sha256_file(file)) != expected:
            found[name if expected or _has_records(file.parent) else f"{name}{_UNSURE}"] = [expected, now]
    return found


def _has_records(folder: Path) -> bool:
    """True if an installer wrote RECORD for every package in a folder."""
    packages = [*folder.glob("*.dist-info"), *folder.glob("*.egg-info")]
    return bool(packages) and all((package / "RECORD").is_file() for package in packages)


def _folders() -> list[Path]:
    return [Path(name) for name in dict.fromkeys(sys.path) if os.path.isabs(name) and os.path.isdir(name)]


def _records() -> dict[str, list[bytes]]:
    """The lines of RECORD by the package's name; of two packages, the first on the path counts."""
    found: dict[str, list[bytes]] = {}
    for folder in _folders():
        for file in sorted(folder.glob("*.dist-info/RECORD")):
            name = re.sub(r"[-_.]+", "-", file.parent.name.partition("-")[0]).lower()
            lines = file.read_bytes().splitlines() if name not in found else []
            found.setdefault(name, [line for line in lines if _HASH in line and not _OF_INSTALLER.match(line)])
    return found


def _parsed(line: bytes) -> tuple[bytes, str]:
    name, _, rest = line.rpartition(_HASH)
    return name.strip(b'"'), base64.urlsafe_b64decode(rest.partition(b",")[0] + b"==").hex()


def _loaded() -> dict[Path, str]:
    """The loaded modules of packages, ``.pth`` files, and modules that Python runs at its start, with their names."""
    folders = [folder for folder in _folders() if any(folder.glob("*.dist-info"))]
    found = {file: file.name for folder in folders for file in folder.glob("*.pth")}
    for name, module in [*sys.modules.items()]:
        file = Path(str(getattr(module, "__file__", None) or ""))
        folder = next((folder for folder in folders if file.is_relative_to(folder)), None)
        if (folder is not None or name in _AT_START) and file.is_file():
            found[file] = file.relative_to(folder).as_posix() if folder is not None else file.name
    return found
