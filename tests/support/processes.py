"""Several processes that train together on the CPU (gloo), as torchrun starts them on GPUs.

They are forked from one server that has imported the library, because the imports take longer than the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from accelerate.utils import DistributedType

_SERVER: Any = multiprocessing.get_context("forkserver")
_TIMEOUT_S = 240


def in_processes(count: int, work: Callable[..., None], *arguments: Any, folder: Path) -> str:
    """Run ``work(*arguments)`` in ``count`` processes and return their standard error, which passes through ``folder``.

    ``work`` is a function of a module. Fails with the traceback of the first process that fails.
    """
    _SERVER.set_forkserver_preload(["pathfinder.training.trainer", "tests.support.training"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    logs = [folder / f"stderr-{rank}" for rank in range(count)]
    processes = [
        _SERVER.Process(target=_run, args=(rank, count, port, log, work, arguments)) for rank, log in enumerate(logs)
    ]
    for process in processes:
        process.start()
    try:
        for process, log in zip(processes, logs, strict=True):
            process.join(_TIMEOUT_S)
            assert process.exitcode == 0, log.read_text()[-4000:]
    finally:
        for process in processes:
            process.kill()
    return "".join(log.read_text() for log in logs)


def _run(rank: int, count: int, port: int, log: Path, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    try:
        PartialState(cpu=True)
        work(*arguments)
        torch.distributed.barrier()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    torch.distributed.destroy_process_group()


def shard_on_cpu(root: Path) -> None:
    """Shard with the shipped settings. accelerate shards only on GPUs, torch on any device."""
    shipped = yaml.safe_load((root / "infra/accelerate/machine.yaml").read_text())["fsdp_config"]
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    for key, value in shipped.items():
        os.environ[key.upper()] = str(value).lower() if isinstance(value, bool) else str(value)

    def backend(self: Any, *_: Any, **__: Any) -> tuple[str, Any]:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        return "gloo", DistributedType.MULTI_GPU

    PartialState._prepare_backend = backend
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
