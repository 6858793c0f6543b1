"""The tables around the main comparison of the experiment, from cells with known figures."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from extras.experiment.cell import Laboratory
from extras.experiment.plan import Cell
from extras.experiment.tables import curve_rows, noise_rows, rate_rows, records_needed
from ground.io import read_json


def test_a_curve_is_interpolated_between_logarithms() -> None:
    curve = {125: 60.0, 500: 70.0, 2000: 80.0}
    assert records_needed(curve, 70.0) == pytest.approx(500)
    assert records_needed(curve, 75.0) == pytest.approx(1000)
    assert (records_needed(curve, 50.0), records_needed(curve, 81.0)) == (125, math.inf)


def _figures(f1: float, score: float) -> dict[str, Any]:
    return {"processbench": {"quality": {"f1": {"3": f1}}}, "prmbench": {"quality": {"PRMScore": score}}}


def test_data_that_types_save_are_counted() -> None:
    cells = {}
    for seed in (1, 2, 3):
        for size in (125, 500, 2000):
            level = 60 + 5 * math.log2(size / 125) + seed / 10
            cells[Cell("a2", "full", size, seed)] = _figures(level + 5, level + 5)
            cells[Cell("a2", "no_subtasks", size, seed)] = _figures(level, level)
    sizes = (125, 500, 2000)
    rows, said = curve_rows(cells, sizes)
    assert rows[1] == ("a2", "500", "75.2 (0.1)", "70.2 (0.1)", "3")
    assert said == ["H5 on a2: 1,000 records [1,000, 1,000]: save data"]
    for missing in sizes:
        assert curve_rows({cell: f for cell, f in cells.items() if cell.size != missing}, sizes) == ([], [])


def test_noise_between_seeds_does_not_make_equal_variants_differ() -> None:
    """The earliest crossing of each seed's own curve would be biased to fewer records."""
    rng, sizes = np.random.default_rng(3), (125, 250, 500, 1000, 2000)
    cells = {}
    for seed in range(400):
        for variant in ("full", "no_subtasks"):
            for size in sizes:
                value = 60 + math.log2(size / 125) + rng.normal(0, 2)
                cells[Cell("a2", variant, size, seed)] = _figures(value, value)
    _, (said,) = curve_rows(cells, sizes)
    assert abs(math.log2(float(said.split()[3].replace(",", "")) / 500)) < 0.4
    assert said.endswith(": open")


def test_rates_are_compared_on_the_cells_that_both_blocks_have() -> None:
    fast = {Cell("a2", "full", 500, seed): {"dev": {"soundness": 70.0 + seed, "quality": 1.0}} for seed in (1, 3, 9)}
    slow = {Cell("a2", "full", 500, seed): {"dev": {"soundness": 60.0 + seed}} for seed in (1, 3)}
    only = {Cell("a2", "no_subtasks", 500, 1): {"dev": {"quality": 60.0}}}
    rates = {"full": 2.5e-4, "no_subtasks": 2.5e-4}
    assert rate_rows([({"full": 5e-4}, fast), (rates, slow | only)]) == [
        ("full", "0.0005", "72.0", "2"),
        ("full", "0.00025", "62.0", "2"),
    ]
    assert rate_rows([(rates, only)]) == [("no_subtasks", "0.00025", "60.0", "1")]


def test_the_gain_of_a_corrected_loss_is_paired(bench: Laboratory, tmp_path: Path) -> None:
    rng, items = np.random.default_rng(1), bench.test
    easy = rng.random(len(items))

    def cell(level: float) -> dict[str, Any]:
        hits = np.packbits(easy < level).tobytes().hex()
        note = {"true": [0.05, 0.1], "estimated": [0.06, 0.09]}
        return {"processbench": {"soundness": {"hits": hits}}, "noise": note}

    level = {
        correction: {Cell("a2", "plain_error", 2000, seed): cell(0.5 + gain + seed / 100) for seed in range(6)}
        for correction, gain in {"none": 0.0, "estimated": 0.1, "true": 0.2}.items()
    }
    ((name, true, estimate, plain, better, gain, *_),) = noise_rows({"little": level}, items)
    assert (name, true, estimate) == ("little", "0.050, 0.100", "0.060, 0.090")
    assert float(gain.split()[0]) == pytest.approx(float(better) - float(plain), abs=0.15)
    assert float(gain.rpartition(" ")[2]) < 0.01
    assert not noise_rows({"little": level | {"true": {}}}, items)


def test_the_answers_in_words_have_the_figures_of_their_file(root: Path) -> None:
    known = set()
    for row in read_json(root / "infra/experiment/answers.json"):
        value, low, high = (row["difference"][end] for end in ("value", "low", "high"))
        for ends in ((value, low, high), (-value, -high, -low)):
            known.add("{:.1f} [{:.1f}, {:.1f}]".format(*ends))
    page = (root / "docs/experiment.md").read_text(encoding="utf-8").partition("of 16 differences:")[2]
    words = " ".join(page.partition("- Six stay open")[0].replace(" points", "").split())
    said = re.findall(r"[\d.]+ \[[^\]]+\]", words)
    assert len(said) == 8
    assert {*said} <= known
