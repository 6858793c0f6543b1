"""Qwen's and DeepSeek's real tokenizers, rebuilt from Qwen's vocabulary: tokenizer.json and tokenizer_config.json.

Both models use the same 151,643 byte pairs. Their special tokens and chat templates differ; the templates here render
the same text as the published ones for conversations without tools.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ground.io import atomic_folder, write_json, write_text
from pathfinder.core.prompts import LABEL_TOKENS
from tests.campaigns.rehearsal import material

PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
_QWEN_PLAIN = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip
_R1_SPECIAL = ("<｜end▁of▁sentence｜>",)
_R1_PLAIN = ("<｜User｜>", "<｜Assistant｜>")
_R1_BEGIN = "<｜begin▁of▁sentence｜>"
_QWEN_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nSYSTEM<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_R1_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] }}"
    "{% elif message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}"
    "{% else %}{{ '<｜Assistant｜>' + message['content'].split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"
)
SYSTEMS = {
    "qwen": "You are a helpful assistant.",
    "qwen-math": "Please reason step by step, and put your final answer within \\boxed{}.",
    "pathfinder": "Please reason step by step, and put your final answer within \\boxed{}.",
}
"""The system turn that Qwen's templates add to a conversation without one."""


@cache
def tokenizer_folder(kind: str) -> Path:
    """A folder with the tokenizer of ``kind``: qwen, qwen-math, pathfinder or deepseek-r1. Made once."""
    folder = material.cache() / f"tokenizer-{kind}"
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            if kind == "deepseek-r1":
                _write_r1(temporary)
            else:
                _write_qwen(temporary, SYSTEMS[kind], LABEL_TOKENS if kind == "pathfinder" else ())
    return folder


def _write_qwen(folder: Path, system: str, more: tuple[str, ...]) -> None:
    core = _core()
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _QWEN_SPECIAL])
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in _QWEN_PLAIN])
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in more])
    core.save(str(folder / "tokenizer.json"))
    _settings(
        folder,
        add_bos_token=False,
        bos_token=None,
        eos_token="<|im_end|>",  # noqa: S106
        pad_token="<|endoftext|>",  # noqa: S106
        unk_token=None,
        additional_special_tokens=[*_QWEN_SPECIAL[1:], *more],
        tokenizer_class="Qwen2Tokenizer",
        chat_template=_QWEN_TEMPLATE.replace("SYSTEM", system.replace("\\", "\\\\")),
        model_max_length=131072,
    )


def _write_r1(folder: Path) -> None:
    core = _core()
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _R1_SPECIAL])
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in _R1_PLAIN])
    core.add_special_tokens([AddedToken(_R1_BEGIN, special=True, normalized=False)])
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<|EOT|>", "<think>", "</think>")])
    begin = core.token_to_id(_R1_BEGIN)
    core.post_processor = processors.TemplateProcessing(
        single=f"{_R1_BEGIN} $A", pair=f"{_R1_BEGIN} $A {_R1_BEGIN} $B", special_tokens=[(_R1_BEGIN, begin)]
    )
    core.save(str(folder / "tokenizer.json"))
    _settings(
        folder,
        add_bos_token=True,
        add_eos_token=False,
        bos_token=_R1_BEGIN,
        eos_token=_R1_SPECIAL[0],
        pad_token=_R1_SPECIAL[0],
        unk_token=None,
        tokenizer_class="LlamaTokenizerFast",
        chat_template=_R1_TEMPLATE,
        model_max_length=16384,
    )


def _settings(folder: Path, **settings: Any) -> None:
    write_json(folder / "tokenizer_config.json", {"clean_up_tokenization_spaces": False, **settings})


def _core() -> Tokenizer:
    vocabulary, merges = _byte_pairs()
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    core.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.ByteLevel(trim_offsets=False)
    return core


def _byte_pairs() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary in the byte-level alphabet, and its merges: the last pair that is joined into each token."""
    folder = material.cache() / "byte-pairs.json"
    if not folder.exists():
        lines = (line.split() for line in material.qwen_vocabulary().read_bytes().splitlines())
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        letters = _byte_letters()

        def written(token: bytes) -> str:
            return "".join(letters[byte] for byte in token)

        merges = [[written(part) for part in _halves(token, ranks)] for token in ranks if len(token) > 1]
        write_text(folder, json.dumps([{written(token): rank for token, rank in ranks.items()}, merges]))
    vocabulary, merges = json.loads(folder.read_text(encoding="utf-8"))
    return vocabulary, [(left, right) for left, right in merges]


def _halves(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two tokens that are joined last, if only pairs of a lower rank than the token's are joined."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        at = joined.index(min(joined))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def _byte_letters() -> dict[int, str]:
    """The letter of each byte in byte-level vocabularies: printable bytes stay, the others follow from U+0100."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}
