"""Tokens of the method: tokenizers, the three label tokens, and chat prompts as id sequences.

A prompt is encoded whole, exactly as the chat template renders it; text from outside is neutralised first, so that
the only label tokens in a prompt are the ones that the method put there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pathfinder.core.io import DataError, read_json
from pathfinder.core.prompts import BAD, GOOD, LABEL_TOKENS, MASK

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Ids = npt.NDArray[np.int32]
_WORD_JOINER = "\u2060"
_PLAIN_CLASSES = (None, "PreTrainedTokenizerFast", "TokenizersBackend")
_PROBES = ("  \n probe A \n\n", "\n probe {{ B }} \t ")


@dataclass(frozen=True, slots=True)
class LabelIds:
    """Ids of ``<+>``, ``<->`` and ``<extra>``."""

    good: int
    bad: int
    mask: int

    def of(self, positive: bool) -> int:
        """The token that states a label."""
        return self.good if positive else self.bad


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer saved in ``folder``, with a chat template; raises ``DataError`` where either is missing."""
    tokenizer = open_tokenizer(folder)
    if not tokenizer.chat_template:
        raise DataError(f"{folder}: the tokenizer has no chat template; add chat_template.jinja")
    return tokenizer


def open_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer saved in ``folder``; raises ``DataError`` where there is none.

    A folder that names no model-specific class is read as it stands: beside a qwen2 configuration ``AutoTokenizer``
    would pick ``Qwen2Tokenizer``, which splits digits again without a word.
    """
    if not (folder / "tokenizer.json").exists():
        raise DataError(f"{folder}: no tokenizer.json; a model folder needs weights, config.json and tokenizer files")
    settings = folder / "tokenizer_config.json"
    named = read_json(settings).get("tokenizer_class") if settings.exists() else None
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # seconds; who only neutralises does without

    loader: Any = PreTrainedTokenizerFast if named in _PLAIN_CLASSES else AutoTokenizer
    return loader.from_pretrained(folder, trust_remote_code=False)  # type: ignore[no-any-return]


def special_strings(tokenizer: PreTrainedTokenizerFast) -> tuple[str, ...]:
    """Every special token's text (added prompt chunks are ordinary tokens and are not among them), longest first."""
    special = {str(t.content) for t in tokenizer.added_tokens_decoder.values() if t.special} | set(LABEL_TOKENS)
    return tuple(sorted(special, key=lambda text: (-len(text), text)))


def neutralise(text: str, specials: Collection[str]) -> str:
    """``text`` without any literal special token: a word joiner goes in after the first character of each.

    Lone surrogates, which no tokenizer can read, become U+FFFD. Text without either comes back unchanged.
    """
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    breakable = [special for special in specials if len(special) > 1]
    if not any(special in text for special in breakable):
        return text
    pattern = re.compile("|".join(re.escape(special) for special in sorted(breakable, key=len, reverse=True)))
    while pattern.search(text):
        text = pattern.sub(lambda found: found[0][0] + _WORD_JOINER + found[0][1:], text)
    return text


def add_label_tokens(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Add the label tokens that are missing, always in the order of ``LABEL_TOKENS``; returns those added.

    The published script adds ``list(set(…))``, so there the ids depend on the process's hash seed.
    """
    vocabulary = tokenizer.get_vocab()
    missing = [token for token in LABEL_TOKENS if token not in vocabulary]
    if missing:
        tokenizer.add_tokens(missing, special_tokens=True)
    return missing


def label_ids(tokenizer: PreTrainedTokenizerFast) -> LabelIds:
    """Ids of the label tokens, adding those that are missing; each must read back as one special token."""
    add_label_tokens(tokenizer)
    for token in LABEL_TOKENS:
        if tokenizer.encode(f"a{token}a", add_special_tokens=False).count(tokenizer.convert_tokens_to_ids(token)) != 1:
            raise DataError(f"the tokenizer does not read {token} as one token; mark it special in tokenizer.json")
    vocabulary = tokenizer.get_vocab()
    return LabelIds(vocabulary[GOOD], vocabulary[BAD], vocabulary[MASK])


class ChatFrame:
    """The chat template's text around one user turn and one answering turn.

    Templates are slow to render, so the text around the turns is taken once. That is exact only where the template
    inserts the turns verbatim; this is checked on probes, and a template that does more (trims, say) is refused.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, answer_role: str = "assistant") -> None:
        self._backend = tokenizer.backend_tokenizer
        self._parts = self._split(tokenizer, "\x00U\x00", "\x00A\x00", answer_role)
        if self._parts != self._split(tokenizer, *_PROBES, answer_role):
            raise DataError("the chat template changes the text of its turns; the PRM needs one that keeps it verbatim")

    @staticmethod
    def _split(tokenizer: PreTrainedTokenizerFast, user: str, answer: str, role: str) -> tuple[str, str, str]:
        turns = [{"role": "user", "content": user}, {"role": role, "content": answer}]
        text = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False))
        before, found_user, rest = text.partition(user)
        between, found_answer, after = rest.partition(answer)
        if not found_user or not found_answer:
            raise DataError("the chat template changes the text of its turns; the PRM needs one that keeps it verbatim")
        return before, between, after

    def text(self, user: str, answer: str) -> str:
        """The rendered prompt."""
        before, between, after = self._parts
        return f"{before}{user}{between}{answer}{after}"

    def encode(self, turns: Sequence[tuple[str, str]]) -> list[Ids]:
        """Ids of each (user, answer) prompt: what ``apply_chat_template(tokenize=True)`` gives. int32, (tokens,)."""
        texts = [self.text(user, answer) for user, answer in turns]
        encoded = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.asarray(item.ids, dtype=np.int32) for item in encoded]
