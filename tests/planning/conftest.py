"""The parameters of a profile, rendered once: its files take a tenth of a second to parse, and many tests need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pathfinder.planning import profiles

_render = profiles.render
_rendered: dict[tuple[object, ...], str] = {}


def _once(root: Path, name: str) -> str:
    """As ``render``, which depends on the name and the files of the folder only."""
    files = ((path.name, path.read_bytes()) for path in sorted((root / profiles.FOLDER).glob("*.yaml")))
    key = (name, *files)
    if key not in _rendered:
        _rendered[key] = _render(root, name)
    return _rendered[key]


@pytest.fixture(autouse=True)
def rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "render", _once)
