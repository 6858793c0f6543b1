"""Cells that differ only in their seed, trained and scored together: their weights are stacked in one tensor each.

A cell's model is so small that a GPU waits for its kernels: many models take hardly longer than one. Plan, objective,
optimiser and trees come from ``pathfinder.training`` and ``pathfinder.tree``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from extras.experiment.cell import Laboratory
from extras.experiment.noise import Flags, Flips, Floats, corrected, estimated
from extras.experiment.plan import Cell
from extras.experiment.rows import Exam, Rows, fill, length_of, place
from ground.io import DataError, read_json, write_json
from ground.progress import Progress
from pathfinder.core.params import Train
from pathfinder.core.steps import StepScore
from pathfinder.models.architectures import Shape
from pathfinder.models.decoder import load_decoder
from pathfinder.models.folders import open_model
from pathfinder.prm.steps import step_score
from pathfinder.training.adamw import AdamW
from pathfinder.training.examples import Example
from pathfinder.training.trainer import plan_of, share_of_rate
from pathfinder.tree.passes import Place, Prompter

_PARTS = 32
"""The rows of trees that one scoring pass of all models reads."""
_GUESSES = 8
"""Seeds whose mean prediction estimates the rates of wrong labels."""
_LAYER = "model.layers.{}."


class Stack(nn.Module):
    """Copies of a decoder, one per seed, whose weights have a first dimension of seeds."""

    def __init__(self, network: Any, seeds: int) -> None:
        super().__init__()
        self.shape: Shape = network.shape
        self.epsilon = network.model.norm.variance_epsilon
        self.frequencies = network.model.rotary_emb.inv_freq
        self.names = [name for name, _ in network.named_parameters()]
        for name, weight in network.named_parameters():
            stacked = weight.detach()[None].repeat(seeds, *(1 for _ in weight.shape))
            self.register_parameter(name.replace(".", "/"), nn.Parameter(stacked))

    def weight(self, name: str) -> Tensor:
        """The stacked weights with this name in the decoder."""
        return self.get_parameter(name.replace(".", "/"))

    def head(self) -> Tensor:
        """The matrix of the logits, (seeds, vocabulary, hidden)."""
        return self.weight("model.embed_tokens.weight" if self.shape.tied else "lm_head.weight")

    def forward(self, rows: Rows, reads: Tensor) -> Tensor:
        """The normed final states (seeds, reads, hidden) at the slots ``reads``, int64 (seeds, reads).

        ``rows`` has a first dimension of seeds.
        """
        seeds, count, length = rows.ids.shape
        is_grouped = self.shape.query_width != self.shape.key_width
        embedding = self.weight("model.embed_tokens.weight")
        base = torch.arange(seeds, device=rows.ids.device)[:, None] * embedding.shape[1]
        hidden = functional.embedding(rows.ids.reshape(seeds, -1) + base, embedding.flatten(0, 1))
        angles = rows.depth.reshape(seeds * count, 1, length, 1).float() * self.frequencies.to(hidden.device)
        turn, visible = (angles.cos(), angles.sin()), rows.visible().view(seeds * count, 1, length, length)
        mask = torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, -torch.inf)
        for number in range(self.shape.layers):
            name = _LAYER.format(number)
            normed = self._norm(f"{name}input_layernorm", hidden)
            query, key, value = (
                self._linear(f"{name}self_attn.{part}_proj", normed)
                .view(seeds * count, length, -1, self.shape.head_width)
                .transpose(1, 2)
                for part in "qkv"
            )
            attended = functional.scaled_dot_product_attention(
                _turned(query, turn),
                _turned(key, turn),
                value,
                attn_mask=mask,
                enable_gqa=is_grouped,
            )
            attended = attended.transpose(1, 2).reshape(seeds, count * length, -1)
            hidden = hidden + self._linear(f"{name}self_attn.o_proj", attended)
            normed = self._norm(f"{name}post_attention_layernorm", hidden)
            gate = functional.silu(self._linear(f"{name}mlp.gate_proj", normed))
            up = self._linear(f"{name}mlp.up_proj", normed)
            hidden = hidden + self._linear(f"{name}mlp.down_proj", gate * up)
        chosen = hidden.gather(1, reads[..., None].expand(-1, -1, hidden.shape[-1]))
        return self._norm("model.norm", chosen)

    def _linear(self, name: str, hidden: Tensor) -> Tensor:
        weight = self.weight(f"{name}.weight").transpose(1, 2)
        if f"{name}.bias" in self.names:
            return torch.baddbmm(self.weight(f"{name}.bias")[:, None], hidden, weight)
        return torch.bmm(hidden, weight)

    def _norm(self, name: str, hidden: Tensor) -> Tensor:
        scaled = hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.epsilon)
        return self.weight(f"{name}.weight")[:, None] * scaled


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = turn
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)


def train(
    network: Any,
    prompter: Prompter,
    examples: Sequence[Example],
    settings: Train,
    seeds: Sequence[int],
    device: str,
    flips: Flips | None = None,
) -> Stack:
    """Train a copy of ``network`` for each of the ``seeds`` of ``settings``, as ``trainer.fit`` trains one.

    With ``flips`` the loss expects labels that are wrong at these rates.
    """
    stack = Stack(network, len(seeds)).to(device)
    optimiser = AdamW(stack, settings.weight_decay)
    plans = [plan_of(examples, settings.model_copy(update={"seed": seed})) for seed in seeds]
    length = length_of([example.tree for example in examples])
    with Progress(f"train {len(seeds)} seeds", len(plans[0]), "steps") as progress:
        for step in range(len(plans[0])):
            chosen = [[examples[item] for item in plan[step]] for plan in plans]
            rows, reads, wanted, weights = _batch(chosen, length, prompter)
            logits = torch.bmm(stack(rows.to(device), reads.to(device)), stack.head().transpose(1, 2))
            wanted = wanted.to(device)
            logits = corrected(logits, prompter.ids, flips) if flips else logits
            losses = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none")
            (losses * weights.to(device).flatten()).sum().backward()  # type: ignore[no-untyped-call]
            _clip(stack, settings.max_grad_norm)
            optimiser.step(settings.learning_rate * share_of_rate(settings, step, len(plans[0])))
            progress.advance()
    return stack


def _batch(chosen: Sequence[Sequence[Example]], length: int, prompter: Prompter) -> tuple[Rows, Tensor, Tensor, Tensor]:
    """Rows, and readings with their true tokens and weights, each (seeds, readings); padding has the weight 0."""
    placed = [place([len(example.tree) for example in mine], length) for mine in chosen]
    count = max(rows for _, rows in placed)
    filled = np.stack(
        [
            fill([example.tree for example in mine], starts, count, length)
            for mine, (starts, _) in zip(chosen, placed, strict=True)
        ],
        axis=1,
    )
    most = max(sum(len(example.targets.marks) for example in mine) for mine in chosen)
    reads, wanted = (np.zeros((len(chosen), most), dtype=np.int64) for _ in range(2))
    weights = np.zeros((len(chosen), most), dtype=np.float32)
    for seed, (mine, (starts, _)) in enumerate(zip(chosen, placed, strict=True)):
        at = np.concatenate([e.tree.reads + start for e, start in zip(mine, starts.tolist(), strict=True)])
        reads[seed, : len(at)] = at
        shares = np.concatenate([example.targets.shares for example in mine])
        wanted[seed, : len(at)] = np.where(shares > 0, prompter.ids.good, prompter.ids.bad)
        given = np.concatenate([example.targets.weights for example in mine])
        weights[seed, : len(at)] = given / given.sum(dtype=np.float64)
    rows = Rows(*(torch.from_numpy(part) for part in filled))
    return rows, torch.from_numpy(reads), torch.from_numpy(wanted), torch.from_numpy(weights)


@torch.no_grad()
def _clip(stack: Stack, most: float) -> None:
    """``clip_grad_norm_`` for each model separately."""
    gradients = [weight.grad for weight in stack.parameters() if weight.grad is not None]
    norms = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0).sqrt()
    shares = (most / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(shares.view(-1, *(1 for _ in gradient.shape[1:])))


@torch.inference_mode()
def margins(stack: Stack, exam: Exam, prompter: Prompter) -> npt.NDArray[np.float32]:
    """The difference of the logits of ``<+>`` and ``<->`` at every place of an exam: float32 (seeds, places)."""
    head = stack.head()
    direction = (head[:, prompter.ids.good] - head[:, prompter.ids.bad])[..., None]
    seeds, length = len(head), exam.rows.ids.shape[-1]
    out = np.zeros((seeds, len(exam.reads)), dtype=np.float32)
    for first in range(0, len(exam.rows.ids), _PARTS):
        rows = exam.rows[first : first + _PARTS]
        mine = np.flatnonzero((exam.reads >= first * length) & (exam.reads < (first + len(rows.ids)) * length))
        reads = torch.from_numpy(exam.reads[mine] - first * length).to(head.device).expand(seeds, -1)
        part = rows.to(head.device)
        states = stack(Rows(*(x.expand(seeds, -1, -1) for x in (part.ids, part.depth, part.end))), reads)
        out[:, mine] = torch.bmm(states, direction)[..., 0].cpu().numpy()
    return out


def gpu_name() -> str:
    """The name of the GPU; raises ``DataError`` if PyTorch finds none."""
    if not torch.cuda.is_available():
        raise DataError("a stack of cells needs a GPU and none was found; leave --stack out to use the cores")
    return torch.cuda.get_device_name()


def scored(
    bench: Laboratory, block: str, cells: Sequence[Cell], device: str
) -> Iterator[tuple[Cell, npt.NDArray[np.float32], Mapping[str, Any]]]:
    """Train and score cells that differ only in their seed: each with its margins, and notes on how it was made."""
    first, started = cells[0], time.monotonic()
    prompter, network = bench.prompter(first), _base(bench, first)
    seeds = [bench.settings(block, cell).seed for cell in cells]
    noise = noise_of(bench, block, first, device)
    flips = noise.get(bench.plan.block(block).correction)
    stack = train(network, prompter, bench.examples(block, first), bench.settings(block, first), seeds, device, flips)
    trained = time.monotonic()
    found = margins(stack, bench.exam(first), prompter)
    parts = {"train": trained - started, "evaluate": time.monotonic() - trained}
    seconds = {name: round(took / len(cells), 2) for name, took in parts.items()}
    for cell, mine in zip(cells, found, strict=True):
        yield cell, mine, {"seconds": seconds} | ({"noise": noise} if noise else {})


def _base(bench: Laboratory, cell: Cell) -> Any:
    return load_decoder(open_model(bench.bases / cell.base), where="cpu")


def noise_of(bench: Laboratory, block: str, cell: Cell, device: str) -> dict[str, Flips]:
    """The shares of a block's wrong labels, ``true`` and ``estimated``; empty without wrong labels.

    The estimate takes 16 trainings, so it is stored in the folder of the material.
    """
    if not any(bench.plan.block(block).flips):
        return {}
    path = bench.noise_path(block, cell)
    if not path.exists():
        settings, first = bench.settings(block, cell), bench.plan.block(block).seeds[0]
        seeds = [bench.settings(block, replace(cell, seed=seed)).seed for seed in range(first, first + _GUESSES)]
        found = observed(_base(bench, cell), bench.prompter(cell), bench.examples(block, cell), settings, seeds, device)
        write_json(path, estimated(*found))
    return {"true": bench.records(block, cell)[1], "estimated": Flips(*read_json(path))}


def observed(
    network: Any, prompter: Prompter, examples: Sequence[Example], settings: Train, seeds: Sequence[int], device: str
) -> tuple[Flags, Floats]:
    """The first label of each reading of all examples, and its probability by models that learnt from the other half.

    Float64 and bool (readings,); a probability is the mean over the seeds.
    """
    labels, chances = list[Flags](), list[Floats]()
    for known, asked in ((examples[::2], examples[1::2]), (examples[1::2], examples[::2])):
        stack = train(network, prompter, known, settings, seeds, device)
        found = margins(stack, Exam.of_trees([example.tree for example in asked], []), prompter)
        chances.append((1 / (1 + np.exp(-found.astype(np.float64)))).mean(0))
        labels.append(np.concatenate([example.targets.positive for example in asked]))
    return np.concatenate(labels), np.concatenate(chances)


def scores_of(bench: Laboratory, cell: Cell, margins: npt.NDArray[np.float32]) -> list[list[list[StepScore]]]:
    """The scores of the three sets of solutions from the margins of a cell."""
    exam, prompter = bench.exam(cell), bench.prompter(cell)
    values, places = iter(margins.tolist()), iter(exam.places)
    out = []
    for solutions in bench.solutions:
        out.append([_steps(prompter, next(places), values, len(solution.steps)) for solution in solutions])
    return out


def _steps(prompter: Prompter, places: Sequence[Place], values: Iterator[float], count: int) -> list[StepScore]:
    """The scores of a solution's steps; ``values`` has the margin of each place, the logits up to a constant."""
    found = {place: (next(values), 0.0, 0.0) for place in places}
    return [step_score(prompter, number, found) for number in range(count)]
