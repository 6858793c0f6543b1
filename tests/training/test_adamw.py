from __future__ import annotations

import torch

from pathfinder.training.adamw import AdamW


def test_it_takes_the_steps_of_torch_and_spares_vectors_the_decay() -> None:
    torch.manual_seed(1)
    mine = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
    theirs.load_state_dict(mine.state_dict())
    mine[2].bias.requires_grad_(False)
    theirs[2].bias.requires_grad_(False)
    matrices = [x for x in theirs.parameters() if x.dim() == 2]
    vectors = [x for x in theirs.parameters() if x.dim() == 1 and x.requires_grad]
    groups = [{"params": matrices, "weight_decay": 0.3}, {"params": vectors, "weight_decay": 0.0}]
    own, reference = AdamW(mine, 0.3), torch.optim.AdamW(groups, fused=True)
    for rate in (1e-2, 3e-3, 0.0, 1e-3):
        data = torch.randn(4, 5)
        for network in (mine, theirs):
            network(data).square().sum().backward()
        own.step(rate)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        reference.zero_grad()
        assert all(x.grad is None for x in mine.parameters())
    for x, y in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(x, y)
