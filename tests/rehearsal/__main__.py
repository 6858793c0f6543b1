"""Rehearse the GPU profiles on a CPU: python -m tests.rehearsal [PROFILE …], or put faults back with --faults."""

from __future__ import annotations

import argparse
import sys
import time

from pathfinder.core.text import errors_without_traceback
from tests.rehearsal.faults import plant_all
from tests.rehearsal.rehearse import rehearsal
from tests.rehearsal.show import RehearsalError, show

NOT_REHEARSED = (
    "CUDA kernels: FlexAttention and vLLM on a card, their rounding and their speed (make gpu-day)",
    "NCCL between cards and machines; gloo takes its place",
    "memory at full size: peaks of training, vLLM's cache; `pathfinder plan --gpu` estimates it",
    "hours and cost of each stage; `pathfinder plan --gpu` estimates them",
    "the CUDA build of PyTorch and the driver; `make doctor` checks a machine",
    "vLLM's engine: loading and quantising 32B weights, batching, its random numbers",
    "the real Hub and raw-file hosts: rate limits, restricted repositories, hours of transfer",
    "answers of the real judge and policy: how many parse, agree and finish",
    "a file system that several machines share",
)
"""What remains unknown without a card; at most ten lines."""


def main() -> None:
    """Run the rehearsal and print a summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__)
    parser.add_argument("profiles", nargs="*", help="GPU profiles (default: all)")
    parser.add_argument("--committed", action="store_true", help="leave uncommitted changes out")
    parser.add_argument("--verbose", action="store_true", help="show the output of every command")
    parser.add_argument("--faults", nargs="*", type=int, help="instead: put the faults of these numbers (or all) back")
    given = parser.parse_args()
    start = time.monotonic()
    with errors_without_traceback(), rehearsal(given.profiles, given.committed, given.verbose) as run:
        try:
            if given.faults is not None:
                plant_all(run.clone, given.faults)
                return
            run.run()
        except RehearsalError as error:
            show(f"\nfailed: {error}")
            sys.exit(1)
    show(f"rehearsed {', '.join(run.names)} in {time.monotonic() - start:.0f} s")
    for line in NOT_REHEARSED:
        show(f"  not rehearsed: {line}")


if __name__ == "__main__":
    main()
