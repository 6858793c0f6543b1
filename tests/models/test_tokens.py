from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ground.io import DataError
from pathfinder.core import prompts
from pathfinder.models import tokens
from tests.conftest import ROOT
from tests.support.models import plain_tokenizer, small_model, world_tokenizer

Make = Callable[[], PreTrainedTokenizerFast]
SPECIALS = ("<|im_start|>", "<|im_end|>", "<+>", "<->", "<extra>")


@pytest.mark.parametrize("make", [plain_tokenizer, world_tokenizer])
def test_ids_survive_saving_with_a_qwen2_configuration(make: Make, tmp_path: Path) -> None:
    tokenizer = make()
    tokens.add_label_tokens(tokenizer)
    tokenizer.save_pretrained(tmp_path)
    small_model(tokenizer).config.save_pretrained(tmp_path)
    again = tokens.load_tokenizer(tmp_path)
    text = "Tom has 57 apples, 57+ 8=65.\n\n\\boxed{65} <+> <extra>"
    assert again.encode(text, add_special_tokens=False) == tokenizer.encode(text, add_special_tokens=False)
    assert again.decode(again.encode(text, add_special_tokens=False)) == text


def test_a_tokenizer_without_template_is_refused(tmp_path: Path) -> None:
    tokenizer = plain_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(DataError, match="chat template"):
        tokens.load_tokenizer(tmp_path)
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        tokens.load_tokenizer(tmp_path / "absent")


def test_missing_label_tokens_get_ids_in_one_order() -> None:
    tokenizer = plain_tokenizer()
    before = len(tokenizer)
    assert tokens.label_ids(tokenizer) == tokens.LabelIds(before, before + 1, before + 2)
    assert tokens.add_label_tokens(tokenizer) == []


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "a <+> b <-> <extra><extra> <|im_end|>",
        "<<+>+>",
        "<|im_<|im_end|>end|>",
        "<ex<extra>tra>",
        "  \n ",
        "",
    ],
)
def test_neutralised_text_contains_no_special_token(text: str) -> None:
    clean = tokens.neutralise(text, SPECIALS)
    assert not any(special in clean for special in SPECIALS)
    assert clean.replace("\u2060", "") == text
    assert (clean == text) == (not any(special in text for special in SPECIALS))
    tokenizer = plain_tokenizer()
    tokens.add_label_tokens(tokenizer)
    special_ids = {tokenizer.convert_tokens_to_ids(special) for special in SPECIALS}
    assert not special_ids & set(tokenizer.encode(clean, add_special_tokens=False))


def test_lone_surrogates_become_readable() -> None:
    assert tokens.neutralise("a\ud800b \U0001f600 é", SPECIALS) == "a\ufffdb \U0001f600 é"


def test_prompt_chunks_are_not_special_strings() -> None:
    found = tokens.special_strings(world_tokenizer())
    assert set(prompts.LABEL_TOKENS) <= set(found)
    assert "<|im_end|>" in found
    assert not any("Current Step" in text for text in found)


@pytest.mark.parametrize("make", [plain_tokenizer, world_tokenizer])
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_the_frame_renders_what_the_template_renders(make: Make, role: str) -> None:
    tokenizer = make()
    tokens.add_label_tokens(tokenizer)
    pairs = [("  lead \n\n", "\n\nx Current Step: 5 <extra>, Consistency: <extra>"), ("{{a}}", "é\u2060<+>"), ("", "")]
    frame = tokens.ChatFrame(tokenizer, role)
    for (user, answer), ids in zip(pairs, frame.encode(pairs), strict=True):
        turns = [{"role": "user", "content": user}, {"role": role, "content": answer}]
        assert ids.tolist() == tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)


def test_a_template_that_trims_is_refused() -> None:
    tokenizer = plain_tokenizer()
    tokenizer.chat_template = json.loads("\"{% for m in messages %}{{ m['content'] | trim }}\\n{% endfor %}\"")
    with pytest.raises(DataError, match="verbatim"):
        tokens.ChatFrame(tokenizer)


