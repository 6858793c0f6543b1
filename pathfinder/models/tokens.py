"""Tokenizers, the three label tokens, and chat prompts as sequences of token ids.

A prompt is encoded as a whole, exactly as the chat template renders it. Data texts are neutralised first, so a prompt
contains only the label tokens of the method.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ground.io import DataError, digest_of, read_json, write_json
from ground.text import lacks_memory
from pathfinder.core.prompts import BAD, GOOD, LABEL_TOKENS, MASK

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

Ids = npt.NDArray[np.int32]
"""Token ids, int32 (tokens,)."""
_WORD_JOINER = "\u2060"
_SETTINGS = "tokenizer_config.json"
_LOCAL = ("backend", "is_local", "local_files_only")
"""Settings that transformers 5 adds about the process that reads the files and about its own classes."""
_PROBE = (
    "So 57 + 8 = 65, 1234567890.\n\n  12) It's \\boxed{3.25}, (x_1)\n \t caf\u00e9 cafe\u0301 \u6570\u5b66 <-- end "
)
"""Numbers, white space, punctuation and letters, which tokenizers split in different ways."""
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The chat template of the small models: ChatML as Qwen2.5 writes it, without the default system message."""
_QWEN2 = "7359a89ce2b018f7988aab12b8b4f1e1f46e507dd10849535ad5ca98c022e643"
"""The digest of the tokenizer.json, without its tokens, that transformers 5 writes for a
``Qwen2Tokenizer``."""
_PLAIN: dict[str, Any] = {
    "add_prefix_space": None,
    "bos_token": None,
    "clean_up_tokenization_spaces": False,
    "tokenizer_class": "Qwen2Tokenizer",
}
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
_ADDITIONAL = "additional_special_tokens"
"""Settings and special tokens of the small models, as ``save_tokenizer`` writes them."""
_FILES = ("tokenizer.json", _SETTINGS, "chat_template.jinja")
"""The files of a tokenizer of the small models."""
_OTHER_FILES = ("added_tokens.json", "additional_chat_templates", "merges.txt", "special_tokens_map.json", "vocab.json")
"""Files in which a tokenizer's folder may have more settings."""
_PROBES = (("\x00U\x00", "\x00A\x00"), ("  \n probe A \n\n", "\n probe {{ B }} \t "))
"""Turns of a user and an answer; a template that keeps texts verbatim puts the same text around all of them."""


@dataclass(frozen=True, slots=True)
class LabelIds:
    """Ids of ``<+>``, ``<->`` and ``<extra>``."""

    good: int
    bad: int
    mask: int

    def of(self, positive: bool) -> int:
        """The token of a label."""
        return self.good if positive else self.bad


class PlainTokenizer:
    """A tokenizer of the small models, with the parts of transformers' interface that scoring and sampling need.

    Importing transformers takes a second, which is longer than scoring a solution.
    """

    chat_template = CHATML

    def __init__(self, folder: Path, core: Tokenizer, settings: Mapping[str, Any]) -> None:
        self.name_or_path, self.backend_tokenizer = str(folder), core
        self.eos_token_id = core.token_to_id(settings["eos_token"])

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size()

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """The added tokens by their ids."""
        return self.backend_tokenizer.get_added_tokens_decoder()

    def get_vocab(self) -> dict[str, int]:
        """The ids of all tokens."""
        return self.backend_tokenizer.get_vocab()

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """The id of a token; None for an unknown one."""
        return self.backend_tokenizer.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids of a text; the usual ``encode`` also finds the place of each token, which takes twice the time."""
        return self.backend_tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **_: bool) -> str:
        """The text of some ids."""
        return self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], tokenize: bool = False, add_generation_prompt: bool = False
    ) -> str:
        """``CHATML`` around the messages, as a text."""
        turns = (f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)
        return "".join(turns) + "<|im_start|>assistant\n" * add_generation_prompt

    def save_pretrained(self, folder: Path) -> None:
        """Copy the tokenizer's files."""
        for name in _FILES:
            shutil.copyfile(Path(self.name_or_path) / name, folder / name)


