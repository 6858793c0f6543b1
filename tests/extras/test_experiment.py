"""The experiment on typed errors: its plan, its material, its figures, and the verdicts on known differences."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from extras.experiment import __main__ as command
from extras.experiment import bases, material, running
from extras.experiment.answers import (
    SMALLEST,
    Answer,
    Replicates,
    answers,
    read_cells,
    rows_of,
    seeds_needed,
    verdict_of,
)
from extras.experiment.cell import Laboratory
from extras.experiment.figures import (
    Judged,
    by_reading_of,
    read_judged,
    threshold_of,
    weighted_f1,
    weights_at,
    with_idle_errors,
)
from extras.experiment.plan import LOOKS, PLAN, Cell, Plan, load_plan
from ground.io import DataError, read_json, write_json
from pathfinder.benchmarks.bootstrap import Estimate
from pathfinder.benchmarks.processbench import Table, first_error
from pathfinder.core.steps import StepScore
from world.oracle import assess_all
from world.story import read_story

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan at the least size that has every kind of error in every subset."""
    whole = load_plan(ROOT / PLAN)
    return whole.model_copy(
        update={
            "tests": whole.tests.model_copy(update={"items": 112, "dev": 112, "prmbench": 3}),
            "training": whole.training.model_copy(update={"lines": 24}),
            "bases": {"a2": whole.bases["a2"].model_copy(update={"device": "cpu", "steps": 2, "tokens": 512})},
            "train": whole.train.model_copy(update={"steps": 2}),
        }
    )


