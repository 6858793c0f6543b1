"""The parts of a GPU day in their order, and the process that runs one of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ground.io import write_json
from infra.gpu_day.day import Day, Report
from infra.gpu_day.inputs import inputs
from infra.gpu_day.stage_parts import benchmarks, judge, lora, replica
from infra.gpu_day.tests_part import tests


@dataclass(frozen=True, slots=True)
class Part:
    """A part with its title and its time limit in seconds; ``work`` imports torch only when it runs."""

    name: str
    title: str
    limit: float
    work: Callable[[Day], Report]


def _kernels(day: Day) -> Report:
    from infra.gpu_day.kernels import kernels

    return kernels(day)


def _share(day: Day) -> Report:
    from infra.gpu_day.share import share

    return share(day)


PARTS = (
    Part("tests", "Tests that need a card", 180, tests),
    Part("inputs", "Data and models", 240, inputs),
    Part("kernels", "FlexAttention over trees against float64", 150, _kernels),
    Part("share", "Speed and share of the card's peak", 200, _share),
    Part("judge", "A judge of 1.5B behind vLLM over 500 steps of PRM800K", 400, judge),
    Part("lora", "LoRA training on 2,000 records", 300, lora),
    Part("benchmarks", "ProcessBench and PRMBench at about 100 items", 200, benchmarks),
    Part("replica", "The level replica, in the time that is left", 1800, replica),
)


def run_part(name: str, day: Day, result: Path) -> None:
    """Run one part in this process and write its report to ``result``; raises ``SystemExit`` for an unknown name."""
    part = next((part for part in PARTS if part.name == name), None)
    if part is None:
        sys.exit(f"{name}: no such part; expected one of {', '.join(part.name for part in PARTS)}")
    write_json(result, asdict(part.work(day)))
