"""Fixtures of the world's tests: a small corpus without a policy, and the tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.stories import SMALL, no_policy
from world import tiny
from world.formats import write_corpus


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the tiny models."""
    return tiny.build_tokenizer()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus; tests must not change it."""
    folder = tmp_path_factory.mktemp("world")
    write_corpus(folder, SMALL, no_policy)
    return folder
