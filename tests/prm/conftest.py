"""The model and the server that the tests of the server and its examples share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prm.test_scoring import save_prm
from tests.support.scoring_server import Server, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_prm(folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[str, Server]]:
    made = Server(folder)
    with serving(made) as address:
        yield address, made
