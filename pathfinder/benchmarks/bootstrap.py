"""Intervals of figures and of paired differences: bootstrap by problem, and the spread between training seeds.

Resampling is by problem, never by step or sample: steps of one problem are not independent. The same ``n``, ``samples``
and ``seed`` give the same resamples, so two systems scored on the same problems are compared pair by pair.
Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. ``docs/statistics.md`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

Indices = NDArray[np.int64]
Statistic = Callable[[Indices], float]
Replicates = NDArray[np.float64]
"""A statistic on all problems, then on every resample; of several seeds, a row each."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure (a level or a difference), its interval, and the two-sided p of its being zero."""

    value: float
    low: float
    high: float
    p: float  # with one seed never below 1 / samples

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Spread:
    """A variance between training seeds and the degrees of freedom that it was estimated with."""

    variance: float
    freedom: int

    def of(self, *seeds: int) -> Spread:
        """The same of a sum of means over so many seeds each, every training's figure having this variance."""
        return Spread(self.variance * sum(1 / count for count in seeds), self.freedom)


def resamples(n: int, samples: int, seed: int, strata: Sequence[str] | None = None) -> Iterator[Indices]:
    """Yield ``samples`` index arrays (int64, shape ``[n]``), drawn with replacement within each stratum.

    ``strata`` (one name per problem) keeps the size of each benchmark subset in every resample.
    """
    if strata is not None and len(strata) != n:
        raise ValueError(f"{len(strata)} strata for {n} problems; give one name per problem")
    yield from _drawn(n, samples, seed, None if strata is None else tuple(strata))


@lru_cache(maxsize=1)  # a stage makes many intervals over the same problems: 100 MB for all of PRMBench
def _drawn(n: int, samples: int, seed: int, strata: tuple[str, ...] | None) -> tuple[Indices, ...]:
    rng = np.random.Generator(np.random.Philox(seed))
    if strata is None:
        return tuple(rng.integers(0, n, size=n, dtype=np.int64) for _ in range(samples))
    names = np.asarray(strata)
    groups = [np.flatnonzero(names == name) for name in sorted(set(strata))]
    return tuple(
        np.concatenate([group[rng.integers(0, len(group), size=len(group))] for group in groups])
        for _ in range(samples)
    )


def interval(
    n: int,
    statistic: Statistic,
    samples: int,
    confidence: float,
    seed: int,
    strata: Sequence[str] | None = None,
) -> tuple[float, float]:
    """The percentile interval of ``statistic`` over ``n`` problems.

    ``statistic`` takes an index array (problems, repeats included) and returns a finite number.
    Raises ``ValueError`` when there is no problem or the statistic is not finite.
    """
    _check(n, samples, confidence)
    values = np.fromiter((statistic(rows) for rows in resamples(n, samples, seed, strata)), np.float64, samples)
    return _percentiles(values, confidence)


def mean_interval(values: Sequence[float], samples: int, confidence: float, seed: int) -> tuple[float, float]:
    """``interval`` of a plain mean: one value per problem."""
    numbers = np.asarray(values, dtype=np.float64)
    return interval(len(numbers), lambda rows: float(numbers[rows].mean()), samples, confidence, seed)


def replicate(
    n: int, statistic: Statistic, samples: int, confidence: float, seed: int, strata: Sequence[str] | None = None
) -> Replicates:
    """``statistic`` on all ``n`` problems and then on each resample: float64, shape ``[1 + samples]``.

    Systems replicated with the same ``n``, ``samples``, ``seed`` and ``strata`` saw the same resamples.
    """
    _check(n, samples, confidence)
    values = [statistic(np.arange(n, dtype=np.int64))]
    values += [statistic(rows) for rows in resamples(n, samples, seed, strata)]
    return np.asarray(values, dtype=np.float64)


def pooled(systems: Iterable[Replicates]) -> Spread | None:
    """What one training's figure varies by between seeds, over all systems with several; None where none has.

    A system with one seed says nothing of its own spread; it is taken to be that of the systems beside it.
    """
    several = [rows[:, 0] for rows in systems if len(rows) > 1]
    freedom = sum(len(values) - 1 for values in several)
    if not freedom:
        return None
    return Spread(sum(float(values.var(ddof=1)) * (len(values) - 1) for values in several) / freedom, freedom)


def estimate(parts: Sequence[Replicates], confidence: float, between: Spread | None = None) -> Estimate:
    """The sum over ``parts`` of the mean over each part's seeds, with the interval of new problems and new seeds.

    A part holds rows of ``Replicates``, one a seed; for a difference of paired seeds it holds theirs row by row, for
    one of unpaired seeds the right side is a part of its own with its sign turned. With one seed in each part this is
    the percentile bootstrap. With several, the variance between seeds joins the bootstrap's over problems, and the
    interval is Student's with Satterthwaite's degrees of freedom: with 3 to 5 seeds percentiles of resampled seeds
    cover too little and Student's t over seeds alone forgets the problems (``docs/statistics.md``). ``between``, where
    it is given, is the variance of the value between seeds, and the rows' own is not looked at. Satterthwaite, "An
    approximate distribution of estimates of variance components", Biometrics Bulletin 2 (1946).
    """
    totals = np.sum([part.mean(0) for part in parts], axis=0)
    value, resampled = float(totals[0]), totals[1:]
    low, high = _percentiles(resampled, confidence)
    tail = min(float((resampled <= 0).mean()), float((resampled >= 0).mean()))
    p = min(1.0, max(2 * tail, 1 / len(resampled)))
    own = [Spread(float(part[:, 0].var(ddof=1)), len(part) - 1).of(len(part)) for part in parts if len(part) > 1]
    spreads = [between] if between else own
    spread = math.sqrt(float(resampled.var()) + sum(one.variance for one in spreads))
    if not spreads or spread == 0:
        return Estimate(value, low, high, p)
    freedom = spread**4 / max(sum(one.variance**2 / one.freedom for one in spreads), 1e-12 * spread**4)
    half = spread * float(stdtrit(freedom, (1 + confidence) / 2))
    return Estimate(value, value - half, value + half, 2 * float(stdtr(freedom, -abs(value) / spread)))


def adjusted(ps: Sequence[float]) -> list[float]:
    """Holm's adjustment: with it, the chance that any of several true nulls is rejected keeps to the level.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
    """
    out = [1.0] * len(ps)
    reached = 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        reached = max(reached, min(1.0, (len(ps) - place) * ps[index]))
        out[index] = reached
    return out


def _check(n: int, samples: int, confidence: float) -> None:
    if n < 1 or samples < 1:
        raise ValueError(f"a bootstrap needs at least one problem and one resample, not {n} and {samples}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a share between 0 and 1")


def _percentiles(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    if not np.isfinite(values).all():
        raise ValueError("the statistic is not finite on some resample; define its degenerate cases")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
