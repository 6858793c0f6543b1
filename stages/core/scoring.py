"""The PRM as a scorer: probabilities of every step's labels and its reward, whole solutions in one forward pass.

Per step: P(``<+>``) of the first-pass labels, and P(``<+>``) at Correctness given the *predicted* first labels (paper
algorithm 1). All label combinations are branches of one tree, so both passes cost one forward pass. ``Rounds`` keeps
what the model computed of each problem's trunk from one round of candidates to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stages.core.attention import read_logits, use_trees
from stages.core.io import DataError, read_json
from stages.core.model import DTYPES, load_model, resolve
from stages.core.passes import PRESETS, Prompter, Query, Reading
from stages.core.prompts import VARIANTS, Variant
from stages.core.tokens import load_tokenizer
from stages.core.tree import Backend, Tree, TreeBatch, Trunk, batch_onto, batch_trees, grown, known_nodes, pack

MODEL_FILE = "pathfinder.json"
_CHUNK = 256
"""Solutions whose prompts are held at once."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A problem and the steps of one solution."""

    id: str
    problem: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Steps that might come next after ``prefix``."""

    problem: str
    prefix: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepScore:
    """Probabilities of ``<+>``; None where the variant has no such label."""

    math: float | None
    consistency: float | None
    error_free: float | None
    reward: float

    @property
    def labels(self) -> dict[str, bool]:
        """The first-pass labels (empty for a variant without subtasks)."""
        stated = {"math": self.math, "consistency": self.consistency, "error_free": self.error_free}
        return {name: p >= 0.5 for name, p in stated.items() if p is not None}

    @property
    def has_error(self) -> bool:
        """Is any first-pass label negative? Without subtasks: is the reward below one half?"""
        return not all(self.labels.values()) if self.labels else self.reward < 0.5


class Scorer:
    """A PRM folder (``pathfinder.json`` names its variant), loaded and switched to trees."""

    def __init__(
        self,
        folder: Path,
        preset: str = "default",
        dtype: str = "float32",
        token_budget: int = 16384,
        backend: Backend = "auto",
    ) -> None:
        if preset not in PRESETS:
            raise DataError(f"unknown preset {preset!r}; expected one of {', '.join(PRESETS)}")
        path = resolve(folder)
        self.variant = _variant(path)
        self._prompter = Prompter(load_tokenizer(path), self.variant, PRESETS[preset])
        self._model = load_model(path, dtype)
        use_trees(self._model)
        self._dtype, self._budget, self._backend = DTYPES[dtype], token_budget, backend
        self._longest = int(getattr(self._model.config, "max_position_embeddings", 2**31))

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Scores of every step of every solution; ``on_done`` hears how many more solutions are finished.

        Raises ``DataError`` naming a solution that is longer than the model's context.
        """
        groups = [
            [Query(f"{s.id}, step {t}", s.problem, s.steps[:t], step) for t, step in enumerate(s.steps)]
            for s in solutions
        ]
        return self._score(groups, on_done)

    def _score(self, groups: list[list[Query]], on_done: Callable[[int], None] | None) -> list[list[StepScore]]:
        out: list[list[StepScore]] = [[] for _ in groups]
        length = [sum(len(t) for q in group[-1:] for t in (q.problem, *q.prefix, q.step)) for group in groups]
        order = sorted(range(len(groups)), key=lambda i: (length[i], i))  # alike in length together: little padding
        for start in range(0, len(order), _CHUNK):
            chunk = [index for index in order[start : start + _CHUNK] if groups[index]]
            trees = [self._tree(groups[index]) for index in chunk]
            for batch in pack([len(tree) for tree, _ in trees], self._budget):
                logits = self._logits([trees[item][0] for item in batch])
                for item in batch:
                    tree, readings = trees[item]
                    mine, logits = logits[: len(tree.reads)], logits[len(tree.reads) :]
                    out[chunk[item]] = self._judge(groups[chunk[item]], readings, mine)
                if on_done is not None:
                    on_done(len(batch))
            if on_done is not None and len(chunk) < len(order[start : start + _CHUNK]):
                on_done(len(order[start : start + _CHUNK]) - len(chunk))
        return out

    def _tree(self, queries: list[Query]) -> tuple[Tree, list[Reading]]:
        tree, readings = self._prompter.tree(queries)
        if len(tree) and int(tree.depth.max()) >= self._longest:
            raise DataError(
                f"{queries[-1].name}: the prompt has over {self._longest} tokens, the model's context; leave it out"
            )
        return tree, readings

    def _onto(self, trunks: dict[str, Trunk], groups: dict[str, list[Query]]) -> dict[str, list[StepScore]]:
        """Scores of every group's queries; ``trunks`` is what is known, and afterwards what these groups left."""
        made = {key: self._tree(queries) for key, queries in groups.items() if queries}
        keys = list(made)
        before = {key: trunks.get(key) or self._no_trunk() for key in keys}
        trunks.clear()
        out: dict[str, list[StepScore]] = {key: [] for key in groups}
        sizes = [len(made[key][0]) - known_nodes(made[key][0], before[key].ids) for key in keys]
        for chosen in pack(sizes, self._budget):
            names = [keys[item] for item in chosen]
            trees, old = [made[name][0] for name in names], [before[name] for name in names]
            with torch.inference_mode():
                batch = batch_onto(trees, old).to(self._model.device, self._dtype)
                logits = self._log_probabilities(batch)
                trunks.update(zip(names, grown(trees, old, batch), strict=True))
            for name, tree in zip(names, trees, strict=True):
                mine, logits = logits[: len(tree.reads)], logits[len(tree.reads) :]
                out[name] = self._judge(groups[name], made[name][1], mine)
        return out

    def _no_trunk(self) -> Trunk:
        config: Any = self._model.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        nothing = torch.empty(config.num_key_value_heads, 0, size, device=self._model.device, dtype=self._dtype)
        layers = (nothing,) * config.num_hidden_layers
        return Trunk(np.empty(0, dtype=np.int32), layers, layers)

    @torch.inference_mode()
    def _logits(self, trees: Sequence[Tree]) -> npt.NDArray[np.float64]:
        return self._log_probabilities(batch_trees(trees, self._backend).to(self._model.device, self._dtype))

    def _log_probabilities(self, batch: TreeBatch) -> npt.NDArray[np.float64]:
        """Per reading: log-probabilities (whole vocabulary) of ``<+>`` and ``<->``, and of the most likely token."""
        logits = read_logits(self._model, batch)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        ids = self._prompter.ids
        two = torch.stack((logits[:, ids.good], logits[:, ids.bad], logits.max(dim=-1).values), dim=-1)
        two = two - logits.logsumexp(dim=-1, keepdim=True)
        return two.double().cpu().numpy()

    def _judge(self, queries: list[Query], readings: list[Reading], logits: npt.NDArray[np.float64]) -> list[StepScore]:
        found = {(r.query, r.given, r.mark): row for r, row in zip(readings, logits, strict=True)}
        return [self._step_score(queries[number].name, number, found) for number in range(len(queries))]

    def _step_score(
        self, name: str, number: int, found: dict[tuple[int, tuple[bool, ...], int], npt.NDArray[np.float64]]
    ) -> StepScore:
        preset, labels = self._prompter.preset, self._prompter.labels
        predicted: list[bool] = []
        stated: dict[str, float] = {}
        for step in self._prompter.passes:
            given = tuple(predicted[: len(step.given)])
            for mark in step.asked:
                good, bad, top = found[number, given, mark].tolist()
                if preset.strict and not step.given and top > max(good, bad):
                    raise DataError(f"{name}: the most likely token at {labels[mark]} is neither <+> nor <->")
                predicted.append(good >= bad)
                stated[labels[mark]] = (
                    float(np.exp(good)) if preset.full_softmax else 1 / (1 + float(np.exp(bad - good)))
                )
        return StepScore(stated.get("math"), stated.get("consistency"), stated.get("error_free"), stated["correctness"])


class Rounds:
    """Rounds of a search over trunks that stay: a problem's candidates cost their own tokens and the last step's."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._trunks: dict[str, Trunk] = {}

    def score(self, rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore]]:
        """Scores of the candidates of every open problem, all problems together; a key that is left out is done.

        Keys name the problems from round to round. What is known of a trunk counts only as far as its tokens agree, so
        any order of calls is right, and the usual one cheap.
        """
        groups = {
            key: [Query(f"{key}, candidate {i}", c.problem, c.prefix, step) for i, step in enumerate(c.steps)]
            for key, c in rounds.items()
        }
        return self._scorer._onto(self._trunks, groups)


def _variant(folder: Path) -> Variant:
    described = folder / MODEL_FILE
    if not described.exists():
        return VARIANTS["full"]  # a published checkpoint carries no description of ours
    name = read_json(described).get("variant")
    if name not in VARIANTS:
        raise DataError(f"{described}: unknown variant {name!r}; expected one of {', '.join(VARIANTS)}")
    return VARIANTS[name]