def inference_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in ``folder`` for inference: a ``PlainTokenizer``, or else the result of ``load_tokenizer``.

    Raises ``DataError`` as ``load_tokenizer`` does.
    """
    try:
        found: Any = _plain_tokenizer(folder)
    except Exception:  # the loader reports any fault of the files
        found = None
    return found or load_tokenizer(folder)


def _plain_tokenizer(folder: Path) -> PlainTokenizer | None:
    """The tokenizer in ``folder``; None unless its files have exactly the settings of the small models."""
    from tokenizers import Tokenizer

    settings = _settings(folder)
    named = {settings[name] for name in ("eos_token", "pad_token", "unk_token")} | {*settings[_ADDITIONAL]}
    content = read_json(folder / "tokenizer.json")
    model, added = content["model"], content["added_tokens"]
    places = dict(model["vocab"])
    for token in added:
        places.setdefault(token["content"], len(places))
    special = {token["content"] for token in added if token.items() >= _FLAGS.items()}
    is_plain = (
        settings.items() >= _PLAIN.items()
        and settings.keys() == {*_PLAIN, "eos_token", "pad_token", "unk_token", _ADDITIONAL, "model_max_length"}
        and digest_of(content | {"added_tokens": None, "model": model | {"vocab": None, "merges": None}}) == _QWEN2
        and all(places[token["content"]] == token["id"] for token in added)
        and named | {*LABEL_TOKENS} <= special
        and (folder / "chat_template.jinja").read_text(encoding="utf-8") == CHATML
        and read_json(folder / "config.json")["model_type"] == "qwen2"
        and not any((folder / name).exists() for name in _OTHER_FILES)
    )
    return PlainTokenizer(folder, Tokenizer.from_file(str(folder / "tokenizer.json")), settings) if is_plain else None


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer saved in ``folder``; raises ``DataError`` if it or its chat template is missing."""
    tokenizer = open_tokenizer(folder)
    if not tokenizer.chat_template:
        raise DataError(f"{folder}: the tokenizer has no chat template; add chat_template.jinja")
    return tokenizer


def open_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in ``folder`` as ``AutoTokenizer`` reads it; raises ``DataError`` if it is missing or broken.

    For some configurations (qwen2), transformers builds its own class from the vocabulary and the added tokens and
    ignores how tokenizer.json splits a text. A folder that such a class would read differently is refused.
    """
    if not (folder / "tokenizer.json").exists():
        raise DataError(f"{folder}: no tokenizer.json; a model folder needs weights, config.json and tokenizer files")
    named = _settings(folder).get("tokenizer_class")
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer  # importing it takes seconds, and neutralising does not need it

    silence()
    loader: Any = AutoTokenizer
    try:
        found: PreTrainedTokenizerFast = loader.from_pretrained(folder, trust_remote_code=False)
        chosen = type(found).__name__
        backends = [found.backend_tokenizer]
        if str(named).removesuffix("Fast") != chosen:
            backends.append(Tokenizer.from_file(str(folder / "tokenizer.json")))
        readings = [backend.encode(_PROBE, add_special_tokens=False).ids for backend in backends]
    except Exception as error:  # the loader passes on all errors of its Rust part and its parsers
        if lacks_memory(error):
            raise
        raise DataError(f"{folder}: the tokenizer's files cannot be read ({error!r:.200}); fetch them again") from error
    if readings[0] != readings[-1]:
        raise DataError(
            f"{folder}: transformers reads this tokenizer as a {chosen}, which splits texts differently from its "
            f"tokenizer.json; save it as a {chosen}, or train the model again from a base model with such a tokenizer"
        )
    return found


def silence() -> None:
    """Keep transformers from printing warnings and progress; the stages show their own."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def save_tokenizer(tokenizer: PreTrainedTokenizerFast | PlainTokenizer, folder: Path) -> None:
    """Write the tokenizer's files next to the config.json in ``folder``, with settings that transformers 4 also reads.

    Raises ``DataError`` if ``AutoTokenizer`` reads the files differently (``open_tokenizer``).
    """
    tokenizer.save_pretrained(folder)
    if isinstance(tokenizer, PlainTokenizer):
        return  # its files are already in this form
    settings = {name: value for name, value in _settings(folder).items() if name not in _LOCAL}
    if isinstance(settings.get("extra_special_tokens"), list):  # a dict has its own names
        settings[_ADDITIONAL] = settings.pop("extra_special_tokens")
    if settings["tokenizer_class"] == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    write_json(folder / _SETTINGS, settings)
    open_tokenizer(folder)


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / _SETTINGS
    content = read_json(path) if path.exists() else {}
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected an object; fetch the model's files again")
    return content


def special_strings(tokenizer: PreTrainedTokenizerFast) -> tuple[str, ...]:
    """The texts of the special tokens, longest first. Added prompt chunks are ordinary tokens and are not included."""
    special = {str(t.content) for t in tokenizer.added_tokens_decoder.values() if t.special} | set(LABEL_TOKENS)
    return tuple(sorted(special, key=lambda text: (-len(text), text)))


def neutralise(text: str, specials: Collection[str]) -> str:
    """``text`` without literal special tokens: a word joiner is inserted after the first character of each.

    Lone surrogates, which no tokenizer can read, become U+FFFD. Text with neither is returned unchanged.
    """
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    pattern = _any_of(tuple(specials))
    while pattern.search(text):
        text = pattern.sub(lambda found: found[0][0] + _WORD_JOINER + found[0][1:], text)
    return text


