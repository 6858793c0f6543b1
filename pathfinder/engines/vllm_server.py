"""Start vLLM as a child process on GPUs of its own, wait until it is ready, and stop it when this process ends.

vLLM has its own environment and is reached only over HTTP. A watcher process leads the server's process group and stops
it when this process ends, whatever the signal; an orphaned server would keep its GPUs.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ground.io import DataError, TransientError
from ground.progress import Progress
from ground.text import printable
from pathfinder.core.hub import cached_folder, read_hub_model
from pathfinder.core.params import Vllm
from pathfinder.models import cards
from pathfinder.models.cards import Card

_POLL_S = 0.5
_GRACE_S = 20.0
_LOG_BYTES = 2000
# The watcher runs the command in its own process group and stops the group when its standard input is closed.
_WATCHER = """
import os, signal, subprocess, sys, threading
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=lambda: (server.wait(), os._exit(min(abs(server.returncode), 125))), daemon=True).start()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.buffer.read()
os.killpg(0, signal.SIGTERM)
try:
    server.wait(%f)
finally:
    os.killpg(0, signal.SIGKILL)
"""


@contextmanager
def vllm_servers(
    folder: Path, name: str, max_model_len: int, settings: Vllm, logs: Path, mine: Sequence[Card] | None = None
) -> Iterator[list[str]]:
    """Run ``settings.replicas`` servers of the model in ``folder`` under ``name`` and yield their base URLs.

    Each has ``settings.tensor_parallel`` of the GPUs ``mine`` (default: those that this process sees; the caller has
    leased them). Their output goes to the folder ``logs``. Raises ``DataError`` if the command or GPUs are missing or a
    server exits while it starts, ``TransientError`` if a server is not ready in time; the messages quote the end of the
    log.
    """
    mine = cards.visible() if mine is None else mine
    if mine and len(mine) < settings.gpus:
        raise DataError(
            f"{settings.replicas} servers with tensor_parallel {settings.tensor_parallel} need {settings.gpus} "
            f"GPUs, {len(mine)} are visible; lower vllm.replicas or vllm.tensor_parallel in params.yaml"
        )
    if shutil.which(settings.command[0]) is None:
        raise DataError(
            f"{settings.command[0]}: command not found; create vLLM's environment (`make vllm`), correct "
            "vllm.command in params.yaml, or use engine openai with your own servers"
        )
    logs.mkdir(parents=True, exist_ok=True)
    model = read_hub_model(folder)  # a server never fetches anything by itself
    served = folder if model is None else cached_folder(folder, model)
    flags = [str(served), *_flags(name, max_model_len, settings)]
    with ExitStack() as stack:
        # SIGTERM becomes SystemExit, so that this block stops its servers before the process ends
        before = signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))
        stack.callback(signal.signal, signal.SIGTERM, before)
        servers = []
        for number in range(settings.replicas):
            port, log = _free_port(), logs / f"vllm-{number}.log"
            command = [*settings.command, *flags, "--host", "127.0.0.1", "--port", str(port)]
            own = mine[number * settings.tensor_parallel :][: settings.tensor_parallel]
            process = stack.enter_context(_running(command, log, _environment(own)))
            servers.append((f"http://127.0.0.1:{port}", process, log))
        deadline = time.monotonic() + settings.start_timeout_s
        with Progress("vllm serve", int(settings.start_timeout_s), "s of the time limit") as progress:
            for url, process, log in servers:
                _await_health(url, process, log, deadline, progress)
        yield [f"{url}/v1" for url, _, _ in servers]


def _flags(name: str, max_model_len: int, settings: Vllm) -> list[str]:
    values = {
        "--served-model-name": name,
        "--max-model-len": max_model_len,
        "--dtype": settings.dtype,
        "--generation-config": "vllm",  # the model's own settings would add top_k and repetition_penalty to every call
        "--tensor-parallel-size": settings.tensor_parallel,
        "--gpu-memory-utilization": settings.gpu_memory_utilization,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--max-num-seqs": settings.max_num_seqs,
    }
    return [text for flag, value in values.items() for text in (flag, str(value))] + list(settings.options)


def _environment(mine: Sequence[Card]) -> dict[str, str]:
    """A server sees only its own GPUs, compiles nothing with nvcc, and sends no usage statistics.

    vLLM would compile FlashInfer's sampler while it starts, but not use it: each call has a seed, or temperature 0.
    """
    own = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return os.environ | cards.environment(mine) | own


@contextmanager
def _running(command: Sequence[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    watcher = [sys.executable, "-c", _WATCHER % _GRACE_S, *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            watcher,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            pass_fds=cards.descriptors(),  # the watcher keeps the lease until the server has ended
        )
    try:
        yield process
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_GRACE_S + 5)  # closes its standard input
        with suppress(ProcessLookupError):  # workers of a server that exited
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path, deadline: float, progress: Progress) -> None:
    import httpx  # the import takes a tenth of a second, and most stages start no server

    while (left := deadline - time.monotonic()) > 0:
        if process.poll() is not None:
            raise DataError(
                f"vLLM exited with status {process.returncode} while it started; {log} ends with\n{_tail(log)}"
            )
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        time.sleep(_POLL_S)
        progress.advance(max(int(progress.total - left) - progress.done, 0), f"log: {log}")
    raise TransientError(
        f"{url}: vLLM was not ready in time; raise vllm.start_timeout_s. {log} ends with\n{_tail(log)}"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(log: Path) -> str:
    return printable(log.read_bytes()[-_LOG_BYTES:].decode("utf-8", "replace"))
