"""Parse 100,000 generated answers with known scores, with this parser and with the published expression."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import pytest

from pathfinder.core.labels import Scores
from pathfinder.judge.parsing import official_scores, parse_scores
from tests.support.judge_answers import KINDS, Case, generate

ANSWERS = 100_000


def table(cases: list[Case]) -> tuple[list[str], list[tuple[Case, object]]]:
    """A row per kind with the wrong and missed readings of both, and the wrong readings of this parser."""
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[tuple[Case, object]] = []
    for case in cases:
        read, published = parse_scores(case.text), official_scores(case.text)
        counts[case.kind, "answers"] += 1
        counts[case.kind, "scores"] += isinstance(read, Scores)
        counts[case.kind, "reason"] += not isinstance(read, Scores)
        if not case.accepts(read):
            wrong.append((case, read))
            counts[case.kind, "wrong"] += 1
        truth = case.truth
        counts[case.kind, "misread"] += published is not None and published != truth
        counts[case.kind, "missed"] += published is None and truth is not None and not case.is_cut
    heads = ("answers", "scores", "reason", "wrong", "misread", "missed")
    rows = [f"| {kind} | {' | '.join(f'{counts[kind, head]:,}' for head in heads)} |" for kind in KINDS]
    total = (f"{sum(counts[kind, head] for kind in KINDS):,}" for head in heads)
    return [*rows, f"| all | {' | '.join(total)} |"], wrong


@pytest.mark.benchmarks
def test_a_hundred_thousand_answers_and_no_wrong_read() -> None:
    random = Random(3)
    cases = [generate(random) for _ in range(ANSWERS)]
    rows, wrong = table(cases)
    speeds = []
    for parse in (parse_scores, official_scores):
        start = time.perf_counter()
        for case in cases:
            parse(case.text)
        speeds.append(len(cases) / (time.perf_counter() - start))
    print("\n| kind | answers | read | a reason | wrong reads | published: wrong reads | published: missed |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    print(f"answers/s: {speeds[0]:,.0f}; published expression {speeds[1]:,.0f}; ratio {speeds[0] / speeds[1]:.2f}")
    assert not wrong, wrong[0]