@lru_cache(maxsize=16)
def _any_of(specials: tuple[str, ...]) -> re.Pattern[str]:
    breakable = sorted((special for special in specials if len(special) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, breakable)) or "(?!)")


def add_label_tokens(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Add the missing label tokens in the order of ``LABEL_TOKENS``, and return those added.

    The published script adds ``list(set(…))``, so its ids depend on the hash seed of the process.
    """
    vocabulary = tokenizer.get_vocab()
    missing = [token for token in LABEL_TOKENS if token not in vocabulary]
    if missing:
        tokenizer.add_tokens(missing, special_tokens=True)
    return missing


def refuse_without_labels(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Raise ``DataError`` if the tokenizer of the PRM in ``folder`` lacks a label token: its model never learned it.

    A token that only tokenizer_config.json names gets the id of another token when it is loaded, so tokenizer.json
    decides.
    """
    stored = {token["content"] for token in read_json(Path(tokenizer.name_or_path) / "tokenizer.json")["added_tokens"]}
    missing = [token for token in LABEL_TOKENS if token not in stored]
    if missing:
        raise DataError(f"{folder}: not a PathFinder-PRM, its tokenizer lacks {' and '.join(missing)}; train it first")


def refuse_without_rows(tokenizer: PreTrainedTokenizerFast, folder: Path, rows: int | None) -> None:
    """Raise ``DataError`` if the tokenizer has ids beyond the ``rows`` of the model in ``folder`` (None: unknown)."""
    largest = max(tokenizer.get_vocab().values())
    if rows is not None and largest >= rows:
        raise DataError(
            f"{folder}: the tokenizer has the id {largest}, but config.json gives the model {rows} rows; "
            "use the tokenizer that the model was trained with"
        )


def label_ids(tokenizer: PreTrainedTokenizerFast) -> LabelIds:
    """Ids of the label tokens; missing ones are added. Raises ``DataError`` if the tokenizer splits a label token."""
    add_label_tokens(tokenizer)
    for token in LABEL_TOKENS:
        if tokenizer.encode(f"a{token}a", add_special_tokens=False).count(tokenizer.convert_tokens_to_ids(token)) != 1:
            raise DataError(f"the tokenizer does not read {token} as one token; mark it special in tokenizer.json")
    vocabulary = tokenizer.get_vocab()
    return LabelIds(vocabulary[GOOD], vocabulary[BAD], vocabulary[MASK])


class ChatFrame:
    """The text of the chat template around a user turn and an answer.

    Templates are slow to render, so this text is rendered once. It is exact only if the template inserts the turns
    verbatim. Probes check this, and ``DataError`` is raised for a template that, for example, trims its turns, or that
    writes today's date, which training and scoring would read differently.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, answer_role: str = "assistant") -> None:
        self._backend = tokenizer.backend_tokenizer
        if "strftime_now" in str(tokenizer.chat_template):
            raise DataError(
                "the chat template writes today's date (strftime_now); write a fixed date into chat_template.jinja"
            )
        roles = ("user", answer_role)
        parts, others = (around(tokenizer, list(zip(roles, texts, strict=True))) for texts in _PROBES)
        if parts is None or parts != others:
            raise DataError("the chat template changes the text of its turns; the PRM needs one that keeps it verbatim")
        self._parts = parts

    def encode(self, turns: Sequence[tuple[str, str]]) -> list[Ids]:
        """Ids of each (user, answer) prompt, int32 (tokens,), as ``apply_chat_template(tokenize=True)`` gives them.

        Raises ``DataError`` if the tokenizer's own pattern gives up on a text.
        """
        before, between, after = self._parts
        texts = [f"{before}{user}{between}{answer}{after}" for user, answer in turns]
        try:
            encoded = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # the Rust part's error, which derives from BaseException
                raise
            raise DataError(
                f"the tokenizer cannot read a prompt ({error!s:.200}); fetch the model's files again"
            ) from error
        return [np.asarray(item.ids, dtype=np.int32) for item in encoded]


def around(
    tokenizer: PreTrainedTokenizerFast, turns: Sequence[tuple[str, str]], system: str | None = None
) -> list[str] | None:
    """The chat template's text before, between and after some turns, each (role, text).

    ``system`` belongs to the text before. None if the template does not contain the turns verbatim. Raises
    ``DataError`` if it cannot be rendered.
    """
    messages = [{"role": role, "content": content} for role, content in turns]
    messages[:0] = [] if system is None else [{"role": "system", "content": system}]
    try:
        rest = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False))
    except Exception as error:  # the template is a program by the model's publisher; it runs in a sandbox
        raise DataError(
            f"the chat template cannot be rendered ({error!r:.200}); fetch the model's files again"
        ) from error
    parts = []
    for _, content in turns:
        before, found, rest = rest.partition(content)
        if not found:
            return None
        parts.append(before)
    return [*parts, rest]
