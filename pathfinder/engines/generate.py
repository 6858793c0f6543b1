"""Sample from a causal language model in this process: batched, with a key-value cache, repeatable per row.

Only a row's key determines its randomness (SHA-256 of the key seeds a Philox stream with one number per token). A
sample therefore depends on its neighbours only through rounding in batched arithmetic, and the same batches in the same
order give the same bytes. Rows share one computation as long as their texts are identical; finished rows leave the
batch.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from ground.io import DataError, read_json
from pathfinder.core.prompts import END_OF_TURN
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.models.decoder import final_states, load_decoder, supports
from pathfinder.models.folders import open_model
from pathfinder.models.tokens import special_strings

_ROWS = 512
_SPARE_SHARE = 0.75  # the cache is compacted once fewer than this share of its rows are in use
_PREFILL = 2048  # tokens of prompts in one pass: larger passes leave the processor's caches
_NUCLEUS = (8, 64)  # most nuclei fit into this many tokens; larger ones need a full sort


class Generator:
    """A causal language model and its tokenizer. Raises ``DataError`` if neither defines an end token.

    With ``keeps``, a batch keeps the keys and values of its prompts for the next batch, whose prompts may continue
    them. This changes samples only through rounding.
    """

    def __init__(self, folder: Path, keeps: bool = False) -> None:
        opened = open_model(folder)
        self.tokenizer = opened.tokenizer
        self.specials = special_strings(self.tokenizer)
        self._model: Any = load_decoder(opened)
        self._ends = _end_ids(opened.files, self._model.config, self.tokenizer)
        self._pad = min(self._ends)
        self._longest = int(getattr(self._model.config, "max_position_embeddings", 2**31))
        self._pieces: dict[int, str] = {}
        self._keeps, self._trunks = keeps, _Trunks({}, 0, [])
        self.tokens = Counter[str]()
        """Tokens without padding: ``computed`` by the model, and ``separate`` if completions shared no computation."""

    def chat_prompt(self, user: str) -> str:
        """Format one user turn with the chat template, followed by the start of the answer."""
        turns = [{"role": "user", "content": user}]
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def encode(self, prompt: str) -> tuple[int, ...]:
        """Ids of a prompt. Special tokens in it take effect, so neutralise untrusted parts first."""
        return tuple(self.tokenizer.encode(prompt, add_special_tokens=False))

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[str | tuple[int, ...]], keys: Sequence[str], sampling: Sampling
    ) -> list[Completion]:
        """Complete each prompt, in order; ``keys`` has one key per prompt, which determines the row's randomness.

        In one call, the prompts are either all texts or all ids of ``encode``.
        A prompt that leaves no room for ``max_tokens`` is "too_long", as on a server.
        Raises ``DataError`` if a prompt is empty, ``ValueError`` if there is not one key per prompt.
        """
        if len(prompts) != len(keys):
            raise ValueError(f"{len(prompts)} prompts and {len(keys)} keys; give one key per prompt")
        encoded = {prompt: self.encode(prompt) if isinstance(prompt, str) else prompt for prompt in set(prompts)}
        if () in encoded.values():
            raise DataError("a prompt is empty; the model needs at least one token to continue")
        # rows of similar length share a batch, which saves padding; the place breaks ties, which fixes the order
        order = sorted(range(len(prompts)), key=lambda i: (len(encoded[prompts[i]]), prompts[i], i))
        order = [i for i in order if len(encoded[prompts[i]]) + sampling.max_tokens <= self._longest]
        out = dict.fromkeys(range(len(prompts)), Completion("", 0, "too_long"))
        for start in range(0, len(order), _ROWS):
            rows = order[start : start + _ROWS]
            sampled = self._batch([encoded[prompts[i]] for i in rows], [keys[i] for i in rows], sampling)
            out.update(zip(rows, sampled, strict=True))
            self.tokens["separate"] += sum(len(encoded[prompts[i]]) + out[i].tokens - 1 for i in rows)
        return [out[i] for i in range(len(prompts))]

    def _batch(self, prompts: list[tuple[int, ...]], keys: list[str], sampling: Sampling) -> list[Completion]:
        state = _State(self._model, self._pad, prompts, sampling.max_tokens, self._trunks)
        if self._keeps:
            self._trunks = state.trunks
        rows = [_Row(_stream(key, sampling), place) for key, place in zip(keys, state.places, strict=True)]
        active = rows
        for position in range(sampling.max_tokens):
            noise = np.array([row.noise[position] for row in active])
            tokens = _pick(state.logits, [row.place for row in active], noise, sampling)
            for row, token in zip(active, tokens, strict=True):
                self._take(row, token, sampling.stop)
            active = [row for row in active if not row.stopped]
            if not active or position + 1 == sampling.max_tokens:
                break
            places = state.advance([(row.place, row.ids[-1]) for row in active])
            for row, place in zip(active, places, strict=True):
                row.place = place
        self.tokens["computed"] += state.computed
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


@dataclass(slots=True)
class _Row:
    """The tokens of a row so far, and its place in the state."""

    noise: npt.NDArray[np.float64]
    place: int
    ids: list[int] = field(default_factory=list)
    tail: str = ""
    stopped: bool = False


class _Cache:
    """Preallocated keys and values: the plan of a row of tokens for ``final_states``, or transformers' ``Cache``.

    A pass appends to the rows of ``part``, which see their tokens from ``first`` on.
    """

    is_compileable = False
    mask: Tensor
    """The keys that each new token sees, additive (rows, 1, tokens, keys)."""

    def __init__(self, rows: int, width: int, more: int) -> None:
        self.rows, self.width, self.capacity, self.length = rows, width, width + more, 0
        self.part, self.first = slice(0, rows), 0
        self.held: list[Tensor] = []  # keys and values of each layer in turn

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append a layer's new keys and values; returns all of them, each of shape (rows, heads, tokens, size)."""
        at, end = 2 * layer_idx, self.length + keys.shape[2]
        if at == len(self.held):
            self.reserve((keys, values))
        for tensor, new in zip(self.held[at : at + 2], (keys, values), strict=True):
            tensor[self.part, :, self.length : end] = new
        return self.held[at][self.part, :, self.first : end], self.held[at + 1][self.part, :, self.first : end]

    def reserve(self, like: Sequence[Tensor]) -> None:
        """Add room for keys or values of this many heads and this size; the padding of prompts stays zero."""
        for tensor in like:
            self.held.append(tensor.new_empty((self.rows, tensor.shape[1], self.capacity, tensor.shape[3])))
            self.held[-1][:, :, : self.width] = 0  # a NaN would stay NaN under a mask

    def select_queries(self, slots: Tensor) -> _Cache:
        """The same plan: the slots with queries are the last of each row."""
        return self

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float, layer: int) -> Tensor:
        """Attend with the shapes of ``tree.attention.BinPlan.attend``."""
        rows = len(self.mask)
        query, key, value = (x.view(x.shape[1], rows, -1, x.shape[-1]).transpose(0, 1) for x in (query, key, value))
        heads, tokens, size = query.shape[1:]
        key, value = self.update(key, value, layer)
        groups = heads // key.shape[1]
        if tokens == 1:
            scores = query.reshape(rows, -1, groups, size) @ key.transpose(2, 3)
            attended = scores.mul_(scale).add_(self.mask[:, :, -1:]).softmax(-1) @ value
        else:
            key, value = (x[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2) for x in (key, value))
            attended = scaled_dot_product_attention(query, key, value, attn_mask=self.mask, scale=scale)
        return attended.reshape(rows, heads, tokens, size).transpose(1, 2).flatten(0, 1)[None]

    def select(self, rows: list[int]) -> None:
        """Keep these rows, in this order."""
        for i, tensor in enumerate(self.held):
            self.held[i] = tensor.new_empty((len(rows), *tensor.shape[1:]))
            self._copy(tensor, rows, self.held[i])
        self._keep(len(rows))

    def repeat(self, rows: list[int]) -> None:
        """Append copies of these rows; capacity grows by half, so reallocations are rare."""
        used, end = self.length, self.rows + len(rows)
        for i, tensor in enumerate(self.held):
            if end > len(tensor):
                self.held[i] = tensor.new_empty((max(end, len(tensor) * 3 // 2), *tensor.shape[1:]))
                self.held[i][: self.rows, :, :used] = tensor[: self.rows, :, :used]
            self._copy(tensor, rows, self.held[i][self.rows : end])
        self._keep(end)

    def _copy(self, tensor: Tensor, rows: list[int], out: Tensor) -> None:
        index = torch.tensor(rows, device=tensor.device)
        torch.index_select(tensor[:, :, : self.length], 0, index, out=out[:, :, : self.length])

    def _keep(self, rows: int) -> None:
        self.rows, self.part = rows, slice(0, rows)


@dataclass(frozen=True, slots=True)
class _Trunks:
    """The places of prompts in a cache; the prompts end at token ``width`` of the cache."""

    places: dict[tuple[int, ...], int]
    width: int
    held: list[Tensor]

    def find(self, prompts: list[tuple[int, ...]]) -> list[tuple[int, int, int]]:
        """The longest known start of each prompt: its place, its first token in the cache and its usable tokens."""
        lengths = sorted({len(known) for known in self.places}, reverse=True)

        def longest(prompt: tuple[int, ...]) -> tuple[int, int, int]:
            n = next((n for n in lengths if n <= len(prompt) and prompt[:n] in self.places), 0)
            # the model always computes the last token, because its logits are needed
            return self.places.get(prompt[:n], 0), self.width - n, min(n, len(prompt) - 1)

        return [longest(prompt) for prompt in prompts]


class _State:
    """A batch between two tokens: its cache, its mask and the logits of the next token, (places, vocabulary).

    A place is a distinct text. Rows with the same prompt and the same tokens so far share a place until their draws
    differ. Candidates of one search round mostly agree, so this saves most of the work.
    """

    def __init__(
        self, model: Any, pad: int, prompts: list[tuple[int, ...]], max_tokens: int, before: _Trunks | None = None
    ) -> None:
        self._model, self._pad, self._before = model, pad, before or _Trunks({}, 0, [])
        unique = list(dict.fromkeys(prompts))
        place_of = {prompt: place for place, prompt in enumerate(unique)}
        self.places = [place_of[prompt] for prompt in prompts]  # where each row starts
        width, self.computed = max(map(len, unique)), 0
        self._cache = _Cache(len(unique), width, max_tokens)
        self._cache.reserve(self._before.held)
        self._next = torch.tensor([len(prompt) for prompt in unique])
        self._seen = torch.arange(width + max_tokens) >= width - self._next[:, None]
        found = self._before.find(unique)
        size = _PREFILL // max(len(prompt) - known for prompt, (_, _, known) in zip(unique, found, strict=True)) or 1
        parts = [slice(at, at + size) for at in range(0, len(unique), size)]
        self.logits = torch.cat([self._prefill(part, unique[part], found[part]) for part in parts])
        self._cache.part, self._cache.first = slice(0, len(unique)), 0
        self.trunks = _Trunks(place_of, width, list(self._cache.held))
        """The prompts of this batch; later tokens do not change their part of the cache."""

    def _prefill(self, part: slice, prompts: list[tuple[int, ...]], found: list[tuple[int, int, int]]) -> Tensor:
        """Fill some places: copy the known tokens, and compute the same number of last tokens for each prompt."""
        end, longest = self._cache.width, max(map(len, prompts))
        width = max(len(prompt) - known for prompt, (_, _, known) in zip(prompts, found, strict=True))
        for place, (prompt, (source, first, _)) in enumerate(zip(prompts, found, strict=True), part.start):
            if (known := len(prompt) - width) > 0:
                for new, old in zip(self._cache.held, self._before.held, strict=True):
                    new[place, :, end - len(prompt) : end - width] = old[source, :, first : first + known]
        ids = torch.tensor([(self._pad,) * (width - len(prompt)) + prompt[-width:] for prompt in prompts])
        self._cache.part, self._cache.first, self._cache.length = part, end - longest, end - width
        seen = self._seen[part, end - longest : end]
        self.computed += int(seen[:, -width:].sum())
        causal = torch.ones((width, longest), dtype=torch.bool).tril(longest - width)
        positions = (seen.cumsum(1) - 1).clamp(min=0)[:, -width:]
        return self._forward(ids, positions, (seen[:, None] & causal)[:, None])

    def advance(self, drawn: list[tuple[int, int]]) -> list[int]:
        """Feed each active row's token, given as (place, token); returns the rows' new places."""
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
        held = torch.full((self._cache.rows, 1), self._pad, dtype=torch.long)  # unused places get padding
        held[list(children.values()), 0] = torch.tensor([token for _, token in children])
        seen = self._seen[:, : self._cache.length + 1]
        self.logits = self._forward(held, self._next[:, None], seen[:, None, None])
        self._next = self._next + 1
        self.computed += len(children)
        return [children[pair] for pair in drawn]

    def _forward(self, ids: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        device, dtype = self._model.device, self._model.dtype
        # the smallest finite number instead of -inf, because a fully masked padding position would become NaN
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min).to(device)
        ids, positions = ids.to(device), positions.to(device)
        if supports(self._model):
            self._cache.mask = mask
            last = torch.arange(1, len(ids) + 1, device=device) * ids.shape[1] - 1
            row = {"input_ids": ids.reshape(1, -1), "position_ids": positions.reshape(1, -1)}
            batch = SimpleNamespace(**row, reads=last, plan=self._cache)
            states = final_states(self._model, batch)
            logits = self._model.get_output_embeddings()(states)
        else:
            logits = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
        self._cache.length += ids.shape[1]
        return logits.float()  # type: ignore[no-any-return]


def _stream(key: str, sampling: Sampling) -> npt.NDArray[np.float64]:
    """A row's uniform numbers in [0, 1), one per token."""
    if sampling.temperature == 0:
        return np.zeros(sampling.max_tokens)
    seed = int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=seed)).random(sampling.max_tokens)


def _pick(logits: Tensor, places: list[int], noise: npt.NDArray[np.float64], sampling: Sampling) -> list[int]:
    """Sample the next token of each row by inverting the cumulative probability of the nucleus, likeliest token first.

    ``logits`` has shape (places, vocabulary); ``places`` and ``noise`` have one entry per row.
    """
    index = torch.tensor(places, device=logits.device)
    if sampling.temperature == 0:
        return logits.argmax(-1)[index].tolist()
    top, ids = _nucleus((logits / sampling.temperature).softmax(-1), sampling.top_p)
    top = top.double()
    # a token is kept if the mass before it is below top_p, so the nucleus is never empty
    top = top * (top.cumsum(-1) - top < sampling.top_p)
    ladder = top.cumsum(-1)[index]
    height = torch.from_numpy(noise).to(ladder.device)[:, None] * ladder[:, -1:]
    place = (ladder > height).int().argmax(-1, keepdim=True)
    return ids[index].gather(1, place)[:, 0].tolist()


def _nucleus(chances: Tensor, top_p: float, widths: tuple[int, ...] = _NUCLEUS) -> tuple[Tensor, Tensor]:
    """Probabilities and ids of the likeliest tokens, descending, each (places, tokens): the nucleus per place."""
    if not widths or widths[0] >= chances.shape[1]:
        return chances.sort(dim=-1, descending=True, stable=True)
    top, ids = chances.topk(widths[0], dim=-1)
    short = top.sum(-1) <= top_p
    if short.any():
        wider = _nucleus(chances[short], top_p, widths[1:])
        top, ids = (pad(x, (0, wider[0].shape[1] - widths[0])) for x in (top, ids))
        top[short], ids[short] = wider
    return top, ids


def _end_ids(files: Path, config: Any, tokenizer: Any) -> frozenset[int]:
    """All ids that end a text: from generation settings, configuration, tokenizer and chat format."""
    path = files / "generation_config.json"
    settings = read_json(path) if path.exists() else {}
    configured = [
        settings.get("eos_token_id") if isinstance(settings, dict) else None,
        *(getattr(source, "eos_token_id", None) for source in (config, tokenizer)),
        tokenizer.get_vocab().get(END_OF_TURN),
    ]
    ids = {int(i) for entry in configured if entry is not None for i in (entry if isinstance(entry, list) else [entry])}
    if not ids:
        raise DataError("the model defines no end token; set eos_token_id in its config.json")
    return frozenset(ids)
