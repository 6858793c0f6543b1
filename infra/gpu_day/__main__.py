"""Measure on an NVIDIA card, and write docs/gpu.md.

Run     python -m infra.gpu_day              on a machine with a card, within 30 minutes; or `make gpu-day`
        python -m infra.gpu_day --rehearse   the same parts on a CPU at a tiny size, within three minutes

Each part is a process with its own time limit and a log in .pathfinder/gpu_day/. The page is written after each part.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from evidence.record.environment import describe_commit, describe_environment
from ground.io import DataError, read_json, write_json, write_text
from ground.text import errors_without_traceback
from infra.doctor.cards import cards
from infra.gpu_day.day import FOLDER, ROOT, VLLM, Day
from infra.gpu_day.page import page_of, render
from infra.gpu_day.parts import PARTS, Part, run_part

_LEAST_S = 10.0
"""A part is not started with less time than this."""
_TAIL = 3


def main(argv: Sequence[str] | None = None) -> None:
    """Run the parts and write the page; exit status 1 if a part failed. Raises ``DataError`` without a card."""
    parser = argparse.ArgumentParser(prog="python -m infra.gpu_day", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rehearse", action="store_true", help="run everything on the CPU at a tiny size")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help=", ".join(part.name for part in PARTS))
    parser.add_argument("--again", action="store_true", help="repeat parts that have succeeded")
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all parts")
    parser.add_argument("--folder", type=Path, help="folder of the results and logs (default: .pathfinder/gpu_day)")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    day = Day(given.rehearse, (given.folder or (FOLDER / "rehearsal" if given.rehearse else FOLDER)).resolve())
    if given.part:
        run_part(given.part, day, _figures(day, given.part))
        return
    if not day.rehearsal and not cards():
        raise DataError("no NVIDIA card (nvidia-smi lists none); --rehearse runs the parts on the CPU")
    if unknown := set(given.only) - {part.name for part in PARTS}:
        raise DataError(
            f"{', '.join(sorted(unknown))}: no such part; expected some of {', '.join(p.name for p in PARTS)}"
        )
    deadline, machine = time.monotonic() + 60 * given.minutes, describe_machine()
    day.work.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if given.only and part.name not in given.only:
            continue
        result = None if given.again else _earlier(day, part, machine)
        if result is None:
            result = measure(day, part, min(part.limit, deadline - time.monotonic()), machine)
        print(
            f"{part.name}: {result['status']}, {result['seconds']:.0f} s", *result["problems"], sep="\n  ", flush=True
        )
        _write_page(day, machine)
    results = _results(day, machine)
    if any(result["status"] not in ("ok", "unfinished") for result in results.values()):
        sys.exit(f"See {_shown(page_of(day))} and the logs in {_shown(day.folder)}.")
    print(f"{_shown(page_of(day))} has the figures")


def measure(day: Day, part: Part, limit: float, machine: dict[str, str]) -> dict[str, Any]:
    """Run a part in a process group of its own for at most ``limit`` seconds and file its result."""
    words = ["--part", part.name, "--folder", str(day.folder), *(["--rehearse"] if day.rehearsal else [])]
    log, figures = day.folder / f"{part.name}.log", _figures(day, part.name)
    figures.unlink(missing_ok=True)
    start, status, problems = time.monotonic(), "no time left", []
    if limit >= _LEAST_S:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "infra.gpu_day", *words],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                ended = process.wait(limit)
                status = "ok" if ended == 0 else "failed"
            except subprocess.TimeoutExpired:
                status = "unfinished" if part.name == "replica" else "out of time"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                    time.sleep(1.0)
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if status != "ok":
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
            problems = [f"{_shown(log)} ends with: {' / '.join(tail)}"]
    report = read_json(figures) if figures.exists() else {"figures": [], "problems": []}
    problems = [*report["problems"], *problems]
    result = {
        "status": "failed" if status == "ok" and problems else status,
        "seconds": round(time.monotonic() - start, 1),
        "figures": report["figures"],
        "problems": problems,
        "command": f"python -m infra.gpu_day{' --rehearse' if day.rehearsal else ''} --only {part.name} --again",
        "machine": machine,
    }
    write_json(day.folder / f"{part.name}.json", result)
    return result


def describe_machine() -> dict[str, str]:
    """The device, versions, commit and date."""
    facts, commit = describe_environment(), describe_commit(["pathfinder", "stages", "infra"])
    vllm = next(VLLM.parents[1].glob("lib/python3*/site-packages/vllm-*.dist-info"), None)
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


def _same_place(one: dict[str, str], other: dict[str, str]) -> bool:
    return {**one, "date": ""} == {**other, "date": ""}


def _earlier(day: Day, part: Part, machine: dict[str, str]) -> dict[str, Any] | None:
    """The result of a part that has succeeded on this machine at this commit."""
    result = _results(day, machine).get(part.name)
    return result if result is not None and result["status"] == "ok" else None


def _results(day: Day, machine: dict[str, str]) -> dict[str, dict[str, Any]]:
    files = {part.name: day.folder / f"{part.name}.json" for part in PARTS}
    found = {name: read_json(file) for name, file in files.items() if file.exists()}
    return {name: result for name, result in found.items() if _same_place(result["machine"], machine)}


def _write_page(day: Day, machine: dict[str, str]) -> None:
    write_text(page_of(day), render(machine, _results(day, machine)))


def _figures(day: Day, name: str) -> Path:
    return day.folder / f"{name}.figures.json"


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    with errors_without_traceback():
        main()
