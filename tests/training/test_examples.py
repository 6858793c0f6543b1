"""Examples: counts, splits, weights, labels, and the plan of the optimiser steps."""

from __future__ import annotations

import polars as pl
import pytest

from ground.io import DataError
from pathfinder.core import prompts
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import SOFT_TREES, TREES
from pathfinder.training.examples import gold_labels, plan_steps, plan_trees, read_examples
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Prompter, Query
from tests.support.models import plain_tokenizer, separate_prompt
from tests.support.training import branch, frame, settings


def test_counts_are_those_of_the_published_samples() -> None:
    tokenizer = plain_tokenizer()
    for variant, samples, labels in (("full", 2, 3), ("no_error_categories", 2, 2), ("no_subtasks", 1, 1)):
        prompter = Prompter(tokenizer, VARIANTS[variant])
        example = read_examples(frame(1), prompter, 10**6)[0]
        assert (example.records, example.samples, len(example.targets.marks)) == (5, 5 * samples, 5 * labels)
        total = 0
        for b in frame(1)["branches"][0]:
            query = Query("q", "What is 0? <+>", tuple(frame(1)["steps"][0][: b["step_index"]]), b["step"])
            for step in prompter.passes:
                ids = separate_prompt(tokenizer, prompter, query, [prompts.MASK] * (step.asked[-1] + 1))
                total += len(ids) - len(tokenizer.encode("<|im_end|>\n", add_special_tokens=False))
        assert example.sample_tokens == total


@pytest.mark.parametrize(("variant", "samples"), [("full", 2), ("no_subtasks", 1), ("autoregressive", 1)])
def test_published_samples_are_examples_of_one_path(variant: str, samples: int) -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS[variant])
    apart, together = (read_examples(frame(2), prompter, 10**6, way) for way in ("device", "sample"))
    assert len(apart) == sum(example.samples for example in apart) == samples * 9
    assert all(example.tree.depth.tolist() == list(range(len(example.tree))) for example in apart)
    for count in (lambda e: len(e.targets.marks), lambda e: e.samples, lambda e: e.sample_tokens):
        assert sum(map(count, apart)) == sum(map(count, together))


def test_trees_are_cut_into_even_parts() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    whole = read_examples(frame(2), prompter, 10**6)
    cut = read_examples(frame(2), prompter, 10**6, records_per_tree=2)
    assert [example.records for example in cut] == [1, 2, 2, 2, 2]
    assert [example.name for example in cut] == ["t-0"] * 3 + ["t-1"] * 2
    assert sum(e.samples for e in cut) == sum(e.samples for e in whole)
    assert sum(e.sample_tokens for e in cut) == sum(e.sample_tokens for e in whole)
    assert sum(len(e.tree) for e in cut) > sum(len(e.tree) for e in whole)


def test_reading_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """400,000 records take minutes."""
    monkeypatch.setattr("ground.progress._QUIET_S", 0.0)
    read_examples(frame(2), Prompter(plain_tokenizer(), VARIANTS["full"]), 10**6)
    assert "tokenise: 9/9 records (100 %)" in capsys.readouterr().err


def test_error_free_means_correct_in_math_and_consistency() -> None:
    labels = ("error_free", "correctness")
    assert gold_labels(branch("r", 0, "s", 1, 1, 0), labels) == (True, False)
    assert gold_labels(branch("r", 0, "s", 1, 0, 0), labels) == (False, False)
    with pytest.raises(DataError, match=r"record r: .*math.*2"):
        gold_labels(branch("r", 0, "s", 2, 1, 1), labels)


def test_optimality_is_zero_for_a_neutral_step_only() -> None:
    found = {labels: gold_labels(branch("r", 0, "s", *labels), ("optimality",)) for labels in ((1, 1, 0), (1, 1, 1))}
    assert found == {(1, 1, 0): (False,), (1, 1, 1): (True,)}
    assert gold_labels(branch("r", 0, "s", 1, 0, 0), ("math", "consistency", "optimality")) == (True, False, True)


