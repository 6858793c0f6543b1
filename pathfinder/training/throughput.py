"""The speed of training: tokens per second, and the model FLOPs that the hardware attains.

Model FLOPs are the FLOPs that the mathematics needs, so recomputation under gradient checkpointing does not count. One
forward pass over a tree of n tokens with r readings needs

    2 n L m  +  4 L q p  +  2 r h v

for L layers whose matrices have m parameters, a query width q, a hidden size h and a vocabulary of v tokens; p is the
number of pairs of a token and a token that it sees (each token sees itself). The backward pass needs twice as much: the
gradients of the inputs and of the weights. An adapter trains few weights, so it needs only the gradients of the inputs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from pathfinder.models.architectures import Shape
from pathfinder.training.examples import Example

_FULL, _ADAPTER = 3, 2
"""Passes of training in units of a forward pass."""


def training_flops(shape: Shape, example: Example, adapter: bool = False) -> float:
    """Model FLOPs of one forward and backward pass over an example."""
    tokens, readings = len(example.tree), len(example.targets.marks)
    pairs = float(example.tree.depth.sum(dtype=float)) + tokens
    forward = 2.0 * tokens * shape.layers * shape.matrix_parameters
    forward += 4.0 * shape.layers * shape.query_width * pairs
    forward += 2.0 * readings * shape.hidden * shape.vocabulary
    return (_ADAPTER if adapter else _FULL) * forward


class Throughput:
    """Counts the work of a run in all processes, from its creation on."""

    def __init__(self, shape: Shape, adapter: bool, processes: int) -> None:
        self._shape, self._adapter, self._processes = shape, adapter, processes
        self.steps, self.tokens, self.flops, self._start = 0, 0, 0.0, time.monotonic()

    def add(self, examples: Iterable[Example]) -> None:
        """Count the examples of an optimiser step."""
        self.steps += 1
        for example in examples:
            self.tokens += len(example.tree)
            self.flops += training_flops(self._shape, example, self._adapter)

    def figures(self) -> dict[str, float]:
        """Seconds, tokens, optimiser steps and tokens per second, and model TFLOP/s of each process."""
        seconds = max(time.monotonic() - self._start, 1e-9)
        return {
            "seconds": seconds,
            "tokens": float(self.tokens),
            "steps_per_second": self.steps / seconds,
            "tokens_per_second": self.tokens / seconds,
            "tflops_per_process": self.flops / self._processes / seconds / 1e12,
        }

    def __str__(self) -> str:
        found = self.figures()
        return f"{found['tokens_per_second']:,.0f} tokens/s, {found['tflops_per_process']:.3g} TFLOP/s per process"
