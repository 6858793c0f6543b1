"""Small random models and tokenizers for tests, and the published way to ask them: one stand-alone prompt at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from pathfinder.core import prompts
from pathfinder.tree.passes import Prompter, Query
from pathfinder.world.tiny import build_tokenizer

CHATML = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEXT = [
    "First we add 5 + 7 = 12.\n\nThen\n\n we have 12 apples.\n\n\nCurrent Step: so Math reasoning: ",
    "Let x = 3.\n\n# Answer\n\n12. Hence , Consistency: , Correctness:  Question: what is $x^2$?\n\n",
    prompts.SYSTEM_TRAINING,
    prompts.SYSTEM_PRMBENCH,
]


@functools.cache
def _plain_core(texts: tuple[str, ...], size: int) -> str:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    core.train_from_iterator(texts, trainer)
    return core.to_str()


def plain_tokenizer(texts: Sequence[str] = (), size: int = 480) -> PreTrainedTokenizerFast:
    """A byte-level BPE of ``size`` tokens learned on the prompts and ``texts``, that cuts as Qwen's does.

    It has no prompt chunks and no label tokens yet.
    """
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_str(_plain_core((*_TEXT, *texts), size)),
        eos_token="<|im_end|>",  # noqa: S106
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def world_tokenizer() -> PreTrainedTokenizerFast:
    """The small world's tokenizer: the fixed prompt strings are single tokens."""
    return build_tokenizer()


def small_model(
    tokenizer: PreTrainedTokenizerFast, dtype: torch.dtype = torch.float32, seed: int = 0, rows: int | None = None
) -> Any:
    """A random Qwen2 (two layers, grouped keys) with weights large enough for attention to matter."""
    config = Qwen2Config(
        vocab_size=rows if rows is not None else len(tokenizer) + 16,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=0.2,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen2ForCausalLM(config)
    model.config._attn_implementation = "sdpa"
    return model.to(dtype).eval()


@pytest.fixture
def exact_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """RMSNorm in the model's own precision; transformers computes it in float32 even in a float64 model."""

    def forward(self: Any, hidden: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        scaled: torch.Tensor = self.weight * (hidden * scale)
        return scaled

    monkeypatch.setattr(Qwen2RMSNorm, "forward", forward)


def separate_prompt(
    tokenizer: PreTrainedTokenizerFast, prompter: Prompter, query: Query, tokens: Sequence[str]
) -> list[int]:
    """The stand-alone prompt of one step, rendered and encoded by the chat template itself."""
    user, answer = prompter.turns(query, tokens)
    turns = [{"role": "user", "content": user}, {"role": prompter.preset.answer_role, "content": answer}]
    ids: Any = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False)
    return list(ids)


def separate_logits(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    prompter: Prompter,
    query: Query,
    given: Sequence[bool],
    asked: Sequence[int],
) -> torch.Tensor:
    """Logits of one stand-alone prompt one token before each ``<extra>``: (asked, vocabulary). Batch one, no tree."""
    tokens = [prompts.GOOD if positive else prompts.BAD for positive in given]
    tokens += [prompts.MASK] * (asked[-1] + 1 - len(tokens))
    ids = torch.tensor([separate_prompt(tokenizer, prompter, query, tokens)], device=model.device)
    places = (ids[0] == prompter.ids.mask).nonzero().flatten() - 1
    assert len(places) == len(asked)
    logits: torch.Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, places]
    return logits
