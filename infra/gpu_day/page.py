"""Writes docs/gpu.md: the measurements on a card, or a note that there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.doctor.cards import CAPABILITY, DRIVER
from infra.gpu_day.day import ROOT, Day
from infra.gpu_day.parts import PARTS
from infra.gpu_day.tests_part import marked_files
from pathfinder.pages.page import markdown_table

PAGE = ROOT / "docs/gpu.md"
_HEAD = f"""\
# On a GPU

For researchers with an NVIDIA card: the requirements, and the measurements on a card. [paper.md](paper.md) has the
paper's experiment.

    make gpu-day                         # measure on a machine with a card, within 30 minutes, and write this page
    python -m infra.gpu_day --rehearse   # the same parts on a CPU at a tiny size; .pathfinder/gpu_day/rehearsal/gpu.md

## What the machine needs

| | |
| --- | --- |
| card | compute capability {CAPABILITY} or higher (A100, RTX 30 and newer), because the profiles use bfloat16 |
| driver | {DRIVER} or newer: the wheels contain CUDA 13, which does not start with an older driver |
| C compiler, Python.h | `sudo apt-get install gcc python3.11-dev`: Triton compiles the launchers of its kernels |
| the environments | `make BUILD=cuda env` and `make vllm`, about 20 GB; both are hash-locked |

`make doctor` checks each of these and prints the command that installs what is missing. A stage that needs the compiler
stops with the same command. The wheels contain the CUDA libraries; no CUDA toolkit is needed.

## The parts

If a part fails or exceeds its time limit, the page reports it, and the other parts run. A second run of the command
skips the parts that have succeeded on the same machine at the same commit; `--again` repeats them, and `--only` selects
parts. Data and models come from the folder that `PATHFINDER_MIRROR` names, or from the network. Without either, the
data are the shipped world and the models have random weights in their true shape. The page then states both.
"""


def render(machine: Mapping[str, str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page; both arguments are empty if no part has run."""
    rows = [
        (f"`{part.name}`", part.title, f"{part.limit / 60:.0f} min", _state(results.get(part.name))) for part in PARTS
    ]
    sections = [_HEAD, _table(("part", "what", "limit", "result"), rows), _tests()]
    if machine:
        sections.append("## The machine\n\n" + _table(("", ""), [*machine.items()]))
    for part in PARTS:
        if part.name in results:
            sections.append(_section(part.title, results[part.name]))
    if not machine:
        sections.append(
            "## Results\n\nNot yet run: no machine with a card was available. `make gpu-day` adds the results.\n"
        )
    return "\n".join(sections)


def _state(result: Mapping[str, Any] | None) -> str:
    return "not yet run" if result is None else str(result["status"])


def _tests() -> str:
    files = ", ".join(f"`{name}`" for name in marked_files())
    return f"Tests marked `gpu` (`pytest -m gpu`), which run first: {files}.\n"


def _section(title: str, result: Mapping[str, Any]) -> str:
    lines = [
        f"## {title}\n",
        f"Result: {result['status']} after {result['seconds']:.0f} s. Command: `{result['command']}`\n",
    ]
    if result["figures"]:
        lines.append(_table(("", ""), [tuple(row) for row in result["figures"]]))
    lines += [f"- {problem}" for problem in result["problems"]]
    return "\n".join(lines) + ("\n" if result["problems"] else "")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return markdown_table(header, [[cell.replace("|", "\\|") for cell in row] for row in rows]) + "\n"


def page_of(day: Day) -> Path:
    """Where the page is written."""
    return day.folder / "gpu.md" if day.rehearsal else PAGE
