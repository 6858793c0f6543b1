"""Cells in a stack are the cells that the project trains and scores one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from extras.experiment import rows, stacked
from extras.experiment.cell import Laboratory
from extras.experiment.plan import Cell
from extras.experiment.running import path_of, stacks
from ground.io import DataError
from pathfinder.models.folders import open_model
from pathfinder.prm.scoring import Scorer
from pathfinder.tree.tree import build_tree


@pytest.mark.parametrize("variant", ["full", "autoregressive", "plain_error"])
def test_a_stack_trains_and_scores_as_one_model_does(bench: Laboratory, variant: str, tmp_path: Path) -> None:
    cells = [Cell("b1", variant, 40, seed) for seed in (1, 2)]
    found = list(stacked.scored(bench, "main", cells, "cpu"))
    assert [cell for cell, _, _ in found] == cells
    for cell, margins, notes in found:
        scorer = Scorer(open_model(bench.train("main", cell, tmp_path / cell.name)), where="cpu")
        assert notes["seconds"].keys() == {"train", "evaluate"}
        for solutions, mine in zip(bench.solutions, stacked.scores_of(bench, cell, margins), strict=True):
            for got, want in zip(mine, scorer.score(solutions), strict=True):
                assert [s.reward for s in got] == pytest.approx([s.reward for s in want], abs=2e-4)
                assert [[*s.first.values()] for s in got] == [
                    pytest.approx([*s.first.values()], abs=2e-4) for s in want
                ]
    assert not np.array_equal(found[0][1], found[1][1]), "seeds differ"


def test_a_slot_sees_only_what_leads_to_it_in_its_own_tree() -> None:
    prompts = [np.array(ids, dtype=np.int32) for ids in ([1, 2, 3], [1, 2, 4, 5], [1, 6])]
    trees = [build_tree(prompts, [(0, 2), (1, 3), (2, 1)]), build_tree(prompts[:1], [(0, 2)])]
    starts, count = rows.place([len(tree) for tree in trees], 16)
    assert (starts.tolist(), count) == ([0, 6], 1)
    packed = rows.Rows(*(torch.from_numpy(part) for part in rows.fill(trees, starts, count, 16)))
    seen = packed.visible()[0]
    texts = ["".join(str(int(packed.ids[0, at])) for at in np.flatnonzero(seen[slot])) for slot in range(9)]
    assert texts == ["1", "12", "123", "124", "1245", "16", "1", "12", "123"]
    assert seen[9:].sum(1).tolist() == [1] * 7, "a slot without a token sees itself"


def test_trees_that_do_not_fit_together_get_rows_of_their_own() -> None:
    starts, count = rows.place([10, 16, 7, 6], 16)
    assert (starts.tolist(), count) == ([16, 0, 32, 26], 3)


def test_seeds_of_the_same_training_make_a_stack() -> None:
    cells = [Cell("a2", variant, 500, seed) for seed in range(1, 6) for variant in ("full", "no_subtasks")]
    paths = {path_of(block, cell): cell for block in ("main", "more") for cell in cells}
    assert [
        [(path.parent.name, paths[path].variant, paths[path].seed) for path in part] for part in stacks(paths, 3)
    ] == [
        [(block, variant, seed) for seed in seeds]
        for block in ("main", "more")
        for variant in ("full", "no_subtasks")
        for seeds in ((1, 2, 3), (4, 5))
    ]


def test_a_block_has_its_own_learning_rates(bench: Laboratory) -> None:
    cell = Cell("b1", "full", 40, 3)
    blocks = {"tuned": bench.plan.block("main").model_copy(update={"rates": {"full": 2e-4}})}
    other = replace(bench, plan=bench.plan.model_copy(update={"blocks": bench.plan.blocks | blocks}))
    tuned, main = other.settings("tuned", cell), bench.settings("main", cell)
    assert (tuned.learning_rate, tuned.seed) == (2e-4, main.seed)
    control = Cell("b1", "plain_error", 40, 3)
    assert other.settings("tuned", control) == bench.settings("main", control)
    assert other.identity("tuned", cell) != other.identity("main", cell) == bench.identity("main", cell)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_stack_without_a_gpu_names_the_remedy() -> None:
    with pytest.raises(DataError, match="needs a GPU and none was found; leave --stack out"):
        stacked.gpu_name()
