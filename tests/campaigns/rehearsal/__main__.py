"""Rehearse the GPU profiles on a CPU: python -m tests.campaigns.rehearsal [PROFILE …]; --faults puts faults back."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ground.text import errors_without_traceback
from tests.campaigns.rehearsal import lanes, times
from tests.campaigns.rehearsal.faults import plant_all
from tests.campaigns.rehearsal.material import ROOT
from tests.campaigns.rehearsal.profiles import gpu_profiles
from tests.campaigns.rehearsal.rehearse import FAULTS, rehearsal
from tests.campaigns.rehearsal.show import RehearsalError, show

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
"""The questions that remain open without a card; at most ten lines."""


def main() -> None:
    """Run the rehearsal and print a summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.rehearsal", description=__doc__)
    parser.add_argument("profiles", nargs="*", help="GPU profiles (default: all)")
    parser.add_argument("--committed", action="store_true", help="leave uncommitted changes out")
    parser.add_argument("--verbose", action="store_true", help="show the output of every command")
    parser.add_argument("--lanes", type=int, default=2, help="profiles side by side (default: 2)")
    parser.add_argument("--lane", type=Path, help=argparse.SUPPRESS)  # the folder of one lane
    parser.add_argument("--faults", nargs="*", type=int, help="instead: put the faults of these numbers (or all) back")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what this process has started
    try:
        with errors_without_traceback():
            if given.lane:
                with rehearsal(given.lane, given.profiles, given.committed, given.verbose) as run:
                    run.run()
            elif given.faults is not None:
                with lanes.folder() as base, rehearsal(base / "1", (), given.committed) as run:
                    plant_all(run.clone, given.faults)
            else:
                rehearse(given.profiles, given.lanes, given.committed, given.verbose)
    except RehearsalError as error:
        show(f"\nfailed: {error}")
        sys.exit(1)


def rehearse(names: Sequence[str] = (), count: int = 2, committed: bool = False, verbose: bool = False) -> list[str]:
    """Rehearse the profiles ``names``, or all and the tests of the faults, in ``count`` lanes; show what that took.

    Returns what was rehearsed; raises ``RehearsalError`` if one of them fails.
    """
    start = time.monotonic()
    # The tests of the faults come first: they need a clone as it was committed.
    chosen = times.longest_first(names) if names else [FAULTS, *times.longest_first(gpu_profiles(ROOT))]
    count = min(count, len(chosen))
    show(f"{len(chosen)} parts in {count} lanes, {times.left(chosen)}")
    flags = [*(["--committed"] if committed else []), *(["--verbose"] if verbose else [])]
    try:
        with lanes.folder() as base:
            lanes.side_by_side(count, base, [*flags, *chosen])
    finally:
        show(f"{time.monotonic() - start:.0f} s, {times.cpu_seconds():.0f} s of CPU with all servers")
    show(f"rehearsed {', '.join(chosen)}")
    for line in NOT_REHEARSED:
        show(f"  not rehearsed: {line}")
    return chosen


if __name__ == "__main__":
    main()
