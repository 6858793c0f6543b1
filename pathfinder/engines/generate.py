"""Sampling from a causal language model in process: batched, on a key-value cache, repeatable row by row.

A row's randomness comes from its own key alone (SHA-256 of the key seeds a Philox stream, one number a token), so a
sample does not depend on its neighbours, except through the rounding of batched arithmetic: the same batch gives the
same bytes. Rows are computed once as long as they say the same; finished ones leave the batch.
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

from pathfinder.core.io import DataError
from pathfinder.core.prompts import END_OF_TURN
from pathfinder.models.model import load_model, resolve
from pathfinder.models.tokens import load_tokenizer, special_strings

Finish = Literal["stop", "length"]
_ROWS = 512
_SPARE_SHARE = 0.75  # the cache is copied together once fewer than this share of its rows are still in use
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
        going = list(zip(rows, state.places(prompts), strict=True))  # open rows, each with its place in the state
        for position in range(sampling.max_tokens):
            noise = np.fromiter((row.noise[position] for row, _ in going), np.float64, len(going))
            tokens = _pick(state.logits, [place for _, place in going], noise, sampling)
            for (row, _), token in zip(going, tokens, strict=True):
                self._take(row, token, sampling.stop)
            alive = [(row, place, token) for (row, place), token in zip(going, tokens, strict=True) if not row.stopped]
            if not alive or position + 1 == sampling.max_tokens:
                break
            places = state.advance([(place, token) for _, place, token in alive])
            going = [(row, place) for (row, _, _), place in zip(alive, places, strict=True)]
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

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows, self.capacity, self.length = rows, capacity, 0
        self.layers: list[list[Tensor]] = []

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append one layer's new keys and values; returns all of them, each (rows, heads, tokens, size)."""
        if layer_idx == len(self.layers):
            shape = (*keys.shape[:2], self.capacity, keys.shape[3])
            self.layers.append([keys.new_empty(shape), values.new_empty(shape)])
        end, rows = self.length + keys.shape[2], self.rows
        held = self.layers[layer_idx]
        held[0][:rows, :, self.length : end] = keys
        held[1][:rows, :, self.length : end] = values
        return held[0][:rows, :, :end], held[1][:rows, :, :end]

    def select(self, rows: list[int]) -> None:
        """Keep these rows, in this order."""
        index, used = torch.tensor(rows), self.length
        for held in self.layers:
            for i, tensor in enumerate(held):
                held[i] = tensor.new_empty((len(rows), *tensor.shape[1:]))
                held[i][:, :, :used] = tensor[index.to(tensor.device), :, :used]
        self.rows = len(rows)

    def repeat(self, rows: list[int]) -> None:
        """Append copies of these rows; room grows by half, so that few copies move everything."""
        index, used, end = torch.tensor(rows), self.length, self.rows + len(rows)
        for held in self.layers:
            for i, tensor in enumerate(held):
                if end > len(tensor):
                    held[i] = tensor.new_empty((max(end, len(tensor) * 3 // 2), *tensor.shape[1:]))
                    held[i][: self.rows, :, :used] = tensor[: self.rows, :, :used]
                held[i][self.rows : end, :, :used] = tensor[index.to(tensor.device), :, :used]
        self.rows = end


class _State:
    """A batch between two tokens: its cache, its mask and the logits of what comes next (places, vocabulary).

    A place is one distinct text: rows that have the same prompt and have drawn the same tokens share it, and part
    when their draws do. Candidates of one search round mostly agree, so this saves most of the work.
    """

    def __init__(self, model: Any, pad: int, prompts: list[list[int]], max_tokens: int) -> None:
        self._model, self._pad = model, pad
        unique = list(dict.fromkeys(map(tuple, prompts)))
        self._of_prompt = {prompt: place for place, prompt in enumerate(unique)}
        width = max(map(len, unique))
        ids = torch.full((len(unique), width), pad, dtype=torch.long)
        seen = torch.zeros((len(unique), width), dtype=torch.bool)
        for place, prompt in enumerate(unique):
            ids[place, width - len(prompt) :] = torch.tensor(prompt)
            seen[place, width - len(prompt) :] = True
        causal = torch.ones((width, width), dtype=torch.bool).tril()
        self._cache = _Cache(len(unique), width + max_tokens)
        self.logits = self._forward(ids, (seen.cumsum(1) - 1).clamp(min=0), (seen[:, None] & causal)[:, None])
        self._next = seen.sum(1)
        self._seen = torch.cat([seen, torch.ones((len(unique), max_tokens), dtype=torch.bool)], 1)

    def places(self, prompts: list[list[int]]) -> list[int]:
        """Where each row starts."""
        return [self._of_prompt[tuple(prompt)] for prompt in prompts]

    def advance(self, drawn: list[tuple[int, int]]) -> list[int]:
        """Feed each open row's token, given as (place, token); returns the rows' new places."""
        used = list(dict.fromkeys(place for place, _ in drawn))
        if len(used) < _SPARE_SHARE * self._cache.rows:
            self._cache.select(used)
            self._next, self._seen = self._next[used], self._seen[used]
            moved = {place: i for i, place in enumerate(used)}
            drawn = [(moved[place], token) for place, token in drawn]
        children: dict[tuple[int, int], int] = {}
        parents: list[int] = []
        taken: set[int] = set()
        for place, token in drawn:
            if (place, token) not in children:
                children[place, token] = place if place not in taken else self._cache.rows + len(parents)
                parents += [place] * (place in taken)
                taken.add(place)
        if parents:
            self._cache.repeat(parents)
            self._next = torch.cat([self._next, self._next[parents]])
            self._seen = torch.cat([self._seen, self._seen[parents]])
        held = torch.full((self._cache.rows, 1), self._pad, dtype=torch.long)  # closed places are fed padding
        held[list(children.values()), 0] = torch.tensor([token for _, token in children])
        seen = self._seen[:, : self._cache.length + 1]
        self.logits = self._forward(held, self._next[:, None], seen[:, None, None])
        self._next = self._next + 1
        return [children[pair] for pair in drawn]

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


def _pick(logits: Tensor, places: list[int], noise: npt.NDArray[np.float64], sampling: Sampling) -> list[int]:
    """Next token of each row: likeliest first, the first at which the kept probability passes the row's number.

    ``logits`` (places, vocabulary); ``places`` and ``noise`` one a row.
    """
    index = torch.tensor(places, device=logits.device)
    if sampling.temperature == 0:
        return logits.argmax(-1)[index].tolist()
    chances = (logits / sampling.temperature).softmax(-1)
    width = min(_NUCLEUS, chances.shape[1])
    top, ids = chances.topk(width, dim=-1)
    if width < chances.shape[1] and float(top.sum(-1).min()) <= sampling.top_p:
        top, ids = chances.sort(dim=-1, descending=True, stable=True)
    top = top.double()
    # a token is kept while the mass before it is under top_p, so the nucleus is never empty
    top = top * (top.cumsum(-1) - top < sampling.top_p)
    ladder = top.cumsum(-1)[index]
    height = torch.from_numpy(noise).to(ladder.device)[:, None] * ladder[:, -1:]
    place = (ladder > height).int().argmax(-1, keepdim=True)
    return ids[index].gather(1, place)[:, 0].tolist()


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
