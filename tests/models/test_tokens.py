from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from ground.io import DataError
from pathfinder.core import prompts
from pathfinder.models import tokens
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
