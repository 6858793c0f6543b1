"""AdamW (Loshchilov and Hutter 2019) by torch's fused function. torch's class imports its compiler, which takes two
seconds.

The constants are the defaults of ``torch.optim.AdamW``. Biases and the weights of norms, which have one dimension, do
not decay.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.adamw import adamw


class AdamW:
    """The optimiser of the trained parameters of a network."""

    def __init__(self, network: torch.nn.Module, weight_decay: float) -> None:
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._groups = [
            (weight_decay, [parameter for parameter in trained if parameter.dim() > 1]),
            (0.0, [parameter for parameter in trained if parameter.dim() <= 1]),
        ]
        self.state: dict[Any, dict[str, torch.Tensor]] = {}
        """Per parameter ``step``, ``exp_avg`` and ``exp_avg_sq``, from its first step on."""

    def step(self, rate: float) -> None:
        """Change the parameters with the learning rate ``rate`` by their gradients, and remove the gradients."""
        for decay, group in self._groups:
            taken: list[torch.Tensor] = [parameter for parameter in group if parameter.grad is not None]
            states = [self.state.get(parameter) or self._begin(parameter) for parameter in taken]
            grads, averages, squares, steps = (
                [x.grad for x in taken if x.grad is not None],
                *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")),
            )
            settings: dict[str, Any] = {"amsgrad": False, "maximize": False, "fused": True}
            settings |= {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "lr": rate, "weight_decay": decay}
            with torch.no_grad():
                adamw(taken, grads, averages, squares, [], steps, **settings)
            for parameter in taken:
                parameter.grad = None

    def _begin(self, parameter: Any) -> dict[str, torch.Tensor]:
        zeros = {name: torch.zeros_like(parameter.detach()) for name in ("exp_avg", "exp_avg_sq")}
        self.state[parameter] = {"step": torch.zeros((), device=parameter.device)} | zeros
        return self.state[parameter]
