from __future__ import annotations

import importlib
import sys

import pytest

from ground.imports import without


def test_packages_that_nothing_uses_are_imported_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("colorsys", "tabnanny"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with without("tabnanny", later=["colorsys"]):
        function = importlib.import_module("colorsys").rgb_to_hsv
        with pytest.raises(ImportError):
            importlib.import_module("tabnanny")
    assert sys.modules.keys().isdisjoint(("colorsys", "tabnanny"))
    assert function(1, 1, 1) == (0, 0, 1)
    assert "colorsys" in sys.modules


def test_packages_that_are_loaded_already_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = importlib.import_module("colorsys")
    with without("colorsys"):
        assert importlib.import_module("colorsys") is loaded
    assert sys.modules["colorsys"] is loaded
