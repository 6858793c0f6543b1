"""Print a digest of results that depend on the CPU's kernels: PyTorch's and NumPy's functions and a training step.

Run     [PATHFINDER_KERNELS=…] python -m tests.support.processor.results
"""

from __future__ import annotations

import hashlib
import json

import stages  # pins the kernels, as in a stage

assert stages

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def results() -> dict[str, str]:
    """A digest of each result."""
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.empty(shape).uniform_(-3, 3, generator=draws)

    x = drawn(1000, 96)
    query, key, value = (drawn(2, 4, 50, 16) for _ in range(3))
    found = {
        f"matmul {m}": drawn(m, k) @ drawn(k, n) for m, k, n in ((1, 64, 64), (7, 96, 96), (300, 96, 256), (17, 333, 9))
    }
    found |= {
        "exp": x.exp(),
        "softmax": x.softmax(-1),
        "silu": F.silu(x),
        "sum": x.sum(1),
        "attention": F.scaled_dot_product_attention(query, key, value),
        "step": _step(x),
    }
    plain = np.abs(x.numpy().astype(np.float64))
    arrays = {name: tensor.numpy() for name, tensor in found.items()}
    arrays |= {
        "numpy exp": np.exp(plain),
        "numpy log": np.log(plain),
        "numpy log1p": np.log1p(plain),
        "numpy matmul": plain @ plain.T,
    }
    return {name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for name, array in arrays.items()}


def _step(x: torch.Tensor) -> torch.Tensor:
    """Weights after one step of AdamW."""
    weights = torch.nn.Parameter(torch.ones(96, 64))
    F.cross_entropy(F.silu(x @ weights), torch.zeros(1000, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
    torch.optim.AdamW([weights]).step()
    return weights.detach()


if __name__ == "__main__":
    print(json.dumps(results()))
