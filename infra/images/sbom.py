"""The bill of materials of an image: CycloneDX 1.6, with the packages of its locks that are installed in it.

Run     python infra/images/sbom.py IMAGE LOCK... > sbom.json

It needs the standard library only, because it runs in images that hold nothing of the project. ``pathfinder lineage
export --format cyclonedx`` describes models in the same format. Source: https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", re.MULTILINE)


def main(image: str, *locks: str) -> None:
    """Print the document; the exit status is 1 if a locked package is missing or has another version."""
    texts = [Path(lock).read_text(encoding="utf-8") for lock in locks]
    try:
        found = [_package(name, version) for text in texts for name, version in _pins(text)]
    except LookupError as error:
        sys.exit(f"{image}: {error.args[0]}")
    json.dump(document(image, found, texts), sys.stdout, indent=1, sort_keys=True)
    print()


def document(image: str, packages: list[dict[str, Any]], locks: list[str]) -> dict[str, Any]:
    """The CycloneDX document as a JSON value; its serial number is made from the text of the locks."""
    digest = hashlib.sha256("".join(locks).encode()).digest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": image, "name": f"pathfinder/{image}"}},
        "components": sorted(packages, key=lambda package: str(package["bom-ref"])),
        "dependencies": [{"ref": image, "dependsOn": sorted(package["bom-ref"] for package in packages)}],
    }


def _pins(lock: str) -> list[tuple[str, str]]:
    """Name and version of each package of a lock that this platform installs."""
    pins = []
    for line in lock.splitlines():
        if match := _PIN.match(line):
            _, _, marker = line.rstrip(" \\").partition(" ; ")
            if not marker or f'"{sys.platform}"' in marker:
                pins.append((match[1], match[2]))
    return pins


def _package(name: str, version: str) -> dict[str, Any]:
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise LookupError(f"{name} {version} of the lock is not installed") from error
    if installed.version != version:
        raise LookupError(f"{name} has version {installed.version}; the lock has {version}")
    reference = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }
    if "License-Expression" in installed.metadata:
        entry["licenses"] = [{"expression": installed.metadata["License-Expression"]}]
    return entry


if __name__ == "__main__":
    main(*sys.argv[1:])
