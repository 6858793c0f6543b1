"""Measure on an NVIDIA card, and write tests/campaigns/gpu_day.md.

Run     python -m tests.campaigns.gpu_day              on a machine with a card, within 30 minutes; or `make gpu-day`
        python -m tests.campaigns.gpu_day --rehearse   the same parts on a CPU at a tiny size, within four minutes

The parts are tests with the marker gpu, mostly in test_card.py, and the level replica (docs/world.md). Each is a
process with a time limit and a log in .pathfinder/gpu_day/. The page is written after each part.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from evidence.record.environment import describe_commit, describe_environment
from ground.io import DataError, read_json, write_json, write_text
from ground.text import errors_without_traceback
from infra.doctor.cards import CAPABILITY, DRIVER, VLLM, cards
from pathfinder.pages.page import markdown_table

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".pathfinder/gpu_day"
PAGE = ROOT / "tests/campaigns/gpu_day.md"
WORK = "PATHFINDER_GPU_DAY"
"""The variable that names the folder in which the parts share data, models and labels."""
_CARD = "tests/campaigns/test_card.py"
_LEAST_S, _TAIL = 10.0, 3
"""A part is not started with less time than this; lines of the log that the page shows of a failed part."""


def marked_files(root: Path = ROOT) -> list[str]:
    """The other test files with tests that need a card."""
    found = [path for path in (root / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text(encoding="utf-8")]
    names = sorted(path.relative_to(root).as_posix() for path in found)
    return [name for name in names if not name.startswith("tests/campaigns/")]


@dataclass(frozen=True, slots=True)
class Part:
    """A part with its title, its time limit in seconds, and what pytest runs; the last part runs ``make``."""

    name: str
    title: str
    limit: float
    tests: tuple[str, ...]

    def command(self, rehearsal: bool, report: Path) -> list[str]:
        """The command; pytest writes the figures and the failures to the file ``report``."""
        if not self.tests:
            return ["make", "world", "LEVEL=replica"]
        device = "cpu" if rehearsal else "cuda"
        chosen = [f"{test}[{device}]" if "::" in test else test for test in self.tests]
        return [sys.executable, "-m", "pytest", "-q", "-s", f"--junitxml={report}", *chosen]


PARTS = (
    Part("tests", "Tests that need a card", 180, tuple(marked_files())),
    Part("inputs", "Data and models", 240, (f"{_CARD}::test_inputs",)),
    Part("kernels", "FlexAttention over trees against float64", 150, (f"{_CARD}::test_kernels",)),
    Part("share", "Speed and share of the card's peak", 200, (f"{_CARD}::test_share",)),
    Part("judge", "A judge of 1.5B behind vLLM over 500 steps of PRM800K", 400, (f"{_CARD}::test_judge",)),
    Part("lora", "LoRA training on 2,000 records", 300, (f"{_CARD}::test_lora",)),
    Part("benchmarks", "ProcessBench and PRMBench at about 100 items", 200, (f"{_CARD}::test_benchmarks",)),
    Part("replica", "The level replica, in the time that is left", 1800, ()),
)
_UNREHEARSED = ("tests", "replica")
_HEAD = f"""\
# Measurements on a card

    make gpu-day                                   # on a machine with a card, within 30 minutes; writes this page
    python -m tests.campaigns.gpu_day --rehearse   # on a CPU at a tiny size; .pathfinder/gpu_day/rehearsal/gpu.md

