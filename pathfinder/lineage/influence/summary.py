"""The results of a campaign of retrainings (``proof``): flips, their factor, and the linear datamodelling score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.core.io import DataError, read_json

_Numbers = npt.NDArray[np.float64]
_DRAWS, _SEED, _CONFIDENCE = 10_000, 0, 0.95
_FEWEST = 6
"""Retrainings without which a rank correlation says nothing."""


def summarise(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """What the finished jobs in ``folder`` show about the decisions ``names``.

    A campaign need not be finished; every figure names how many jobs it rests on. Raises ``DataError`` if all named or
    all random removals are missing.
    """
    base = read_json(folder / "base-000.json")
    outputs, correct = np.array(base["outputs"]), np.array(base["correct"])
    jobs = {kind: _jobs(folder, kind) for kind in ("named", "random", "order", "half")}
    numbers = [number for number, _ in jobs["named"]]
    flips = {kind: np.array([np.array(job["correct"]) != correct for _, job in found]) for kind, found in jobs.items()}
    own = np.array([flips["named"][at][number] for at, number in enumerate(numbers)], dtype=float)
    random = flips["random"][:, numbers].astype(float)
    scores = _scores(folder, len(names))
    removed = np.array([len(job["removed"]) for _, job in jobs["named"]])
    predicted = np.array([outputs[number] - scores[number][job["removed"]].sum() for number, job in jobs["named"]])
    actual = np.array([job["outputs"][number] for number, job in jobs["named"]])
    factor = _factor(own, random)
    about = read_json(folder / "about.json")
    summary: dict[str, Any] = {
        "about": about,
        "decisions": len(numbers),
        "removed": int(removed[0]),
        "flipped": {
            "named": _share(own),
            "random": _share(random.mean(axis=0)) | {"removals": len(random)},
            "named for other decisions": _share(_by_others(flips["named"], numbers)),
            "another order of the same records": _share(_mean(flips["order"], numbers))
            | {"orders": len(jobs["order"])},
        },
        "factor": factor,
        "named removals": {
            "predicted and actual output, Spearman": spearman(predicted, actual),
            "mean change, predicted": float(np.mean(np.sign(outputs[numbers]) * (predicted - outputs[numbers]))),
            "mean change, actual": float(np.mean(np.sign(outputs[numbers]) * (actual - outputs[numbers]))),
        },
        "datamodelling score": {
            name: _datamodelling(jobs[kind], scores)
            for name, kind in (("random halves", "half"), ("random removals", "random"))
            if len(jobs[kind]) >= _FEWEST
        },
    }
    summary["in short"] = _in_short(summary)
    return summary


def as_markdown(summary: dict[str, Any]) -> list[str]:
    """The summary as lines of docs/why.md."""
    flipped, about = summary["flipped"], summary["about"]
    titles = {
        "named": f"without the {summary['removed']} named records",
        "random": f"without {summary['removed']} random records ({flipped['random']['removals']} removals)",
        "named for other decisions": f"without {summary['removed']} records that were named for another decision",
        "another order of the same records": (
            f"all records in another order ({flipped['another order of the same records']['orders']} orders)"
        ),
    }
    rows = [f"| {title} | {_percent(flipped[key])} |" for key, title in titles.items()]
    named = summary["named removals"]
    return [
        f"The model is right about {100 * about['right']:.1f} % of the {about['held_out_items']} held-out items, of "
        f"which {about['near']} have log-odds between -2 and 2. Measured on {summary['decisions']} of these decisions, "
        "with 95 % intervals:",
        "",
        "| trained again | decisions that flip |",
        "| --- | --- |",
        *rows,
        "",
        f"Removing the named records flips {_times(summary['factor'])} times as many decisions as removing as many at "
        "random. The interval resamples decisions and random removals.",
        "",
        "Removing the named records was estimated to move the log-odds by "
        f"{named['mean change, predicted']:+.2f} nats in the direction of the decision, and moved them by "
        f"{named['mean change, actual']:+.2f}; over the decisions, the rank correlation of the two outputs is "
        f"{named['predicted and actual output, Spearman']:.2f}.",
        "",
        "| linear datamodelling score (Spearman, mean over decisions) | retrainings | score |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {score['retrainings']} | {score['mean']:.2f} [{score['interval'][0]:.2f}, "
            f"{score['interval'][1]:.2f}] |"
            for name, score in summary["datamodelling score"].items()
        ),
    ]


def _percent(share: dict[str, Any]) -> str:
    low, high = share["interval"]
    return f"{100 * share['share']:.1f} [{100 * low:.1f}, {100 * high:.1f}] %"


def _times(factor: dict[str, Any]) -> str:
    low, high = factor["interval"]
    return f"{factor['value']:.1f} [{low:.1f}, {high:.1f}]"


def spearman(left: _Numbers, right: _Numbers) -> float:
    """The rank correlation of two vectors without ties; 0 if one of them is constant."""
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return 0.0
    ranks = [np.argsort(np.argsort(values)) - (len(values) - 1) / 2 for values in (left, right)]
    return float(ranks[0] @ ranks[1] / (ranks[0] @ ranks[0]))


def _jobs(folder: Path, kind: str) -> list[tuple[int, dict[str, Any]]]:
    found = [(int(path.stem.rpartition("-")[2]), read_json(path)) for path in sorted(folder.glob(f"{kind}-*.json"))]
    if not found and kind in ("named", "random"):
        raise DataError(
            f"{folder}: no finished job {kind}; run `python -m pathfinder.lineage.influence.proof {folder}`"
        )
    return found


def _scores(folder: Path, decisions: int) -> dict[int, _Numbers]:
    """The derivatives of every explained decision, (records,)."""
    out: dict[int, _Numbers] = {}
    for path in sorted(folder.glob("scores-*.npy")):
        first = int(path.stem.rpartition("-")[2])
        rows = np.load(path, allow_pickle=False)
        out |= {first + at: row for at, row in enumerate(rows) if first + at < decisions}
    return out


def _mean(flips: npt.NDArray[np.bool_], numbers: Sequence[int]) -> _Numbers:
    """Per decision the share of trainings in which it flips; 0 if there are none."""
    return flips[:, numbers].mean(axis=0) if len(flips) else np.zeros(len(numbers))


def _by_others(flips: npt.NDArray[np.bool_], numbers: Sequence[int]) -> _Numbers:
    """Per decision how often it flips in the removals that were named for the others."""
    out = [np.delete(flips[:, number], at).mean() for at, number in enumerate(numbers)]
    return np.array(out)


def _datamodelling(jobs: Sequence[tuple[int, dict[str, Any]]], scores: dict[int, _Numbers]) -> dict[str, Any]:
    """Per decision the rank correlation of predicted and actual outputs over the retrainings; mean and interval."""
    kept = {number: [-row[job["removed"]].sum() for _, job in jobs] for number, row in scores.items()}
    found = np.array(
        [
            spearman(np.array(kept[number]), np.array([job["outputs"][number] for _, job in jobs]))
            for number in sorted(scores)
        ]
    )
    low, high = _interval(found, lambda rows: found[rows].mean())
    return {"mean": float(found.mean()), "interval": [low, high], "retrainings": len(jobs), "decisions": len(found)}


def _share(values: _Numbers) -> dict[str, Any]:
    low, high = _interval(values, lambda rows: values[rows].mean())
    return {"share": float(values.mean()), "interval": [low, high]}


def _factor(own: _Numbers, random: _Numbers) -> dict[str, Any]:
    """How many times as many decisions flip; the interval resamples decisions and random removals."""
    generator = np.random.default_rng(_SEED)
    draws = []
    for _ in range(_DRAWS):
        rows, columns = generator.integers(len(random), size=len(random)), generator.integers(len(own), size=len(own))
        draws.append(own[columns].mean() / max(random[np.ix_(rows, columns)].mean(), 1 / random.size))
    low, high = np.quantile(draws, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    share = max(random.mean(), 1 / random.size)
    return {"value": float(own.mean() / share), "interval": [float(low), float(high)]}


def _interval(values: _Numbers, statistic: Callable[[npt.NDArray[np.int64]], float]) -> tuple[float, float]:
    generator = np.random.default_rng(_SEED)
    draws = [statistic(generator.integers(len(values), size=len(values))) for _ in range(_DRAWS)]
    low, high = np.quantile(draws, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return float(low), float(high)


def _in_short(summary: dict[str, Any]) -> str:
    flipped = summary["flipped"]
    scores = [
        f"; linear datamodelling score {score['mean']:.2f} over {score['retrainings']} {name}"
        for name, score in summary["datamodelling score"].items()
    ]
    return (
        f"on {summary['decisions']} held-out decisions of a model trained on {summary['about']['records']} records, "
        f"training without the {summary['removed']} named records flips {100 * flipped['named']['share']:.0f} %, "
        f"without as many random ones {100 * flipped['random']['share']:.1f} %: {_times(summary['factor'])} times as "
        f"many{''.join(scores)}"
    )
