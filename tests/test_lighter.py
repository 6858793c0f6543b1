"""The forks of the tests leave out work of libraries, and no value changes."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prefect.logging.configuration import DEFAULT_LOGGING_SETTINGS_PATH
from prefect.settings import Settings, base

from tests.support.lighter import read_loggers, variables_of


def groups_in(settings: Any) -> Iterator[Any]:
    yield settings
    for name in type(settings).model_fields:
        if isinstance(inner := getattr(settings, name), base.PrefectBaseSettings):
            yield from groups_in(inner)


def test_settings_have_the_variables_that_prefect_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has only the other function, so Prefect's own comes from its file."""
    spec = importlib.util.find_spec(base.__name__)
    assert spec is not None
    assert spec.loader is not None
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    theirs = own.PrefectBaseSettings.to_environment_variables
    monkeypatch.setattr(own, "PrefectBaseSettings", base.PrefectBaseSettings)
    told = {"API_URL": "http://a/api", "API_AUTH_STRING": "a:b", "CLIENT_CUSTOM_HEADERS": '{"a": "b"}', "API_KEY": "k"}
    for name, value in told.items():
        monkeypatch.setenv(f"PREFECT_{name}", value)
    every = list(groups_in(Settings()))
    assert len(every) > 40
    for settings, choice in itertools.product(every, itertools.product((False, True), repeat=3)):
        assert list(variables_of(settings, *choice).items()) == list(theirs(settings, *choice).items())


def test_the_forks_read_the_loggers_as_prefect_does() -> None:
    text = DEFAULT_LOGGING_SETTINGS_PATH.read_text()
    assert read_loggers(text) == yaml.safe_load(text)
