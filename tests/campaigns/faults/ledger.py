"""The ledger of a campaign: one JSON line per trial, so that pieces of it add up, and the table over the lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from ground.io import DataError
from tests.campaigns.faults.results import Result
from tests.campaigns.faults.trial import KINDS, Trial


def append(path: Path, seed: int, trial: Trial) -> None:
    """Add a trial of ``seed`` to the ledger."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps({"seed": seed, **asdict(trial)}) + "\n")


def read(path: Path) -> dict[tuple[int, int], Trial]:
    """The trials of a ledger by seed and number, in that order; a repeated trial counts once, as it ended last.

    Raises ``DataError`` if the file is missing or empty, or a line of it is not a trial.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; --log writes it")
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            seed = row.pop("seed")
            found[seed, row["number"]] = Trial(**row)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: no trial ({error}); delete the line") from error
    if not found:
        raise DataError(f"{path} has no trial; --log writes them")
    return {key: found[key] for key in sorted(found)}


def table(trials: Iterable[Trial]) -> str:
    """The outcomes per kind of fault, as a Markdown table."""
    trials = list(trials)
    heads = ("fault", "runs", "hit", "ended right at once", "resumed", "wrong", "tracebacks")
    rows = [[kind, *_counts([trial for trial in trials if trial.kind == kind])] for kind in KINDS]
    lines = [[str(cell) for cell in row] for row in [heads, *rows, ["all", *_counts(trials)]] if row[1]]
    lines.insert(1, ["---"] * len(heads))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(trials: dict[tuple[int, int], Trial]) -> str:
    """A sentence with seeds, days and times, the table, and every trial that went wrong."""
    seeds = ", ".join(str(seed) for seed in dict.fromkeys(seed for seed, _ in trials))
    days = " and ".join(sorted({trial.date for trial in trials.values()} - {""}))
    hours = sum(trial.seconds for trial in trials.values()) / 3600
    usual = sorted({round(trial.usual_s) for trial in trials.values()})
    lines = [
        f"{len(trials)} runs with seed {seeds}{f' on {days}' if days else ''} took {hours:.1f} hours. "
        f"An undisturbed run took {' to '.join(map(str, dict.fromkeys((usual[0], usual[-1]))))} s on the machine.",
        "",
        table(trials.values()),
    ]
    for (seed, number), trial in trials.items():
        for problem in trial.problems:
            lines.append(f"\nRun {number} of seed {seed} ({trial.kind}): {problem}.")
    return "\n".join(lines) + "\n"


def result(trials: dict[tuple[int, int], Trial]) -> Result:
    """The trials as the result of the part ``kills``."""
    wrong = sum(bool(trial.problems) for trial in trials.values())
    return Result("kills", len(trials), wrong, summary(trials))


def _counts(trials: list[Trial]) -> list[int]:
    right = [trial for trial in trials if not trial.problems]
    return [
        len(trials),
        sum(trial.hit for trial in trials),
        sum(trial.ended == 0 for trial in right),
        sum(trial.resumes > 0 for trial in right),
        len(trials) - len(right),
        sum(bool(trial.traceback) for trial in trials),
    ]
