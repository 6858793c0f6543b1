"""The judge's prompt for one step, in which untrusted text cannot act as a special token."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from pathfinder.core.hub import read_hub_model
from pathfinder.core.labels import HUMAN
from pathfinder.core.params import Preset
from pathfinder.core.prompts import LABEL_TOKENS, PUBLISHED_INDENTS, judge_prompt
from pathfinder.models.folders import TOKENIZER, special_texts
from pathfinder.models.tokens import neutralise

FOREIGN_SPECIALS: tuple[str, ...] = (
    *LABEL_TOKENS,
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<think>",
    "</think>",
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
)
"""Structural tokens of common chat templates. A step that contains one must not be able to end its own turn."""


def specials_of(folder: Path) -> tuple[str, ...]:
    """``FOREIGN_SPECIALS`` and, if the judge's ``folder`` has a tokenizer, its special tokens.

    ``folder`` is a model folder or points to the Hub's cache. Raises ``DataError`` if the cache has lost the tokenizer.
    """
    pointer = read_hub_model(folder)
    has_tokenizer = (folder / TOKENIZER).exists() if pointer is None else TOKENIZER in pointer.files
    return (*FOREIGN_SPECIALS, *(special_texts(folder) if has_tokenizer else ()))


_TAGS = ("<previous_steps>", "</previous_steps>", "<current_step>", "</current_step>")


def step_prompt(
    source: str, problem: str, prefix: Sequence[str], step: str, specials: Collection[str], preset: Preset
) -> str:
    """The judge's user turn for a step; ``specials`` and the turn's tags are broken up by a word joiner in all texts.

    The preset ``official`` indents the frame as the published script of the step's source does.
    """
    human, monte_carlo = PUBLISHED_INDENTS
    indent = 0 if preset == "repaired" else human if source == HUMAN else monte_carlo
    broken = (*specials, *_TAGS)
    clean_problem, *clean_prefix, clean_step = (neutralise(text, broken) for text in (problem, *prefix, step))
    return judge_prompt(clean_problem, clean_prefix, clean_step, indent)