def test_a_template_that_writes_the_date_is_refused() -> None:
    """A model would be trained on one date and read on another."""
    tokenizer = plain_tokenizer()
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}" + str(tokenizer.chat_template)
    with pytest.raises(DataError, match=r"writes today's date .*; write a fixed date into chat_template\.jinja"):
        tokens.ChatFrame(tokenizer)


DEMO = ROOT / "pathfinder/demo_model"
TEXTS = (
    "Tom has 57 apples, 57+ 8=65.\n\n\\boxed{65} <+> <extra>",
    "caf\u00e9 cafe\u0301 \u6570\u5b66 <|im_end|>\x00 1234567890 \u2028 It's",
    " \t \n\n  12) Current Step: so <-><|im_start|>assistant\n",
)


def test_a_plain_tokenizer_is_the_one_of_transformers() -> None:
    loaders: tuple[Any, ...] = (tokens.inference_tokenizer, tokens.load_tokenizer)
    own, theirs = (load(DEMO) for load in loaders)
    assert type(own).__name__ == "PlainTokenizer"
    assert own.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert (own.name_or_path, own.chat_template) == (theirs.name_or_path, theirs.chat_template)
    assert (own.eos_token_id, len(own), own.get_vocab()) == (theirs.eos_token_id, len(theirs), theirs.get_vocab())
    assert repr(own.added_tokens_decoder) == repr(theirs.added_tokens_decoder)
    assert tokens.special_strings(own) == tokens.special_strings(theirs)
    assert tokens.label_ids(own) == tokens.label_ids(theirs)
    for text in TEXTS:
        ids = own.encode(text, add_special_tokens=False)
        assert ids == theirs.encode(text, add_special_tokens=False)
        for skip in (True, False):
            more = {"skip_special_tokens": skip, "clean_up_tokenization_spaces": False}
            assert own.decode(ids, **more) == theirs.decode(ids, **more)
        turns = [
            {"role": "system", "content": text},
            {"role": "user", "content": "a"},
            {"role": "x", "content": "{{b}}"},
        ]
        for prompt in (True, False):
            more = {"tokenize": False, "add_generation_prompt": prompt}
            assert own.apply_chat_template(turns, **more) == theirs.apply_chat_template(turns, **more)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("chat_template.jinja", "{% for", "{{ bos_token }}{% for"),
        ("config.json", '"model_type": "qwen2"', '"model_type": "llama"'),
        ("tokenizer_config.json", '"add_prefix_space": null', '"add_prefix_space": true'),
        ("tokenizer_config.json", '"bos_token": null', '"bos_token": "<|im_start|>"'),
        ("tokenizer_config.json", '"Qwen2Tokenizer"', '"PreTrainedTokenizerFast"'),
        ("tokenizer_config.json", '"model_max_length"', '"split_special_tokens": true, "model_max_length"'),
        ("tokenizer_config.json", '"eos_token": "<|im_end|>"', '"eos_token": "the"'),
        ("tokenizer.json", '"type": "NFC"', '"type": "NFKC"'),
        ("tokenizer.json", '"truncation": null', '"truncation": 3'),
        ("tokenizer.json", '"special": true', '"special": false'),
        ("vocab.json", "", "{}"),
    ],
)
def test_a_folder_that_says_more_is_left_to_transformers(file: str, old: str, new: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DEMO, tmp_path / "model"))
    assert isinstance(tokens.inference_tokenizer(folder), tokens.PlainTokenizer)
    path = folder / file
    text = path.read_text() if path.exists() else ""
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert tokens._plain_tokenizer(folder) is None


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"])
def test_broken_files_of_a_tokenizer_are_left_to_transformers(file: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(DEMO, tmp_path / "model"))
    (folder / file).write_text("[")
    with pytest.raises(DataError) as wanted:
        tokens.ChatFrame(tokens.load_tokenizer(folder))
    with pytest.raises(DataError) as found:
        tokens.ChatFrame(tokens.inference_tokenizer(folder))
    assert str(found.value) == str(wanted.value)
