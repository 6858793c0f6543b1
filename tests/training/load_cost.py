"""The work of test_speed's processes: load a model in the way given and note the memory that it took."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from ground.io import write_json
from pathfinder.models.folders import open_model
from pathfinder.models.model import add_labels, load_model
from pathfinder.models.sharding import cut, load_sharded
from pathfinder.models.tokens import load_tokenizer
from tests.support.processes import shard_on_cpu
from tests.training.train_cost import status


def load(base: Path, way: str, out: Path) -> None:
    """``way`` is rows (each process reads its own) or whole (each reads all, then the model is cut)."""
    shard_on_cpu(Path.cwd())
    tokenizer = load_tokenizer(base)
    status_before = status("VmRSS"), status("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    start = time.perf_counter()
    if way == "rows":
        network, _ = load_sharded(base, tokenizer, "float32")
    else:
        network = load_model(open_model(base), where="cpu")
        add_labels(network, tokenizer)
        cut(network, "float32")
    figures = {
        "seconds": time.perf_counter() - start,
        "parameters": float(sum(parameter.numel() for parameter in network.parameters())),
        "peak": status("VmHWM") - status_before[0],
        "anonymous": status("RssAnon") - status_before[1],
    }
    write_json(out / f"{torch.distributed.get_rank()}.json", figures)
