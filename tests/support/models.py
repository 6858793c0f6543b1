"""Small random models and tokenizers, and the published way to score: one separate prompt at a time."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from pathfinder.core import prompts
from pathfinder.tree.passes import Prompter, Query
from world.tiny import build_tokenizer

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
    core.normalizer = normalizers.NFC()
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
    """A byte-level BPE of ``size`` tokens trained on the prompts and ``texts``, with the pre-tokenizer of Qwen.

    It has neither single tokens for the fixed prompt strings nor label tokens.
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
    return copy.deepcopy(_world_tokenizer())


@functools.cache
def _world_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


def sides(hidden: int, inner: int, layers: int, heads: int, key_heads: int, positions: int = 4096) -> dict[str, Any]:
    """The sides of a model, as its configuration names them."""
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": positions,
    }


def qwen_config(tokenizer: PreTrainedTokenizerFast, vocabulary: int, **shape: Any) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        **shape,
    )


def random_qwen(config: Qwen2Config, seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen2ForCausalLM(config)
    model.config._attn_implementation = "sdpa"
    return model.eval()


def small_model(
    tokenizer: PreTrainedTokenizerFast, dtype: torch.dtype = torch.float32, seed: int = 0, rows: int | None = None
) -> Any:
    """A random Qwen2 (two layers, grouped keys) with weights large enough for attention to matter."""
    rows = len(tokenizer) + 16 if rows is None else rows
    config = qwen_config(tokenizer, rows, **sides(32, 48, 2, 4, 2), tie_word_embeddings=False, initializer_range=0.2)
    return random_qwen(config, seed).to(dtype)


def random_decoder(model_type: str, tokenizer: PreTrainedTokenizerFast, **more: Any) -> Any:
    """A random decoder (two layers, grouped keys, any architecture) with weights large enough for attention to matter.

    ``more`` are settings of its configuration.
    """
    shape = sides(32, 48, 2, 4, 2) | {"head_dim": 8, "initializer_range": 0.2, "vocab_size": len(tokenizer) + 16}
    settings = {"tie_word_embeddings": False, "sliding_window": None, "eos_token_id": tokenizer.eos_token_id}
    build: Any = AutoModelForCausalLM.from_config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = build(AutoConfig.for_model(model_type, **shape | settings | more))
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


SIZES = {
    "hidden 256, 4 layers": sides(256, 1024, 4, 4, 4, 8192),
    "hidden 1,024, 8 layers": sides(1024, 2816, 8, 16, 4, 8192),
    "layers of Qwen2.5-0.5B": sides(896, 4864, 24, 14, 2, 8192),
}
"""The models of the speed measurements."""
SMALL = next(iter(SIZES))


def sized_model(tokenizer: PreTrainedTokenizerFast, size: str = SMALL, vocabulary: int | None = None) -> Any:
    """A random Qwen2 for speed measurements with the tokenizer's vocabulary."""
    return random_qwen(qwen_config(tokenizer, vocabulary or len(tokenizer), **SIZES[size], tie_word_embeddings=True))


@contextmanager
def counted_tokens() -> Iterator[list[int]]:
    """The number of tokens, padding included, of every forward pass inside the block."""
    found: list[int] = []

    def count(module: torch.nn.Module, inputs: Any) -> None:
        if isinstance(module, torch.nn.Embedding):
            found.append(inputs[0].numel())

    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield found
    finally:
        handle.remove()


def queries_of(problem: str, steps: Sequence[str]) -> list[Query]:
    return [Query(f"step {t}", problem, tuple(steps[:t]), step) for t, step in enumerate(steps)]


def separate_prompt(
    tokenizer: PreTrainedTokenizerFast, prompter: Prompter, query: Query, tokens: Sequence[str]
) -> list[int]:
    """The separate prompt of one step, rendered and encoded by the chat template itself."""
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
    """Logits of a separate prompt one token before each ``<extra>``: (asked, vocabulary). Batch size one, no tree."""
    tokens = [prompts.GOOD if positive else prompts.BAD for positive in given]
    tokens += [prompts.MASK] * (asked[-1] + 1 - len(tokens))
    ids = torch.tensor([separate_prompt(tokenizer, prompter, query, tokens)], device=model.device)
    places = (ids[0] == prompter.ids.mask).nonzero().flatten() - 1
    assert len(places) == len(asked)
    logits: torch.Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, places]
    return logits


@torch.inference_mode()
def published_rewards(model: Any, tokenizer: Any, prompter: Prompter, queries: Sequence[Query]) -> list[float]:
    """Both passes of every step's own prompt, one prompt at a time, as in the published runners."""
    rewards = []
    for query in queries:
        first = separate_logits(model, tokenizer, prompter, query, (), (0, 1))
        labels = (first[:, prompter.ids.good] >= first[:, prompter.ids.bad]).tolist()
        second = separate_logits(model, tokenizer, prompter, query, labels, (2,))[0]
        rewards.append(second[[prompter.ids.good, prompter.ids.bad]].softmax(-1)[0].item())
    return rewards


def exact_rms_norms(patch: pytest.MonkeyPatch) -> None:
    """RMSNorm in the model's own precision; transformers computes it in float32 even in a float64 model."""

    def forward(self: Any, hidden: Any) -> Any:
        return self.weight * (hidden * (hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).rsqrt())

    patch.setattr(Qwen2RMSNorm, "forward", forward)