The card needs compute capability {CAPABILITY} and driver {DRIVER}, or newer
([docs/paper.md](../../docs/paper.md#install)).

## The parts

If a part fails or exceeds its time limit, the page reports it, and the other parts run. A second run of the command
skips the parts that have succeeded on the same machine at the same commit; `--again` repeats them, and `--only` selects
parts. Data and models come from the folder that `PATHFINDER_MIRROR` names, or from the network. Without either, the
data are the shipped world and the models have random weights in their true shape. The page then states both.
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the parts and write the page; exit status 1 if a part failed. Raises ``DataError`` without a card."""
    names = [part.name for part in PARTS]
    lead = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.gpu_day", description=lead)
    parser.add_argument("--rehearse", action="store_true", help="run everything on the CPU at a tiny size")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help=", ".join(names))
    parser.add_argument("--again", action="store_true", help="repeat parts that have succeeded")
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all parts")
    parser.add_argument("--folder", type=Path, help="folder of the results and logs (default: .pathfinder/gpu_day)")
    given = parser.parse_args(argv)
    if not given.rehearse and not cards():
        raise DataError("no NVIDIA card (nvidia-smi lists none); --rehearse runs the parts on the CPU")
    if unknown := set(given.only) - {*names}:
        raise DataError(f"{', '.join(sorted(unknown))}: no such part; expected some of {', '.join(names)}")
    folder = (given.folder or (FOLDER / "rehearsal" if given.rehearse else FOLDER)).resolve()
    page = folder / "gpu.md" if given.rehearse else PAGE
    deadline, machine = time.monotonic() + 60 * given.minutes, describe_machine()
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if (given.only and part.name not in given.only) or (given.rehearse and part.name in _UNREHEARSED):
            continue
        result = None if given.again else _results(folder, machine).get(part.name)
        if result is None or result["status"] != "ok":
            result = measure(part, folder, given.rehearse, min(part.limit, deadline - time.monotonic()), machine)
        print(
            f"{part.name}: {result['status']}, {result['seconds']:.0f} s", *result["problems"], sep="\n  ", flush=True
        )
        write_text(page, render(machine, _results(folder, machine)))
    if any(result["status"] not in ("ok", "unfinished") for result in _results(folder, machine).values()):
        sys.exit(f"See {_shown(page)} and the logs in {_shown(folder)}.")
    print(f"{_shown(page)} has the figures")


def measure(part: Part, folder: Path, rehearsal: bool, limit: float, machine: Mapping[str, str]) -> dict[str, Any]:
    """Run a part in a process group of its own for at most ``limit`` seconds and file its result."""
    log, report = folder / f"{part.name}.log", folder / f"{part.name}.xml"
    report.unlink(missing_ok=True)
    start, status = time.monotonic(), "no time left"
    if limit >= _LEAST_S:
        status = _run(part, part.command(rehearsal, report), folder / "work", log, limit)
    figures, problems = read_report(report) if report.exists() else ([], [])
    if status not in ("ok", "no time left") and not problems:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
        problems = [f"{_shown(log)} ends with: {' / '.join(tail)}"]
    result = {
        "status": "failed" if status == "ok" and problems else status,
        "seconds": round(time.monotonic() - start, 1),
        "figures": figures,
        "problems": problems,
        "command": f"python -m tests.campaigns.gpu_day{' --rehearse' if rehearsal else ''} --only {part.name} --again",
        "machine": machine,
    }
    write_json(folder / f"{part.name}.json", result)
    return result


def _run(part: Part, command: Sequence[str], work: Path, log: Path, limit: float) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), WORK: str(work)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return "failed" if process.wait(limit) else "ok"
        except subprocess.TimeoutExpired:
            return "out of time" if part.tests else "unfinished"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                time.sleep(1.0)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def read_report(report: Path) -> tuple[list[list[str]], list[str]]:
    """The figures as (what, value) and the problems in pytest's report; a skipped test is a problem."""
    cases = [*ElementTree.parse(report).iter("testcase")]  # noqa: S314 - pytest wrote it
    figures = [[item.get("name", ""), item.get("value", "")] for case in cases for item in case.iter("property")]
    ended = [(case, item) for case in cases for kind in ("failure", "error", "skipped") for item in case.iter(kind)]
    problems = [f"{case.get('name')}: {(item.get('message') or item.tag).splitlines()[0]}" for case, item in ended]
    return figures, problems if cases else ["pytest found no test"]


def describe_machine() -> dict[str, str]:
    """The device, versions, commit and date."""
    facts, commit = describe_environment(), describe_commit(["pathfinder", "stages", "infra", "tests/campaigns"])
    vllm = next((ROOT / VLLM.parents[1]).glob("lib/python3*/site-packages/vllm-*.dist-info"), None)
    found = cards()
    return {
        "card": ", ".join(f"{card.name} ({card.memory / 1024:.0f} GiB)" for card in found) or "none",
        "driver": found[0].driver if found else "none",
        "processor": f"{facts['cpu']}, {facts['cpus']} cores",
        "Python": platform.python_version(),
        "PyTorch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
        "vLLM": vllm.name.split("-")[1] if vllm else "not installed",
        "commit": f"{commit['commit']}{' with uncommitted changes' if commit['dirty'] else ''}",
        "date": datetime.now(UTC).date().isoformat(),
    }


def _results(folder: Path, machine: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The results of earlier runs on this machine at this commit."""
    files = {part.name: folder / f"{part.name}.json" for part in PARTS}
    found = {name: read_json(file) for name, file in files.items() if file.exists()}
    return {name: result for name, result in found.items() if {**result["machine"], "date": machine["date"]} == machine}


def render(machine: Mapping[str, str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page; both arguments are empty if no part has run."""
    states = {name: result["status"] for name, result in results.items()}
    rows = [
        (f"`{part.name}`", part.title, f"{part.limit / 60:.0f} min", states.get(part.name, "not yet run"))
        for part in PARTS
    ]
    files = ", ".join(f"`{name}`" for name in marked_files())
    sections = [
        _HEAD,
        markdown_table(("part", "what", "limit", "result"), rows) + "\n",
        f"Tests marked `gpu` (`pytest -m gpu`), which run first: {files}.\n",
    ]
    if machine:
        sections.append("## The machine\n\n" + markdown_table(("", ""), [*machine.items()]) + "\n")
    else:
        sections.append(
            "## Results\n\nNot yet run: no machine with a card was available. `make gpu-day` adds the results.\n"
        )
    sections += [_section(part.title, results[part.name]) for part in PARTS if part.name in results]
    return "\n".join(sections)


def _section(title: str, result: Mapping[str, Any]) -> str:
    lines = [
        f"## {title}\n",
        f"Result: {result['status']} after {result['seconds']:.0f} s. Command: `{result['command']}`\n",
    ]
    if result["figures"]:
        cells = [[cell.replace("|", "\\|") for cell in row] for row in result["figures"]]
        lines.append(markdown_table(("", ""), cells) + "\n")
    return "\n".join([*lines, *(f"- {problem}" for problem in result["problems"])]) + ("\n" * bool(result["problems"]))


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    with errors_without_traceback():
        main()
