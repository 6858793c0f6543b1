"""Intervals of figures and of paired differences: bootstrap by problem, and the spread between training seeds.

Problems are resampled, never steps or samples, because the steps of one problem are not independent. Exception: the few
ProcessBench problems with several solutions count as several problems. The same ``n``, ``samples`` and ``seed`` give
the same resamples, so two systems scored on the same problems are compared in pairs. Efron and Tibshirani, "An
Introduction to the Bootstrap" (1993), chapter 13. ``docs/report.md`` gives the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pathfinder.core.params import Report

Indices = NDArray[np.int64]
Statistic = Callable[[Indices], Any]
"""Takes indices of problems (…, n), repeats included, and returns a finite number for each row: float64 (…)."""
Replicates = NDArray[np.float64]
"""A statistic on all problems, and then on every resample; with several seeds, one row per seed."""
_AT_ONCE = 2**20
"""The number of indices that a statistic gets at once; it limits memory."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure (a level or a difference), its interval, and the two-sided p of the hypothesis that it is zero."""

    value: float
    low: float
    high: float
    p: float  # with one seed, at least 1 / samples

    @property
    def is_clear(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Spread:
    """A variance between training seeds and the degrees of freedom of its estimate."""

    variance: float
    freedom: int

    def of(self, *seeds: int) -> Spread:
        """The spread of a sum of means over these numbers of seeds, if every training's figure has this variance."""
        return Spread(self.variance * sum(1 / count for count in seeds), self.freedom)


def resamples(n: int, samples: int, seed: int, strata: Sequence[str] | None = None) -> Indices:
    """Indices drawn with replacement within each stratum, int64 (samples, n).

    ``strata`` (one name per problem) keeps the size of each benchmark subset in every resample. Raises ``ValueError``
    if their number is not ``n``.
    """
    if strata is not None and len(strata) != n:
        raise ValueError(f"{len(strata)} strata for {n} problems; give one name per problem")
    return _drawn(n, samples, seed, ("",) * n if strata is None else tuple(strata))


@lru_cache(maxsize=1)  # a stage computes many intervals over the same problems: 54 MB for all of ProcessBench
def _drawn(n: int, samples: int, seed: int, strata: tuple[str, ...]) -> Indices:
    names, stratum = np.unique(strata, return_inverse=True)
    order, sizes = np.argsort(stratum, kind="stable"), np.bincount(stratum, minlength=len(names))
    firsts, within = np.repeat(np.cumsum(sizes) - sizes, sizes), np.repeat(sizes, sizes)
    rng = np.random.Generator(np.random.Philox(seed))
    drawn: Indices = order[firsts + rng.integers(0, within, size=(samples, n))]
    return drawn


def sums(rows: Indices, groups: Indices, count: int, values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """The sums of ``values`` (n,), or the numbers of problems, by group over rows of indices (…, n): (…, count).

    ``groups`` is int64 (n,), below ``count``.
    """
    flat = rows.reshape(-1, rows.shape[-1])
    places = groups[flat] + count * np.arange(len(flat))[:, None]
    weights = None if values is None else values[flat].ravel()
    found = np.bincount(places.ravel(), weights, minlength=count * len(flat))
    return found.reshape(*rows.shape[:-1], count).astype(np.float64, copy=False)


INTERVALS = Report(bootstrap_samples=2000, seed=42)
"""The parameters of the intervals in the metric files of scoring stages. They do not depend on the report's parameters,
because scoring a benchmark again for a report would cost hours."""


def replicate(n: int, statistic: Statistic, report: Report, strata: Sequence[str] | None = None) -> Replicates:
    """Compute ``statistic`` on all ``n`` problems and then on each resample: float64 (1 + samples,).

    Equal ``n``, ``report`` and ``strata`` give equal resamples. Raises ``ValueError`` if there is no problem.
    """
    if n < 1:
        raise ValueError(f"a bootstrap needs at least one problem, not {n}")
    samples = report.bootstrap_samples
    drawn, step = resamples(n, samples, report.seed, strata), -(-_AT_ONCE // n)
    parts = (drawn[start : start + step] for start in range(0, samples, step))
    values = [np.atleast_1d(statistic(rows)) for rows in (np.arange(n), *parts)]
    return np.concatenate(values).astype(np.float64)


def interval(n: int, statistic: Statistic, report: Report, strata: Sequence[str] | None = None) -> list[float]:
    """The percentile interval of ``statistic`` over ``n`` problems: low and high.

    Raises ``ValueError`` as ``replicate`` does, and if the statistic is not finite.
    """
    return [*_percentiles(replicate(n, statistic, report, strata)[1:], report.confidence)]


def mean_interval(values: Sequence[float], report: Report = INTERVALS) -> list[float]:
    """``interval`` of a plain mean of one value per problem."""
    numbers = np.asarray(values, dtype=np.float64)
    return interval(len(numbers), lambda rows: numbers[rows].mean(-1), report)


def pooled(systems: Iterable[Replicates]) -> Spread | None:
    """The variance of a figure between seeds, pooled over the systems with several seeds; ``None`` if there are none.

    Systems with one seed are assumed to have the same variance.
    """
    several = [rows[:, 0] for rows in systems if len(rows) > 1]
    freedom = sum(len(values) - 1 for values in several)
    if not freedom:
        return None
    return Spread(sum(float(values.var(ddof=1)) * (len(values) - 1) for values in several) / freedom, freedom)


def estimate(parts: Sequence[Replicates], confidence: float, between: Spread | None = None) -> Estimate:
    """The sum over ``parts`` of the mean over each part's seeds, with an interval for new problems and new seeds.

    A part has one row of replicates per seed. Paired seeds are one part of row-by-row differences; unpaired seeds are
    two parts, the right side with its sign reversed. With one seed per part this is the percentile bootstrap. With
    several, the variance between seeds is added to the bootstrap's over problems, and the interval is Student's t with
    Satterthwaite's degrees of freedom. ``tests/campaigns/reliability.md`` compares it with other intervals. ``between``
    replaces the rows' own variance between seeds.

    Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2 (1946).
    """
    totals = np.sum([part.mean(0) for part in parts], axis=0)
    value, resampled = float(totals[0]), totals[1:]
    low, high = _percentiles(resampled, confidence)
    tail = min(float((resampled <= 0).mean()), float((resampled >= 0).mean()))
    p = min(1.0, max(2 * tail, 1 / len(resampled)))
    own = [Spread(float(part[:, 0].var(ddof=1)), len(part) - 1).of(len(part)) for part in parts if len(part) > 1]
    spreads = [between] if between else own
    error = math.sqrt(float(resampled.var()) + sum(spread.variance for spread in spreads))
    if not spreads or error == 0:
        return Estimate(value, low, high, p)
    from scipy.special import stdtr, stdtrit  # takes 0.3 seconds, and scoring stages do not need it

    freedom = error**4 / max(sum(spread.variance**2 / spread.freedom for spread in spreads), 1e-12 * error**4)
    half = error * float(stdtrit(freedom, (1 + confidence) / 2))
    return Estimate(value, value - half, value + half, 2 * float(stdtr(freedom, -abs(value) / error)))


def adjusted(ps: Sequence[float]) -> list[float]:
    """Holm's adjustment: it limits the chance that any of several true null hypotheses is rejected.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
    """
    out = [1.0] * len(ps)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[index]))
        out[index] = largest
    return out


def _percentiles(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    if not np.isfinite(values).all():
        raise ValueError("the statistic is not finite on some resample; define its degenerate cases")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