@pytest.fixture(scope="module")
def drawn(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The material of the small plan."""
    folder = tmp_path_factory.mktemp("experiment") / "material"
    material.write_material(plan, folder)
    return folder


@pytest.fixture(scope="module")
def items(drawn: Path) -> list[Judged]:
    return read_judged(drawn / "processbench")


def test_the_plan_names_only_what_exists() -> None:
    plan = load_plan(ROOT / PLAN)
    for block in plan.blocks.values():
        assert {cell.base for cell in block.cells} <= set(plan.bases)
    assert len(plan.block("main").cells) == 2 * 5 * 2 * 24
    assert {c.seed for c in plan.block("pilot").cells}.isdisjoint(c.seed for c in plan.block("main").cells)
    with pytest.raises(DataError, match="no block 'mane'; the blocks are fast, slow, tuned"):
        plan.block("mane")
    with pytest.raises(ValueError, match=r"blocks\.main: unknown fuller"):
        Plan.model_validate(
            plan.model_dump()
            | {"blocks": {"main": {"bases": ["a2"], "variants": ["fuller"], "sizes": [5], "seeds": [1, 2]}}}
        )


def test_a_cell_has_one_name() -> None:
    cell = Cell("a2", "no_error_categories", 6500, 12)
    assert Cell.parse(cell.name) == cell
    for name in ("a2-full-500", "full-500-s1", "a2-full-0-s1", "a2-full-500-s0", "a2-fuller-500-s1", ""):
        with pytest.raises(DataError, match="is not a cell"):
            Cell.parse(name)


def test_the_cells_of_a_look_are_run_size_by_size_and_then_seed_by_seed() -> None:
    cells = load_plan(ROOT / PLAN).block("main").cells
    order = [(cell.seed > 8, cell.size, cell.seed) for cell in cells]
    assert order == sorted(order)
    assert len({*cells}) == len(cells) == 24 * 2 * 2 * 5


def test_every_kind_of_error_is_equally_frequent(items: list[Judged]) -> None:
    kinds = Counter((judged.item.subset, judged.kind) for judged in items)
    assert {kind for _, kind in kinds} == {*material.KINDS, ""}
    assert {count for (_, kind), count in kinds.items() if kind} == {1}
    assert {count for (_, kind), count in kinds.items() if not kind} == {14}
    assert 0.1 < np.mean([bool(judged.idle) for judged in items]) < 0.5


def test_the_oracle_agrees_with_every_record(plan: Plan, drawn: Path) -> None:
    trees = pl.read_parquet(drawn / "train.parquet")
    overlooked = total = 0
    for tree in trees.iter_rows(named=True):
        for branch in tree["branches"]:
            verdict = assess_all(read_story(tree["problem"]), [*tree["steps"][: branch["step_index"]], branch["step"]])[
                -1
            ]
            assert verdict is not None
            truth = (*verdict.labels[:2], int(verdict.rating == 1))
            labels = (branch["math"], branch["consistency"], branch["correctness"])
            overlooked += labels != truth
            assert labels in (truth, (1, 1, 1))
            total += 1
    assert total > 150
    assert overlooked <= 0.05 * total


def test_no_story_is_in_two_sets(drawn: Path, items: list[Judged]) -> None:
    train = set(pl.read_parquet(drawn / "train.parquet")["problem"])
    dev = {judged.item.problem for judged in read_judged(drawn / "dev")}
    test = {judged.item.problem for judged in items}
    assert train.isdisjoint(dev)
    assert train.isdisjoint(test)
    assert dev.isdisjoint(test)


def test_equal_plans_draw_equal_material(plan: Plan, drawn: Path, tmp_path: Path) -> None:
    material.write_material(plan, tmp_path / "again")
    for path in drawn.rglob("*.*"):
        assert (tmp_path / "again" / path.relative_to(drawn)).read_bytes() == path.read_bytes()


def _scores(items: list[Judged], rng: random.Random, idle: float = 0.9) -> list[list[StepScore]]:
    """Scores that find about two of three errors, and call a step that is not optimal ``idle`` good."""
    out = []
    for judged in items:
        row = []
        for place in range(len(judged.solution.steps)):
            is_error = place == judged.item.label
            sound = rng.uniform(0, 0.7) if is_error else rng.uniform(0.4, 1)
            useful = idle if place in judged.idle else 1.0
            row.append(StepScore({"math": sound, "consistency": 1.0}, min(sound, useful)))
        out.append(row)
    return out


def test_steps_after_the_error_do_not_count(items: list[Judged]) -> None:
    scores = _scores(items, random.Random(1))
    found = by_reading_of(items, scores, "soundness", threshold_of(items, scores, "soundness"))
    later = [StepScore({"math": 0.0}, 0.0)]
    longer = [[*row, *later * (j.item.label >= 0)] for j, row in zip(items, scores, strict=True)]
    threshold = found["threshold"]
    predictions = {
        j.item.key: first_error([s.soundness >= threshold for s in row]) for j, row in zip(items, longer, strict=True)
    }
    hits = Table.of([j.item for j in items], predictions).hit
    # a solution whose error is missed stays missed, because a later step is not the label
    assert np.packbits(hits).tobytes().hex() == found["hits"]


def test_quality_loses_with_the_share_of_steps_that_are_not_optimal(items: list[Judged]) -> None:
    scores = _scores(items, random.Random(1), idle=0.0)
    sound, quality = (
        by_reading_of(items, scores, name, threshold_of(items, scores, name)) for name in ("soundness", "quality")
    )
    assert sound["f1"]["0"] - sound["f1"]["10"] < quality["f1"]["0"] - quality["f1"]["10"]


def test_quality_flags_steps_that_are_not_optimal_where_prmbench_does(items: list[Judged]) -> None:
    """For ProcessBench they are correct, and the best threshold lets them pass."""
    scores = [
        [
            StepScore({}, 0.02 if place == j.item.label else 0.1 if place in j.idle else 0.9)
            for place in range(len(j.solution.steps))
        ]
        for j in items
    ]
    assert 0.02 < threshold_of(items, scores, "quality") <= 0.1
    assert 0.1 < threshold_of(with_idle_errors(items), scores, "quality") <= 0.9


def test_replicates_begin_with_the_figure_itself(items: list[Judged]) -> None:
    scores = _scores(items, random.Random(3))
    found = by_reading_of(items, scores, "soundness", threshold_of(items, scores, "soundness"))
    rows = Replicates(items).f1(found["hits"])
    assert rows[0] == pytest.approx(found["f1"]["3"])
    assert rows[1:].std() > 0.5
    perfect = np.packbits(np.ones(len(items), dtype=np.bool_)).tobytes().hex()
    assert Replicates(items).f1(perfect) == pytest.approx(100)
    table = Table.of([j.item for j in items], {j.item.key: j.item.label for j in items})
    assert weighted_f1(table, weights_at(items, 3)) == pytest.approx(100)


def _cells(items: list[Judged], gain: float, spread: float, seeds: int) -> dict[Cell, Any]:
    """Cells in which ``full`` finds ``gain`` more of the items than the other variants, by about ``spread``."""
    rng = np.random.default_rng(5)
    easy = rng.random(len(items))
    found: dict[Cell, Any] = {}
    for seed in range(1, seeds + 1):
        for variant in ("full", "no_error_categories", "plain_error", "no_subtasks", "autoregressive"):
            level = 0.6 + gain * (variant == "full") + spread * rng.standard_normal()
            hits = np.packbits(easy < level).tobytes().hex()
            both = {"soundness": {"hits": hits}, "quality": {"hits": hits}}
            read = {"no_subtasks": ("quality",), "plain_error": ("soundness",)}.get(variant, tuple(both))
            score = {"PRMScore": 100 * level}
            rules = dict.fromkeys(read, score) | ({"definition": score} if len(read) > 1 else {})
            figures = {"processbench": {name: both[name] for name in read}, "prmbench": rules}
            found[Cell("a2", variant, 500, seed)] = figures
    return found


def test_a_large_gain_helps_and_its_reverse_harms(items: list[Judged]) -> None:
    for gain, verdict in ((0.2, "helps"), (-0.2, "harms")):
        found = answers(_cells(items, gain, 0.002, 24), items)
        assert [a.hypothesis.name for a in found] == ["H1", "H2", "H3", "H4"]
        assert {a.verdict for a in found} == {verdict}
        assert all(a.found.low < a.found.value < a.found.high for a in found)


def test_no_verdict_before_the_first_look(items: list[Judged]) -> None:
    found = answers(_cells(items, 0.2, 0.002, 7), items)
    assert {a.verdict for a in found} == {"open"}
    assert "open (" in rows_of(found)[0][-1]
    assert {a.verdict for a in answers(_cells(items, 0.35, 0.002, 7), items)} == {"open"}, "nor a ceiling"


def test_seeds_after_a_look_change_no_verdict_before_the_next_one(items: list[Judged]) -> None:
    first, later = _cells(items, 0.0, 0.1, 8), _cells(items, 0.2, 0.002, 24)
    cells = {cell: first.get(cell, figures) for cell, figures in later.items()}
    before = answers({cell: figures for cell, figures in cells.items() if cell.seed < 24}, items)
    assert {a.verdict for a in before} == {"open"}
    assert all(a.seeds == 23 and a.found.value > 5 and a.p < min(LOOKS.values()) for a in before)
    assert {a.verdict for a in answers(cells, items)} == {"helps"}
    near, far = _cells(items, 0.0, 0.1, 8), _cells(items, 0.4, 0.002, 23)
    risen = answers({cell: near.get(cell, figures) for cell, figures in far.items()}, items)
    assert {a.verdict for a in risen} == {"open"}, "later seeds near the ceiling change none either"


def test_a_verdict_is_final_and_the_next_look_needs_only_the_open_hypotheses(items: list[Judged]) -> None:
    """All variants but `no_subtasks` are about equal; the second half of the seeds lacks that one."""
    some, equal = _cells(items, 0.2, 0.1, 48), _cells(items, 0.2, 0.02, 48)
    cells = {cell: some[cell] if cell.variant == "full" else equal[replace(cell, variant="full")] for cell in some}
    cells |= {cell: figures for cell, figures in equal.items() if cell.variant == "no_subtasks" and cell.seed <= 24}
    cells = {cell: cells[cell] for cell in cells if cell.variant != "no_subtasks" or cell.seed <= 24}
    early, late = (
        {
            a.hypothesis.name: a
            for a in answers({c: cells[c] for c in cells if c.seed <= last}, items, {24: 0.01, 48: 0.9})
        }
        for last in (24, 48)
    )
    assert {name: a.seeds for name, a in late.items()} == {"H1": 48, "H2": 48, "H3": 24, "H4": 48}
    assert late["H3"] == early["H3"]
    assert {name: a.verdict for name, a in early.items()} == {"H1": "open", "H2": "open", "H3": "helps", "H4": "open"}


def test_no_verdict_rests_on_a_figure_near_the_ceiling(items: list[Judged]) -> None:
    assert {a.verdict for a in answers(_cells(items, 0.35, 0.002, 24), items)} == {"too high"}


def test_equal_variants_are_equivalent_only_if_the_interval_is_narrow(items: list[Judged]) -> None:
    assert {a.verdict for a in answers(_cells(items, 0.0, 0.0, 24), items)} == {"equivalent"}
    assert {a.verdict for a in answers(_cells(items, 0.0, 0.1, 24), items)} == {"open"}


def test_a_clear_difference_below_one_point_is_no_help() -> None:
    small = Estimate(0.6, 0.4, 0.8, 1e-6)
    assert verdict_of(small, Estimate(0.6, 0.45, 0.75, 1e-6), 1e-6, 0.015) == "equivalent"
    assert verdict_of(replace(small, value=1.2), Estimate(1.2, 1.05, 1.35, 1e-6), 1e-6, 0.015) == "helps"
    unclear = replace(small, value=1.2), Estimate(1.2, 0.9, 1.5, 0.02), 0.02
    assert [verdict_of(*unclear, level) for level in (0.015, 0.025)] == ["open", "helps"]


def test_seeds_needed_grow_with_the_spread_and_near_one_point() -> None:
    assert seeds_needed(0.0, 0.8, 0.0, 0.05) < seeds_needed(0.0, 3.2, 0.0, 0.05)
    assert seeds_needed(0.0, 0.8, 0.7, 0.05) == 0  # the problems alone are too few
    assert seeds_needed(0.9, 0.8, 0.0, 0.05) > seeds_needed(0.0, 0.8, 0.0, 0.05)
    assert seeds_needed(1.2, 3.2, 0.0, 0.01) > seeds_needed(1.2, 3.2, 0.0, 0.05) > seeds_needed(2.4, 3.2, 0.0, 0.05)


def test_the_seeds_needed_allow_for_the_other_hypotheses_of_a_setting(items: list[Judged]) -> None:
    open_ = [a for a in answers(_cells(items, 0.04, 0.05, 8), items) if abs(a.found.value) > SMALLEST and a.needed]
    assert open_
    for answer in open_:
        z = abs(answer.found.value) * math.sqrt(answer.needed) / answer.spread
        assert 4 * math.erfc(z / math.sqrt(2)) <= max(LOOKS.values())


def test_a_file_that_is_no_cell_is_named(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"cell": {"base": "a2"}})
    with pytest.raises(DataError, match=r"x\.json: not a cell of the experiment; remove it"):
        read_cells(tmp_path)


@pytest.mark.campaign
def test_the_command_measures_cells_in_processes_of_their_own(plan: Plan, drawn: Path, tmp_path: Path) -> None:
    block = {"bases": ["a2"], "variants": ["plain_error"], "sizes": [20], "seeds": [1, 1]}
    small = plan.model_dump(mode="json") | {"blocks": {"tiny": block}}
    (tmp_path / "infra/experiment").mkdir(parents=True)
    (tmp_path / PLAN).write_text(yaml.safe_dump(small))
    (tmp_path / "infra/experiment/bases").symlink_to(ROOT / "infra/experiment/bases")
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/experiment").symlink_to(drawn.parent)
    run = [sys.executable, "-m", "extras.experiment", "run", "tiny", "--jobs", "1"]
    done = subprocess.run(run, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [cell.name for cell in read_cells(tmp_path / "infra/experiment/cells/tiny")] == ["a2-plain_error-20-s1"]


@pytest.mark.campaign
def test_a_block_runs_resumes_and_repeats_a_cell(
    plan: Plan, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bases.train_base("a2", plan, tmp_path / "bases")
    with pytest.raises(DataError, match="no base model 'a9'; the ladder has a2"):
        bases.train_base("a9", plan, tmp_path / "bases")
    small = Laboratory(plan, drawn, tmp_path / "bases")
    monkeypatch.setattr(running, "laboratory", lambda: small)
    monkeypatch.setattr(running, "CELLS", tmp_path / "cells")
    cell = Cell("a2", "full", 40, 1)
    path = running.measure(running.path_of("main", cell), cell)
    stored = read_json(path)
    assert stored["cell"] == {"base": "a2", "variant": "full", "size": 40, "seed": 1}
    assert running.is_current(path, cell)
    assert not running.is_current(path, replace(cell, seed=2)), "figures of a different cell, or of a changed plan"
    assert not running.is_current(path.with_name("absent.json"), cell)
    assert {*stored["prmbench"]} == {"soundness", "quality", "definition"}
    command.again("main/a2-full-40-s1")
    assert "the same figures" in capsys.readouterr().out
    stored["processbench"]["soundness"]["f1"]["3"] += 1
    write_json(path, stored)
    command.again("main/a2-full-40-s1")
    assert "different: processbench" in capsys.readouterr().out
    with pytest.raises(DataError, match="does not exist; name a finished cell as BLOCK/CELL"):
        command.again("main/a2-full-40-s2")
    assert [*read_cells(tmp_path / "cells")] == [cell]
    assert not isinstance(answers(read_cells(tmp_path / "cells"), read_judged(drawn / "processbench")), Answer)


def test_a_block_has_its_own_learning_rates(bench: Laboratory) -> None:
    cell = Cell("b1", "full", 40, 3)
    blocks = {"tuned": bench.plan.block("main").model_copy(update={"rates": {"full": 2e-4}})}
    other = replace(bench, plan=bench.plan.model_copy(update={"blocks": bench.plan.blocks | blocks}))
    tuned, main = other.settings("tuned", cell), bench.settings("main", cell)
    assert (tuned.learning_rate, tuned.seed) == (2e-4, main.seed)
    control = Cell("b1", "plain_error", 40, 3)
    assert other.settings("tuned", control) == bench.settings("main", control)
    assert other.identity("tuned", cell) != other.identity("main", cell) == bench.identity("main", cell)
