"""A plan for people: tables and sentences from the document that ``Plan.as_json`` returns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pathfinder.models.footprint import describe
from pathfinder.planning import estimates

MEMORY = ("stage", "fits", "GPUs", "GiB on each", "of which")
HOURS = ("stage", "hours", "judge's tokens", "cost", "basis")
OVERVIEW = ("profile", "machine", "fits", "hours", "judge's tokens", "main memory, GiB", "disk, GB")
Document = Mapping[str, Any]
Table = tuple[Sequence[str], Iterable[Sequence[str]]]
"""A header and its rows."""


def parts(plan: Document) -> Iterator[str | Table]:
    """The lines and tables that show a plan."""
    yield title(plan)
    yield MEMORY, memory_rows(plan)
    yield from settings_lines(plan)
    if plan["hours"]:
        yield HOURS, hour_rows(plan)
    yield from lines(plan)


def title(plan: Document) -> str:
    """The profile and the machine."""
    device = plan["device"]
    each = " each" if device["cards"] > 1 else ""
    what = f"{device['cards']} x {device['name'] or 'GPU'}" if device["kind"] == "cuda" else "the CPU"
    return f"{plan['profile']} on {what} with {device['free_gib']:.0f} of {device['total_gib']:.0f} GiB free{each}"


def memory_rows(plan: Document) -> Iterator[tuple[str, ...]]:
    """Rows of ``MEMORY``."""
    for stage in plan["stages"]:
        name, fits = stage["stage"], "yes" if stage["fits"] else "no"
        if stage["runs_elsewhere"]:
            yield name, fits, "0", "0.0", "its model runs elsewhere"
        for process in stage["processes"]:
            share, parts = process["share_of_card"], describe(process["parts_gib"], 1.0)
            model = re.sub(r"\S+/", "", process["model"])
            taken = f", server on {share:.0%} of each card" if share else ""
            yield name, fits, str(process["cards"]), f"{process['gib']:.1f}", f"{model}{taken}: {parts}"
            name = fits = ""


def settings_lines(plan: Document) -> Iterator[str]:
    """The stages that do not fit, and settings that make them fit, one key and value of params.yaml per line."""
    small = [stage for stage in plan["stages"] if not stage["fits"]]
    never = [stage for stage in small if not stage["fits_with_settings"]]
    if small:
        yield f"does not fit: {', '.join(stage['stage'] for stage in small)}"
    yield from (f"{stage['stage']}: {stage['remedy']}" for stage in never)
    if plan["settings"]:
        yield f"With these settings {'all other stages fit' if never else 'every stage fits'}:"
        yield from (f"  {key}: {value}" for key, value in plan["settings"].items())


def hour_rows(plan: Document) -> Iterator[tuple[str, ...]]:
    """Rows of ``HOURS``, then the sum."""
    for each in plan["hours"]:
        hours = "by its server" if each["hours"] is None else f"{each['hours']:.1f}"
        yield each["stage"], hours, _millions(each["tokens"]), _cost(each), each["basis"]
    yield "all", f"{_hours(plan):.0f}", _tokens(plan), "", ""


def lines(plan: Document) -> Iterator[str]:
    """Main memory, disk and the basis of the hours as sentences; empty for generated worlds."""
    memory, free = plan["main_memory_gib"], plan["free_main_memory_gib"]
    if memory:
        largest = max(memory, key=memory.__getitem__)
        here = "" if free is None else f"; free here: {free:.0f} GiB{_enough(memory[largest] <= free)}"
        yield f"main memory: {memory[largest]:.0f} GiB ({largest}){here}"
    if plan["disk_gb"] and not plan["disks"]:
        yield f"disk: {_gigabytes(plan['disk_gb'])}"
    for disk in plan["disks"]:
        where = f"disk of {disk['folder']}" if len(plan["disks"]) > 1 else "disk"
        enough = _enough(sum(disk["parts_gb"].values()) <= disk["free_gb"])
        yield f"{where}: {_gigabytes(disk['parts_gb'])}; free here: {disk['free_gb']:.0f} GB{enough}"
    if peaks := plan["peaks"]:
        yield (
            f"hours: not measured; {estimates.LEARN_SHARE:.0%} of the {peaks['tflops']:.0f} TFLOP/s of one "
            f"{peaks['name']} in training, {estimates.READ_SHARE:.0%} in scoring, {estimates.WRITE_SHARE:.0%} of its "
            f"{peaks['tbps']:.2f} TB/s in generation; docs/paper.md lists every assumption"
        )


def overview(plans: Mapping[str, Document], machines: Mapping[str, str]) -> Table:
    """One row per plan; ``machines`` are the machines that the heads of the profiles name."""
    return OVERVIEW, [
        (
            name,
            machines[name],
            "fits" if plan["fits"] else "does not fit",
            f"{_hours(plan):.0f}",
            _tokens(plan),
            f"{max(plan['main_memory_gib'].values(), default=0.0):.0f}",
            f"{sum(plan['disk_gb'].values()):.0f}",
        )
        for name, plan in plans.items()
    ]


def _hours(plan: Document) -> float:
    return sum(each["hours"] or 0.0 for each in plan["hours"])


def _tokens(plan: Document) -> str:
    return _millions(sum(each["tokens"] for each in plan["hours"]))


def _gigabytes(sizes: Mapping[str, float]) -> str:
    return f"{sum(sizes.values()):.0f} GB ({', '.join(f'{name} {size:.0f}' for name, size in sizes.items())})"


def _enough(suffices: bool) -> str:
    return "" if suffices else ", which is too little"


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:,.0f} M" if tokens else ""


def _cost(each: Document) -> str:
    if not each["tokens"] or each["hours"] is not None:
        return ""
    return f"{each['tokens'] / 1e6 * each['price']:,.0f}" if each["price"] else "no price set"
