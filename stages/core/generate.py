"""Sampling from a causal language model in process: batched, on a key-value cache, repeatable row by row.

A row's randomness comes from its own key alone (SHA-256 of the key seeds a Philox stream, one number a token), so a
sample does not depend on its neighbours, except through the rounding of batched arithmetic: the same batch gives the
same bytes. Rows of one batch that share a prompt share its prefill; finished rows leave the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stages.core.io import DataError
from stages.core.model import load_model, resolve
from stages.core.prompts import END_OF_TURN
from stages.core.tokens import load_tokenizer, special_strings

Finish = Literal["stop", "length"]
_ROWS = 256
_SPARE_SHARE = 0.75  # the cache is copied together once fewer than this share of its rows are still open
_NUCLEUS = 64  # most nuclei fit in this many tokens; a full sort where one does not


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. ``temperature`` 0 takes the likeliest token; ``include_stop`` leaves the stop string in."""

    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...] = ()
    include_stop: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled text without special tokens. ``tokens`` counts what was sampled, the end token included.

    ``finish`` is "stop" at an end token or a stop string, "length" where ``max_tokens`` cut it.
    """

    text: str
    tokens: int
    finish: Finish


class Generator:
    """A causal language model with its tokenizer, ready to sample."""

    def __init__(self, folder: Path, dtype: str = "float32") -> None:
        self.tokenizer = load_tokenizer(resolve(folder))
        self.specials = special_strings(self.tokenizer)
        self._model: Any = load_model(folder, dtype)
        self._ends = _end_ids(self._model, self.tokenizer)
        self._pad = min(self._ends)
        self._pieces: dict[int, str] = {}

    def chat_prompt(self, user: str) -> str:
        """The chat template's text for one user turn and the opening of the answer."""
        turns = [{"role": "user", "content": user}]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def count_tokens(self, text: str) -> int:
        """How many tokens ``text`` is."""
        return len(self.encode(text))

    def encode(self, prompt: str) -> list[int]:
        """Ids of a prompt. Special tokens are read as such: untrusted parts must be neutralised before."""
        return list(self.tokenizer.encode(prompt, add_special_tokens=False))

    @torch.inference_mode()
    def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
        """One completion a prompt, in order. ``keys`` (one a prompt) name the rows' random streams."""
        if len(prompts) != len(keys):
            raise ValueError(f"{len(prompts)} prompts and {len(keys)} keys; give one key a prompt")
        encoded = {prompt: self.encode(prompt) for prompt in set(prompts)}
        if any(not ids for ids in encoded.values()):
            raise DataError("a prompt is empty; the model needs at least one token to go on from")
        # rows of like length together, so that little is padding; ties by place, so that the order is settled
        order = sorted(range(len(prompts)), key=lambda i: (len(encoded[prompts[i]]), prompts[i], i))
        out: dict[int, Completion] = {}
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            sampled = self._batch([encoded[prompts[i]] for i in rows], [keys[i] for i in rows], sampling)
            out.update(zip(rows, sampled, strict=True))
        return [out[i] for i in range(len(prompts))]

    def _batch(self, prompts: list[list[int]], keys: list[str], sampling: Sampling) -> list[Completion]:
        rows = [_Row(_stream(key, sampling)) for key in keys]
        state = _State(self._model, self._pad, prompts, sampling.max_tokens)
        open_rows = list(range(len(rows)))
        for position in range(sampling.max_tokens):
            noise = np.fromiter((rows[i].noise[position] for i in open_rows), np.float64, len(open_rows))
            tokens = _pick(state.logits, noise, sampling)
            for i, token in zip(open_rows, tokens, strict=True):
                self._take(rows[i], token, sampling.stop)
            alive = [place for place, i in enumerate(open_rows) if not rows[i].stopped]
            if not alive or position + 1 == sampling.max_tokens:
                break
            open_rows = [open_rows[place] for place in alive]
            state.advance([tokens[place] for place in alive], alive)
        return [self._completion(row, sampling) for row in rows]

    def _take(self, row: _Row, token: int, stops: tuple[str, ...]) -> None:
        row.ids.append(token)
        if token in self._ends:
            row.stopped = True
        elif stops:
            if token not in self._pieces:
                self._pieces[token] = str(self.tokenizer.decode([token], skip_special_tokens=True))
            window = max(len(stop) for stop in stops) - 1
            row.tail = (row.tail[-window:] if window else "") + self._pieces[token]
            row.stopped = any(stop in row.tail for stop in stops)

    def _completion(self, row: _Row, sampling: Sampling) -> Completion:
        text = str(self.tokenizer.decode(row.ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        found = [(place, stop) for stop in sampling.stop if (place := text.find(stop)) >= 0]
        if found:
            place, stop = min(found)
            text = text[: place + len(stop)] if sampling.include_stop else text[:place]
        return Completion(text, len(row.ids), "stop" if row.stopped or found else "length")


class _Row:
    """What one row has sampled so far."""

    __slots__ = ("ids", "noise", "stopped", "tail")

    def __init__(self, noise: npt.NDArray[np.float64]) -> None:
        self.noise = noise
        self.ids: list[int] = []
        self.tail = ""
        self.stopped = False


class _Cache:
    """Keys and values in room allotted once; stands where transformers expects a ``Cache``."""

    is_compileable = False

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self.layers: list[list[Tensor]] = []

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append one layer's new keys and values; returns all of them, each (rows, heads, tokens, size)."""
        if layer_idx == len(self.layers):
            shape = (*keys.shape[:2], self.capacity, keys.shape[3])
            self.layers.append([keys.new_empty(shape), values.new_empty(shape)])
        end = self.length + keys.shape[2]
        held = self.layers[layer_idx]
        held[0][:, :, self.length : end] = keys
        held[1][:, :, self.length : end] = values
        return held[0][:, :, :end], held[1][:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Keep, or repeat, these rows."""
        used = self.length
        for held in self.layers:
            for i, tensor in enumerate(held):
                held[i] = tensor.new_empty((len(rows), *tensor.shape[1:]))
                torch.index_select(tensor[:, :, :used], 0, rows, out=held[i][:, :, :used])


class _State:
    """A batch between two tokens: its cache, its mask and the logits of what comes next (open rows, vocabulary)."""

    def __init__(self, model: Any, pad: int, prompts: list[list[int]], max_tokens: int) -> None:
        self._model, self._pad = model, pad
        unique = list(dict.fromkeys(map(tuple, prompts)))
        width = max(map(len, unique))
        ids = torch.full((len(unique), width), pad, dtype=torch.long)
        seen = torch.zeros((len(unique), width), dtype=torch.bool)
        for row, prompt in enumerate(unique):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            seen[row, width - len(prompt) :] = True
        causal = torch.ones((width, width), dtype=torch.bool).tril()
        self._cache = _Cache(width + max_tokens)
        places = {prompt: row for row, prompt in enumerate(unique)}
        spread = torch.tensor([places[tuple(prompt)] for prompt in prompts]).to(model.device)
        logits = self._forward(ids, (seen.cumsum(1) - 1).clamp(min=0), (seen[:, None] & causal)[:, None])
        self.logits = logits[spread]
        self._cache.select(spread)
        self._rows = list(range(len(prompts)))  # the cache row of each open row
        spread = spread.cpu()
        self._next = seen.sum(1)[spread]
        self._seen = torch.cat([seen[spread], torch.ones((len(prompts), max_tokens), dtype=torch.bool)], 1)

    def advance(self, tokens: list[int], alive: list[int]) -> None:
        """Feed one token to each row that is still open (``alive``: their places among the rows open before)."""
        self._rows = [self._rows[place] for place in alive]
        if len(self._rows) < _SPARE_SHARE * len(self._next):
            keep = torch.tensor(self._rows)
            self._cache.select(keep.to(self._model.device))
            self._next, self._seen = self._next[keep], self._seen[keep]
            self._rows = list(range(len(keep)))
        held = torch.full((len(self._next), 1), self._pad, dtype=torch.long)  # closed rows are fed padding
        held[self._rows, 0] = torch.tensor(tokens)
        seen = self._seen[:, : self._cache.length + 1]
        logits = self._forward(held, self._next[:, None], seen[:, None, None])
        self.logits = logits if len(self._rows) == len(held) else logits[self._rows]
        self._next = self._next + 1

    def _forward(self, ids: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        device, dtype = self._model.device, self._model.dtype
        # the least finite number, not -inf: a padding position sees nothing at all and must not become NaN
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
        out = self._model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache.length += ids.shape[1]
        return out.logits[:, -1].float()  # type: ignore[no-any-return]


def _stream(key: str, sampling: Sampling) -> npt.NDArray[np.float64]:
    """A row's uniform numbers in [0, 1), one a token."""
    if sampling.temperature == 0:
        return np.zeros(sampling.max_tokens)
    seed = int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=seed)).random(sampling.max_tokens)


def _pick(logits: Tensor, noise: npt.NDArray[np.float64], sampling: Sampling) -> list[int]:
    """Next token of each row: likeliest first, the first at which the kept probability passes the row's number."""
    if sampling.temperature == 0:
        return logits.argmax(-1).tolist()
    chances = (logits / sampling.temperature).softmax(-1)
    width = min(_NUCLEUS, chances.shape[1])
    top, ids = chances.topk(width, dim=-1)
    if width < chances.shape[1] and float(top.sum(-1).min()) <= sampling.top_p:
        top, ids = chances.sort(dim=-1, descending=True, stable=True)
    top = top.double()
    # a token is kept while the mass before it is under top_p, so the nucleus is never empty
    top = top * (top.cumsum(-1) - top < sampling.top_p)
    ladder = top.cumsum(-1)
    height = torch.from_numpy(noise).to(ladder.device)[:, None] * ladder[:, -1:]
    place = (ladder > height).int().argmax(-1, keepdim=True)
    return ids.gather(1, place)[:, 0].tolist()


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text, by generation settings, configuration, tokenizer and chat format."""
    configured: Iterable[Any] = (
        getattr(model.generation_config, "eos_token_id", None),
        model.config.eos_token_id,
        tokenizer.eos_token_id,
        tokenizer.get_vocab().get(END_OF_TURN),
    )
    ids = {int(i) for entry in configured if entry is not None for i in (entry if isinstance(entry, list) else [entry])}
    if not ids:
        raise DataError("the model names no end token; set eos_token_id in its config.json")
    return frozenset(ids)
