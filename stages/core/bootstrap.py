"""Percentile bootstrap intervals by problem, and paired differences between two systems on the same problems.

Resampling is by problem, never by step or sample: steps of one problem are not independent. The same ``n``, ``samples``
and ``seed`` give the same resamples, so two systems scored on the same problems are compared pair by pair.
Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Statistic = Callable[[Indices], float]


@dataclass(frozen=True, slots=True)
class Difference:
    """``left - right`` on all problems, its interval, and how often a resample falls on the other side of zero."""

    value: float
    low: float
    high: float
    p: float  # two-sided, from the resamples; never below 1 / samples

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def resamples(n: int, samples: int, seed: int, strata: Sequence[str] | None = None) -> Iterator[Indices]:
    """Yield ``samples`` index arrays (int64, shape ``[n]``), drawn with replacement within each stratum.

    ``strata`` (one name per problem) keeps the size of each benchmark subset in every resample.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    if strata is None:
        for _ in range(samples):
            yield rng.integers(0, n, size=n, dtype=np.int64)
        return
    if len(strata) != n:
        raise ValueError(f"{len(strata)} strata for {n} problems; give one name per problem")
    names = np.asarray(strata)
    groups = [np.flatnonzero(names == name) for name in sorted(set(strata))]
    for _ in range(samples):
        yield np.concatenate([group[rng.integers(0, len(group), size=len(group))] for group in groups])


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


def paired(
    n: int,
    left: Statistic,
    right: Statistic,
    samples: int,
    confidence: float,
    seed: int,
    strata: Sequence[str] | None = None,
) -> Difference:
    """``left - right`` over the same ``n`` problems, each resample taken by both."""
    _check(n, samples, confidence)
    pairs = (left(rows) - right(rows) for rows in resamples(n, samples, seed, strata))
    values = np.fromiter(pairs, np.float64, samples)
    low, high = _percentiles(values, confidence)
    everyone = np.arange(n, dtype=np.int64)
    tail = min(float((values <= 0).mean()), float((values >= 0).mean()))
    return Difference(left(everyone) - right(everyone), low, high, min(1.0, max(2 * tail, 1 / samples)))


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
