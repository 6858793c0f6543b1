"""An offline audit of the locked packages: exact versions, hashes, no other source, known licences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.licences import licences

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted([*(ROOT / "infra").glob("*.lock"), *(ROOT / "infra/locks").glob("*.lock")])
_LINE = re.compile(r"^([a-z0-9._-]+==[^\s;\\]+|[a-z0-9._-]+ @ https://\S+)( ; [^\\\n]+)?( \\)?$")
_HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
KNOWN = re.compile(r"\b(MIT|MIT-0|Apache|BSD|0BSD|ISC|MPL|Mozilla|PSF|Python Software Foundation|Zope|Unlicense|CC0)\b")
"""Licences that ask for no source code of a program that uses the package; of a choice, one is enough."""
OTHER = {
    "asyncssh": "EPL-2.0 or GPL-2.0-or-later",
    "grandalf": "GPL-2.0 or EPL-1.0",
    "mlcroissant": "none in its metadata",
    "pebble": "LGPL-3.0",
    "pygit2": "GPL-2.0 with a linking exception",
    "sigstore-models": "MIT, by its licence file; none in its metadata",
    "text-unidecode": "Artistic or GPL-2.0-or-later",
}
"""Packages whose metadata name another licence or none, with what their files say. The project installs and does not
distribute them."""


@pytest.mark.parametrize("lock", LOCKS, ids=[lock.stem for lock in LOCKS])
def test_every_line_of_a_lock_is_an_exact_version_with_hashes(lock: Path) -> None:
    hashes, package = 1, ""
    for line in lock.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if _HASH.fullmatch(line):
            hashes += 1
            continue
        assert _LINE.fullmatch(line), f"{lock.name}: {line}"
        assert hashes, f"{lock.name}: {package} has no hash"
        hashes, package = 0, line
    assert hashes, f"{lock.name}: {package} has no hash"


def test_every_locked_package_has_a_known_licence() -> None:
    found = dict(licences())
    assert len(found) > 200
    unknown = {name: licence for name, licence in found.items() if not KNOWN.search(licence)}
    assert unknown.keys() == OTHER.keys(), unknown
