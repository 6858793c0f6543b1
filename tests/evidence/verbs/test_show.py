"""Results as JSON and as text, and rows as tables."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from ground.show import show, table

VALUE = {"a": 1, "b": [{"c": "x\ny"}], "evil": "\x1b[2J"}


def test_json_is_the_value_and_text_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    show(VALUE, as_json=True)
    assert json.loads(capsys.readouterr().out) == VALUE
    show(VALUE, as_json=False)
    text = capsys.readouterr().out
    assert "\x1b" not in text, "no colours outside a terminal, and none from the data"
    assert "a: 1\n" in text
    assert "| x\n" in text


def test_lines_are_read_only_for_text(capsys: pytest.CaptureFixture[str]) -> None:
    show(VALUE, as_json=False, lines=["one", "two\x07"])
    assert capsys.readouterr().out == "one\ntwo\\x07\n"

    lines = iter(["one"])
    show(VALUE, as_json=True, lines=lines)
    assert list(lines) == ["one"]
    assert json.loads(capsys.readouterr().out) == VALUE


def test_a_terminal_has_colours_unless_it_is_told_not_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show({"a": 1}, as_json=False)
    assert capsys.readouterr().out == "\x1b[1ma\x1b[0m: 1\n"
    monkeypatch.setenv("NO_COLOR", "1")
    show({"a": 1}, as_json=False)
    assert capsys.readouterr().out == "a: 1\n"


def test_a_table_aligns_its_columns_and_shortens_digests() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "x", "n": 12345, "sha": "a" * 64, "ok": True},
        {"name": "long", "n": None, "sha": "", "ok": False},
    ]
    assert list(table(rows)) == [
        "name       n  sha            ok",
        "x     12,345  aaaaaaaaaaaa  yes",
        "long       –  –              no",
    ]
    assert list(table([])) == []
