"""The tokenizer of every saved model: transformers, the project and tokenizers read the same ids."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ground.io import DataError, digest_of, read_json
from pathfinder.core.prompts import assistant_turn, user_turn
from pathfinder.models.tokens import load_tokenizer, save_tokenizer
from tests.support.models import plain_tokenizer, small_model
from world.corpus import renew_tokenizer
from world.story import WORLDS
from world.tiny import build_tokenizer

WIDE = next(iter(WORLDS["wide"].values())).language
SHIPPED = ("data/models/base", "data/models/judge", "pathfinder/demo_model")
ODD = (
    "123 (12) 3) a12)",
    "e\u0301 \u2460\u06f3 12,345.60",
    " \n\r\n\t 7 \n\n\n8",
    "it's <extra> x<|im_end|>\n",
    "",
    "  57+ 8=65",
)


@pytest.fixture(scope="module")
def texts(root: Path) -> list[str]:
    """100 texts: prompts of the PRM on steps of the shipped world, and texts of other kinds."""
    marks = [("Math reasoning", "<extra>"), ("Consistency", "<+>")]
    rows = read_json(root / "data/processbench/olympiadbench.json")
    turns = [
        f"{user_turn(row['problem'])}\n{assistant_turn(row['steps'][:number], step, marks)}"
        for row in rows
        for number, step in enumerate(row["steps"])
    ]
    return [*turns[: 100 - len(ODD)], *ODD]


def readings(folder: Path, texts: list[str]) -> list[list[list[int]]]:
    """The ids of the texts by transformers, by the project and by tokenizers."""
    auto, own = AutoTokenizer.from_pretrained(folder, trust_remote_code=False), load_tokenizer(folder)
    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [
        [auto.encode(text) for text in texts],
        [own.encode(text, add_special_tokens=False) for text in texts],
        [encoded.ids for encoded in file.encode_batch(texts, add_special_tokens=False)],
    ]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_reader_reads_a_shipped_model_alike(root: Path, texts: list[str], name: str) -> None:
    transformers, own, file = readings(root / name, texts)
    assert transformers == own == file
    assert len(file) == 100


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_has_the_tokenizer_of_the_present_code(root: Path, name: str, tmp_path: Path) -> None:
    again = Path(shutil.copytree(root / name, tmp_path / "model"))
    renew_tokenizer(again, WIDE)
    for file in (root / name).iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes(), file


def test_the_ids_are_those_that_the_shipped_weights_learnt(texts: list[str]) -> None:
    """The digest is of the ids that the tokenizer of their training gave."""
    tokenizer = build_tokenizer(WIDE)
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts[: -len(ODD)]]
    assert sum(map(len, ids)) > 5000
    assert digest_of(ids) == "d5910870aeeaf4388def21649d883185b0a84c4f7ea3731f3202c6e9533e1c4f"


@pytest.mark.parametrize("make", [build_tokenizer, plain_tokenizer])
def test_every_reader_reads_a_saved_model_alike(
    make: Callable[[], PreTrainedTokenizerFast], texts: list[str], tmp_path: Path
) -> None:
    """Also after loading and saving again, and in words that transformers 4 knows."""
    tokenizer = make()
    for folder in (tmp_path / "one", tmp_path / "two"):
        small_model(tokenizer).config.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
        transformers, own, file = readings(folder, texts)
        assert transformers == own == file
        settings = read_json(folder / "tokenizer_config.json")
        assert settings["tokenizer_class"] in ("Qwen2Tokenizer", "PreTrainedTokenizerFast")
        assert not {"extra_special_tokens", "backend", "is_local"} & settings.keys()
        tokenizer = load_tokenizer(folder)


def test_a_tokenizer_that_transformers_reads_otherwise_is_neither_saved_nor_loaded(tmp_path: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*alphabet, "57"])}
    core = Tokenizer(models.BPE(vocabulary, [("5", "7")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="!")  # type: ignore[no-untyped-call]  # noqa: S106
    small_model(plain_tokenizer()).config.save_pretrained(tmp_path)
    with pytest.raises(DataError, match="reads this tokenizer as a Qwen2Tokenizer, which splits texts differently"):
        save_tokenizer(tokenizer, tmp_path)
    with pytest.raises(DataError, match="save it as a Qwen2Tokenizer"):
        load_tokenizer(tmp_path)
