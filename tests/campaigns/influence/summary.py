"""The results of a campaign of retrainings (``proof``): flips, their factor, and the linear datamodelling score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from extras.why.why import PLAUSIBLE
from ground.io import read_json
from pathfinder.benchmarks.bootstrap import mean_interval
from pathfinder.core.params import Report

_Numbers = npt.NDArray[np.float64]
_DRAWS, _SEED, _CONFIDENCE = 10_000, 0, 0.95


def summarise(folder: Path) -> dict[str, Any]:
    """The results of the finished jobs in ``folder`` about the campaign's decisions, a JSON value."""
    base = read_json(folder / "base-000.json")
    outputs, correct = np.array(base["outputs"]), np.array(base["correct"])
    jobs = {kind: _jobs(folder, kind) for kind in ("named", "random", "order", "half")}
    flips = {kind: np.array([np.array(job["correct"]) != correct for job in found]) for kind, found in jobs.items()}
    own, random = flips["named"].diagonal().astype(float), flips["random"].astype(float)
    scores = _scores(folder, len(outputs))
    predicted = np.array(
        [output - row[job["removed"]].sum() for output, row, job in zip(outputs, scores, jobs["named"], strict=True)]
    )
    actual = np.array([job["outputs"][number] for number, job in enumerate(jobs["named"])])
    toward = np.sign(outputs)
    summary: dict[str, Any] = {
        "about": read_json(folder / "about.json"),
        "decisions": len(outputs),
        "decisions with unreliable scores": int((np.abs(scores).max(axis=1) > PLAUSIBLE).sum()),
        "removed": len(jobs["named"][0]["removed"]),
        "flipped": {
            "named": _share(own),
            "random": _share(random.mean(axis=0)) | {"removals": len(random)},
            "named for other decisions": _share(_by_others(flips["named"])),
            "another order of the same records": _share(flips["order"].mean(axis=0)) | {"orders": len(jobs["order"])},
        },
        "factor": _factor(own, random),
        "named removals": {
            "predicted and actual output, Spearman": spearman(predicted, actual),
            "mean change, predicted": float(np.mean(toward * (predicted - outputs))),
            "mean change, actual": float(np.mean(toward * (actual - outputs))),
        },
        "datamodelling score": {
            "random halves": _datamodelling(jobs["half"], scores),
            "random removals": _datamodelling(jobs["random"], scores),
        },
    }
    summary["in short"] = _in_short(summary)
    return summary


def as_markdown(summary: dict[str, Any]) -> list[str]:
    """The summary as lines of extras/why/README.md."""
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
        f"which {about['near']} have log-odds between -2 and 2. Measured on {summary['decisions']} of these decisions. "
        f"{summary['decisions with unreliable scores']} of them have a score above {PLAUSIBLE:g} nats, which `why` "
        "reports as unreliable; they are included. The 95 % intervals in the tables resample the decisions, not the "
        "retrainings, so they do not say how far other removals, orders or halves would move a figure.",
        "",
        "| trained again | decisions that flip |",
        "| --- | --- |",
        *rows,
        "",
        f"Removing the named records flips {_times(summary['factor'])} times as many decisions as removing as many at "
        f"random. The interval resamples decisions and random removals. It flips {_noise(flipped)}.",
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
    """The rank correlation of two vectors; 0 if one of them is constant."""
    from scipy.stats import spearmanr  # takes half a second to load

    return 0.0 if np.ptp(left) == 0 or np.ptp(right) == 0 else float(spearmanr(left, right).statistic)


def _jobs(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The results of all jobs of a kind, in their order."""
    return [read_json(path) for path in sorted(folder.glob(f"{kind}-*.json"))]


def _scores(folder: Path, decisions: int) -> _Numbers:
    """The derivatives of the explained decisions, (decisions, records)."""
    parts = [np.load(path, allow_pickle=False) for path in sorted(folder.glob("scores-*.npy"))]
    return np.concatenate(parts)[:decisions]


def _by_others(flips: npt.NDArray[np.bool_]) -> _Numbers:
    """Per decision how often it flips in the removals that were named for the others."""
    return np.array([np.delete(flips[:, number], number).mean() for number in range(len(flips))])


def _datamodelling(jobs: Sequence[dict[str, Any]], scores: _Numbers) -> dict[str, Any]:
    """Per decision the rank correlation of predicted and actual outputs over the retrainings; mean and interval."""
    predicted = np.array([-scores[:, job["removed"]].sum(axis=1) for job in jobs])
    actual = np.array([job["outputs"] for job in jobs])
    found = np.array([spearman(predicted[:, number], actual[:, number]) for number in range(len(scores))])
    return {"mean": float(found.mean()), "interval": _interval(found), "retrainings": len(jobs)}


def _share(values: _Numbers) -> dict[str, Any]:
    return {"share": float(values.mean()), "interval": _interval(values)}


def _interval(values: _Numbers) -> list[float]:
    """The bootstrap interval of the mean over decisions."""
    return mean_interval(values.tolist(), Report(bootstrap_samples=_DRAWS, seed=_SEED))


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


def _noise(flipped: dict[str, Any]) -> str:
    """How the named removals compare with what flips decisions near the boundary anyway."""
    order, others = flipped["another order of the same records"]["share"], flipped["named for other decisions"]["share"]
    named = flipped["named"]["share"]
    return (
        f"{named / max(order, 1e-9):.1f} times as many as another order of the same records, and "
        f"{named / max(others, 1e-9):.1f} times as many as the records named for another decision"
    )


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
        f"many, but only {_noise(flipped)}{''.join(scores)}"
    )