def test_soft_labels_are_the_targets_of_correctness() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    (example,) = read_examples(frame(1, soft=True), prompter, 10**6, soft=True)
    targets = example.targets
    is_correctness = targets.marks == prompter.labels.index("correctness")
    assert targets.shares[is_correctness].tolist() == [0.0, 0.25, 0.0, 1.0, 0.875]
    assert (targets.shares == targets.positive)[~is_correctness].all()
    wrong = frame(1, soft=True).to_dicts()
    wrong[0]["branches"][1]["mc_value"] = 1.5
    with pytest.raises(DataError, match=r"record r-0-0-1: mc_value 1\.5"):
        read_examples(pl.DataFrame(wrong, schema=SOFT_TREES), prompter, 10**6, soft=True)


def test_large_trees_are_split_and_one_large_record_is_an_example_by_itself() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    whole = read_examples(frame(1), prompter, 10**6)
    size = len(whole[0].tree)
    parts = read_examples(frame(1), prompter, size - 1)
    assert len(parts) > 1
    assert all(len(part.tree) < size for part in parts)
    assert sum(part.records for part in parts) == 5
    single = read_examples(frame(1), prompter, 10)
    assert [example.records for example in single] == [1] * 5
    sizes = [len(example.tree) for example in single]
    assert [[len(group) for group in pack(sizes, 10)], min(sizes) > 10] == [[1] * 5, True]
    assert sum(len(example.targets.marks) for example in single) == len(whole[0].targets.marks)
    empty = frame(1).with_columns(branches=pl.lit([], dtype=TREES["branches"]))
    with pytest.raises(DataError, match="tree t-0: no labelled step"):
        read_examples(empty, prompter, 10**6)


def test_a_record_over_the_positions_of_the_model_is_left_out_and_named() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    rows = frame(2).to_dicts()
    rows[0]["branches"][3]["step"] = "a very long step " * 200
    table = pl.DataFrame(rows, schema=TREES)
    branch_ = rows[0]["branches"][3]
    query = Query("q", rows[0]["problem"], tuple(rows[0]["steps"][: branch_["step_index"]]), branch_["step"])
    longest = prompter.encode([query])[0][1][-1]
    too_long: dict[str, int] = {}
    kept = read_examples(table, prompter, 10**6, positions=longest, too_long=too_long)
    assert too_long == {}
    assert sum(example.records for example in kept) == 9
    rest = read_examples(table, prompter, 10**6, positions=longest - 1, too_long=too_long)
    assert too_long == {"r-0-1-1": longest}
    assert [example.records for example in rest] == [4, 4]
    assert max(int(example.tree.depth.max()) for example in rest) < longest - 1
    assert read_examples(table, prompter, 10**6, positions=5, too_long=too_long) == []


def test_problems_can_have_equal_weights() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    examples = read_examples(frame(3), prompter, 10**6, "problem")
    totals = [float(example.targets.weights.sum()) for example in examples]
    assert totals[0] + totals[2] == pytest.approx(1)
    assert totals[1] == pytest.approx(1)


def test_plans_are_shuffled_filled_and_repeatable() -> None:
    samples = [2, 4, 8, 2, 2, 6] * 5
    plan = plan_steps(samples, 10, 2.0, 7)
    assert plan == plan_steps(samples, 10, 2.0, 7)
    assert plan != plan_steps(samples, 10, 2.0, 8)
    assert sorted(i for step in plan for i in step) == sorted([*range(len(samples))] * 2)
    assert all(sum(samples[i] for i in step) <= 10 for step in plan)
    assert len(plan_steps(samples, 10, 0.5, 7)) == pytest.approx(len(plan) / 4, abs=1)
    assert plan_steps([50, 50], 10, 1.0, 0) in ([[0], [1]], [[1], [0]])
    assert plan_steps(samples, 10, 2.0, 7, exactly=len(plan) + 5)[: len(plan)] == plan
    assert plan_steps(samples, 10, 2.0, 7, exactly=3) == plan[:3]


@pytest.mark.parametrize("steps", [0, 7])
def test_every_variant_takes_the_same_steps(steps: int) -> None:
    found = {
        tuple(map(tuple, plan_trees(read_examples(frame(6), Prompter(plain_tokenizer(), variant), 10**6), chosen)))
        for variant in VARIANTS.values()
        for chosen in [settings(steps=steps)]
    }
    assert len(found) == 1
    assert len(found.pop()) == (steps or 12)
