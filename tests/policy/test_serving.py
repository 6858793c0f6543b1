"""Which GPUs the policy's servers and the workers of a search get."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, read_json, write_json
from pathfinder.models import cards
from pathfinder.policy import policy as serving
from tests.support.searches import SERVER, settings


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The cards of every server that is started, on a machine with four."""
    found: list[list[str]] = []

    @contextmanager
    def start(
        _folder: Path, _name: str, longest: int, _: Any, _logs: Path, mine: Sequence[cards.Card]
    ) -> Iterator[Any]:
        assert longest == min(2048 + 5 * 64, read_json(serving.POLICY / "config.json")["max_position_embeddings"])
        found.append([card.name for card in mine])
        yield ["http://127.0.0.1:1/v1"]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cards.SIMULATED, "4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(serving, "vllm_servers", start)
    write_json(serving.POLICY / "config.json", {"max_position_embeddings": 4096})
    return found


def open_search(workers: int = 0, each: int = 1, **changes: Any) -> tuple[tuple[str, ...], int, list[str]]:
    """The servers' addresses, the number of workers and the cards that are left for them."""
    held: list[int] = []

    def check() -> None:
        held.append(len(cards.available()))

    with serving.policy_servers(settings(**changes), workers, each, check) as (urls, count):
        assert held, "memory is checked before a server starts"
        return urls, count, [card.name for card in cards.available()]


def test_servers_and_workers_have_cards_of_their_own(started: list[list[str]]) -> None:
    vllm: dict[str, Any] = {"engine": "vllm", "vllm": SERVER | {"replicas": 1, "tensor_parallel": 2}}
    urls, count, left = open_search(**vllm)
    assert (len(urls), count, left, started) == (1, 2, ["2", "3"], [["0", "1"]])
    assert open_search(1, 1, **vllm)[1:] == (1, ["2"])
    assert open_search(1, 0, **vllm)[1:] == (1, [])


def test_a_policy_elsewhere_or_in_the_workers_leaves_them_all_cards(started: list[list[str]]) -> None:
    assert open_search(engine="openai", base_url="http://there/v1") == (("http://there/v1",), 4, ["0", "1", "2", "3"])
    assert open_search(engine="transformers") == ((), 4, ["0", "1", "2", "3"])
    assert started == []


def test_one_card_is_shared_if_the_profile_says_so(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with pytest.raises(DataError, match=r"need 2 GPUs, 1 are visible.*search\.shared_card true"):
        open_search(engine="vllm")
    write_json(serving.POLICY / "config.json", {"max_position_embeddings": 1024})
    urls, count, left = open_search(engine="vllm", shared_card=True)
    assert (len(urls), count, left, started) == (1, 1, ["2"], [["2"]])
