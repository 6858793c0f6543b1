"""The tiny tokenizer and models: ids survive saving and loading, text round-trips, label rows are set."""

from __future__ import annotations

import random
import unicodedata
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from pathfinder.core import prompts
from pathfinder.models.tokens import ChatFrame, label_ids, load_tokenizer
from world import tiny
from world.steps import Habits, write_solution
from world.story import LEVELS, NARROW, sample_problem


@pytest.fixture(scope="module")
def saved(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    model = tiny.build_model(tokenizer, hidden=32, layers=2, heads=2, feed=64, seed=1)
    tiny.seed_label_rows(model, tokenizer)
    tiny.save(model, tokenizer, folder)
    return folder


def _prompt() -> str:
    rng = random.Random(3)
    problem = sample_problem(rng, LEVELS["omnimath"])
    steps = [w.text for w in write_solution(problem, rng, Habits(misread=0.5, slip=0.3, idle=0.3))]
    return prompts.judge_prompt(problem.text, steps[:-1], steps[-1]) + prompts.policy_prompt(problem.text, steps)


def test_ids_survive_a_round_trip_through_every_loader(tokenizer: PreTrainedTokenizerFast, saved: Path) -> None:
    expected = tokenizer.encode(_prompt(), add_special_tokens=False)
    for again in (load_tokenizer(saved), PreTrainedTokenizerFast.from_pretrained(saved)):
        assert again.encode(_prompt(), add_special_tokens=False) == expected
        assert again.get_vocab() == tokenizer.get_vocab()


def test_numbers_words_and_prompt_chunks_are_single_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    words = [f" {word}" for word in (*NARROW.names, *NARROW.nouns, *(w for verb in NARROW.signs for w in verb.split()))]
    numbers = [f"{before}{n}" for n in range(100) for before in ("", " ")] + [f"{n})" for n in range(1, 10)]
    texts = {*words, *numbers, tiny.YES, tiny.NO, "\n\n", *tiny.prompt_chunks()}
    assert len({tiny.token_id(tokenizer, text) for text in texts}) == len(texts)
    assert len(tokenizer.encode("\n\n1) buys", add_special_tokens=False)) == len(["\n\n", "1)", " buys"])


def test_two_words_are_not_a_single_token(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="'apples pears' is 2 tokens"):
        tiny.token_id(tokenizer, "apples pears")


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
@example("cafe\u0301 12")
def test_any_text_round_trips_in_its_composed_form(text: str) -> None:
    tokenizer = _built()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == unicodedata.normalize("NFC", text)


@cache
def _built() -> PreTrainedTokenizerFast:
    return tiny.build_tokenizer()


def test_the_vocabulary_repeats(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.backend_tokenizer.to_str() == _built().backend_tokenizer.to_str()


def test_chat_template_has_no_default_system_message(saved: Path) -> None:
    tokenizer = load_tokenizer(saved)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    ChatFrame(tokenizer)  # refuses a template that changes its turns


def test_label_rows_start_from_yes_no_and_padding(saved: Path) -> None:
    tokenizer = load_tokenizer(saved)
    before = len(tokenizer)
    ids = label_ids(tokenizer)
    assert len(tokenizer) == before, "the label tokens are in the vocabulary already"
    model = Qwen2ForCausalLM.from_pretrained(saved, dtype=torch.float32)
    rows = model.model.embed_tokens.weight
    assert torch.equal(rows[ids.good], rows[tiny.token_id(tokenizer, tiny.YES)])
    assert torch.equal(rows[ids.bad], rows[tiny.token_id(tokenizer, tiny.NO)])
    assert torch.equal(rows[ids.mask], rows[tiny.token_id(tokenizer, tiny.END_OF_TEXT)])
    assert model.config.tie_word_embeddings


def test_initial_weights_depend_only_on_the_seed(tokenizer: PreTrainedTokenizerFast) -> None:
    sizes = {"hidden": 32, "layers": 1, "heads": 2, "feed": 64}
    one = tiny.build_model(tokenizer, **sizes, seed=1)
    torch.rand(7)
    same, other = tiny.build_model(tokenizer, **sizes, seed=1), tiny.build_model(tokenizer, **sizes, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.model.embed_tokens.weight, other.model.embed_tokens.weight)
