from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from pathfinder.core import prompts
from pathfinder.core.io import DataError
from pathfinder.core.params import Lora, Train
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import SOFT_TREES, TREES
from pathfinder.training import adapter, training
from pathfinder.training.trainer import fit, sound_checkpoint
from pathfinder.tree.attention import use_trees
from pathfinder.tree.passes import Prompter, Query
from tests.support.models import (
    exact_norms,  # noqa: F401  (a fixture)
    plain_tokenizer,
    separate_prompt,
    small_model,
)


def branch(
    number: int, index: int, step: str, math: int = 1, consistency: int = 1, correctness: int = 1
) -> dict[str, Any]:
    return {
        "id": f"r-{number}-{index}",
        "step_index": index,
        "step": step,
        "math": math,
        "consistency": consistency,
        "correctness": correctness,
    }


def frame(trees: int = 3, soft: bool = False) -> pl.DataFrame:
    rows = []
    for n in range(trees):
        steps = [f"first {n}", "then <extra> more\n\n", f"so \\boxed{{{n}}}"]
        branches = [
            branch(n, 0, steps[0]),
            branch(n, 0, "an alternative", 0, 1, 0),
            branch(n, 1, steps[1], 1, 0, 0),
            branch(n, 1, steps[1], 1, 1, 1),  # the same step labelled twice
            branch(n, 2, f"so {n + 1}", 1, 1, 0),
        ][: 5 - n % 2]
        rows.append(
            {
                "tree_id": f"t-{n}",
                "problem_id": f"p-{n % 2}",
                "source": "prm800k",
                "problem": f"What is {n}? <+>",
                "steps": steps,
                "branches": branches,
            }
        )
        if soft:
            for number, b in enumerate(branches):
                b["mc_value"] = (0.0, 0.25, None, 1.0, 0.875)[number]
    return pl.DataFrame(rows, schema=SOFT_TREES if soft else TREES)


def separate_loss(model: Any, tokenizer: Any, prompter: Prompter, table: pl.DataFrame) -> torch.Tensor:
    """The published way: two samples a record, labels at ``<extra>``, logits one before, summed over the records."""
    loss = torch.zeros((), dtype=model.dtype)
    for row in table.iter_rows(named=True):
        for b in row["branches"]:
            query = Query(b["id"], row["problem"], tuple(row["steps"][: b["step_index"]]), b["step"])
            gold = [prompts.GOOD if fine else prompts.BAD for fine in training.gold_labels(b, prompter.labels)]
            for one in prompter.passes:
                stated = gold[: one.asked[-1] + 1]
                masked = [prompts.MASK if i in one.asked else token for i, token in enumerate(stated)]
                inputs = torch.tensor([separate_prompt(tokenizer, prompter, query, masked)])
                wanted = torch.tensor([separate_prompt(tokenizer, prompter, query, stated)])
                labels = torch.where(inputs == wanted, -100, wanted)
                assert int((labels != -100).sum()) == len(one.asked)
                logits = model(input_ids=inputs).logits
                loss = loss + torch.nn.functional.cross_entropy(
                    logits[0, :-1], labels[0, 1:], ignore_index=-100, reduction="sum"
                )
    return loss


def tree_loss(model: Any, prompter: Prompter, table: pl.DataFrame, budget: int) -> torch.Tensor:
    use_trees(model)
    loss = torch.zeros((), dtype=model.dtype)
    for batch, targets in training.batches(training.read_examples(table, prompter, 10**6), budget):
        loss = loss + training.summed_loss(model, batch.to("cpu", model.dtype), targets, prompter.ids)[0]
    return loss


def gradient(model: Any, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_gradients_equal_the_separate_samples(
    variant: str, dtype: torch.dtype, bound: float, checkpointing: bool, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("exact_norms")
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS[variant])
    model = small_model(tokenizer, dtype)
    want = separate_loss(model, tokenizer, prompter, frame())
    reference = gradient(model, want)
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
        model.train()
    got = tree_loss(model, prompter, frame(), budget=300)
    assert abs(got.item() / want.item() - 1) < bound
    assert float((gradient(model, got) - reference).norm() / reference.norm()) < bound


def test_counts_are_those_of_the_published_samples() -> None:
    tokenizer = plain_tokenizer()
    for variant, samples, labels in (("full", 2, 3), ("no_error_categories", 2, 2), ("no_subtasks", 1, 1)):
        prompter = Prompter(tokenizer, VARIANTS[variant])
        example = training.read_examples(frame(1), prompter, 10**6)[0]
        assert (example.records, example.samples, len(example.marks)) == (5, 5 * samples, 5 * labels)
        total = 0
        for b in frame(1)["branches"][0]:
            query = Query("q", "What is 0? <+>", tuple(frame(1)["steps"][0][: b["step_index"]]), b["step"])
            for one in prompter.passes:
                ids = separate_prompt(tokenizer, prompter, query, [prompts.MASK] * (one.asked[-1] + 1))
                total += len(ids) - len(tokenizer.encode("<|im_end|>\n", add_special_tokens=False))
        assert example.sample_tokens == total


def test_trees_are_cut_into_even_parts() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    whole = training.read_examples(frame(2), prompter, 10**6)
    cut = training.read_examples(frame(2), prompter, 10**6, records_per_tree=2)
    assert [example.records for example in cut] == [1, 2, 2, 2, 2]
    assert [example.name for example in cut] == ["t-0"] * 3 + ["t-1"] * 2
    assert sum(e.samples for e in cut) == sum(e.samples for e in whole)
    assert sum(e.sample_tokens for e in cut) == sum(e.sample_tokens for e in whole)
    assert sum(len(e.tree) for e in cut) > sum(len(e.tree) for e in whole)
    model = small_model(plain_tokenizer(), torch.float64)
    use_trees(model)
    sums = []
    for examples in (whole, cut):
        parts = [
            training.summed_loss(model, batch.to("cpu", model.dtype), targets, prompter.ids)[0].item()
            for batch, targets in training.batches(examples, 4096)
        ]
        sums.append(sum(parts))
    assert sums[0] == pytest.approx(sums[1], rel=1e-9)


def test_soft_labels_are_the_expected_hard_loss(request: pytest.FixtureRequest) -> None:
    """A value v of correctness is v times the loss of "+" and 1 - v times that of "-"; the rest stays hard."""
    request.getfixturevalue("exact_norms")
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    model = small_model(plain_tokenizer(), torch.float64)
    use_trees(model)
    (example,) = training.read_examples(frame(1, soft=True), prompter, 10**6, soft=True)
    of_correctness = example.marks == prompter.labels.index("correctness")
    assert example.shares[of_correctness].tolist() == [0.0, 0.25, 0.0, 1.0, 0.875]
    assert (example.shares == example.positive)[~of_correctness].all()

    def loss(shares: Any) -> torch.Tensor:
        batch, targets = training.batch_of([replace(example, shares=np.asarray(shares, dtype=np.float32))])
        return training.summed_loss(model, batch.to("cpu", model.dtype), targets, prompter.ids)[0]

    got = loss(example.shares)
    one = loss(np.where(of_correctness, 1.0, example.shares))
    parts = [
        loss(
            [
                1.0 if i == at else 0.0 if kind else s
                for i, (s, kind) in enumerate(zip(example.shares, of_correctness, strict=True))
            ]
        )
        for at in np.flatnonzero(of_correctness)
    ]
    none = loss(np.where(of_correctness, 0.0, example.shares))
    values = example.shares[of_correctness]
    wanted = none + sum(float(v) * (part - none) for v, part in zip(values, parts, strict=True))
    assert got.item() == pytest.approx(wanted.item(), rel=1e-12)
    assert one.item() != pytest.approx(got.item(), rel=1e-6)
    relative = (gradient(model, loss(example.shares)) - gradient(model, wanted)).norm() / gradient(
        model, loss(example.shares)
    ).norm()
    assert float(relative) < 1e-12
    wrong = frame(1, soft=True).to_dicts()
    wrong[0]["branches"][1]["mc_value"] = 1.5
    with pytest.raises(DataError, match=r"record r-0-0: mc_value 1\.5"):
        training.read_examples(pl.DataFrame(wrong, schema=SOFT_TREES), prompter, 10**6, soft=True)


def test_error_free_means_both() -> None:
    labels = ("error_free", "correctness")
    assert training.gold_labels(branch(0, 0, "s", 1, 1, 0), labels) == (True, False)  # type: ignore[arg-type]
    assert training.gold_labels(branch(0, 0, "s", 1, 0, 0), labels) == (False, False)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"r-0-0.*math.*2"):
        training.gold_labels(branch(0, 0, "s", 2), labels)  # type: ignore[arg-type]


def test_large_trees_are_split_and_what_cannot_be_is_named() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    whole = training.read_examples(frame(1), prompter, 10**6)
    size = len(whole[0].tree)
    parts = training.read_examples(frame(1), prompter, size - 1)
    assert len(parts) > 1
    assert all(len(part.tree) < size for part in parts)
    assert sum(part.records for part in parts) == 5
    with pytest.raises(DataError, match=r"record r-0-\d.*token_budget 10"):
        training.read_examples(frame(1), prompter, 10)
    empty = frame(1).with_columns(branches=pl.lit([], dtype=TREES["branches"]))
    with pytest.raises(DataError, match="tree t-0: no labelled step"):
        training.read_examples(empty, prompter, 10**6)


def test_weights_per_problem() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    examples = training.read_examples(frame(3), prompter, 10**6, "problem")
    totals = [float(example.weights.sum()) for example in examples]
    assert totals[0] + totals[2] == pytest.approx(1)
    assert totals[1] == pytest.approx(1)


def test_plans_are_shuffled_filled_and_repeatable() -> None:
    samples = [2, 4, 8, 2, 2, 6] * 5
    plan = training.plan_steps(samples, 10, 2.0, 7)
    assert plan == training.plan_steps(samples, 10, 2.0, 7)
    assert plan != training.plan_steps(samples, 10, 2.0, 8)
    assert sorted(i for step in plan for i in step) == sorted([*range(len(samples))] * 2)
    assert all(sum(samples[i] for i in step) <= 10 for step in plan)
    assert len(training.plan_steps(samples, 10, 0.5, 7)) == pytest.approx(len(plan) / 4, abs=1)
    assert training.plan_steps([50, 50], 10, 1.0, 0) in ([[0], [1]], [[1], [0]])


def test_figures_are_read_where_the_loss_is_read() -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = small_model(tokenizer)
    use_trees(model)
    examples = training.read_examples(frame(), prompter, 10**6)
    for _ in range(40):
        for batch, targets in training.batches(examples, 4096):
            loss, _ = training.summed_loss(model, batch.to("cpu", model.dtype), targets, prompter.ids)
            loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.02 * parameter.grad / (parameter.grad.norm() + 1e-6)
                parameter.grad = None
    figures = training.evaluate(model, examples, prompter, 4096)
    assert {label: f["n"] for label, f in figures.items()} == {"math": 14, "consistency": 14, "correctness": 14}
    assert figures["math"]["auc"] == 1.0
    assert figures["math"]["accuracy"] > figures["math"]["majority_accuracy"]
    assert figures["consistency"]["majority_accuracy"] == pytest.approx(11 / 14)


def test_area_under_curve() -> None:
    scores = np.array([0.1, 0.4, 0.35, 0.8])
    assert training.area_under_curve(scores, np.array([False, False, True, True])) == 0.75
    assert training.area_under_curve(np.zeros(4), np.array([False, True, True, False])) == 0.5
    assert training.area_under_curve(scores, np.ones(4, dtype=bool)) == 0.5


def settings(**changed: Any) -> Train:
    values: dict[str, Any] = {
        "dtype": "float32",
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "warmup_ratio": 0.1,
        "epochs": 2.0,
        "batch_samples": 12,
        "token_budget": 4096,
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "gradient_checkpointing": False,
        "weighting": "sample",
        "records_per_tree": 0,
        "soft_labels": False,
        "lora": Lora(rank=0, alpha=8, targets=["q_proj", "v_proj"]),
        "launch": "",
        "save_every": 2,
        "seed": 1,
    }
    return Train(**{**values, **changed})


def start(tokenizer: Any) -> tuple[Any, Prompter, list[training.Example]]:
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = small_model(tokenizer)
    use_trees(model)
    return model, prompter, training.read_examples(frame(6), prompter, 4096)


def test_the_trainer_takes_the_planned_steps(tmp_path: Path) -> None:
    """One step of the trainer is one AdamW step on the summed loss over all labels of the step."""
    model, prompter, examples = start(plain_tokenizer())
    twin, _, _ = start(plain_tokenizer())
    rows = fit(
        model, prompter, examples, settings(schedule="constant", warmup_ratio=0.0, max_grad_norm=1e9), tmp_path
    ).rows
    plan = training.plan_steps([e.samples for e in examples], 12, 2.0, 1)
    assert [row["step"] for row in rows] == list(range(1, len(plan) + 1))
    optimiser = torch.optim.AdamW(twin.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    for step, row in zip(plan, rows, strict=True):
        chosen = [examples[i] for i in step]
        sums = [
            training.summed_loss(twin, batch.to("cpu", twin.dtype), targets, prompter.ids)[0]
            for batch, targets in training.batches(chosen, 300)
        ]
        loss = torch.stack(sums).sum() / sum(len(example.marks) for example in chosen)
        assert row["loss"] == pytest.approx(loss.item(), rel=1e-4)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=2e-4)


def test_bfloat16_learns_as_float32_does(tmp_path: Path) -> None:
    """Autocast over float32 weights: the losses are near, not equal, and what is trained stays float32."""
    losses = []
    for dtype in ("float32", "bfloat16"):
        model, prompter, examples = start(plain_tokenizer())
        chosen = settings(dtype=dtype, epochs=1.0, gradient_checkpointing=dtype == "bfloat16")
        losses.append([row["loss"] for row in fit(model, prompter, examples, chosen, tmp_path / dtype).rows])
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_torn_checkpoint_falls_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, prompter, examples = start(plain_tokenizer())
    fit(model, prompter, examples, settings(), tmp_path)
    names = sorted((p.name for p in tmp_path.glob("checkpoint-*")), key=lambda n: int(n.split("-")[1]))
    assert len(names) == 2
    assert sound_checkpoint(tmp_path) == tmp_path / names[1]
    torn = tmp_path / names[1] / "optimizer.pt"
    torn.write_bytes(torn.read_bytes()[:-7])
    assert sound_checkpoint(tmp_path) == tmp_path / names[0]
    assert not torn.parent.exists()
    assert "torn, removed" in capsys.readouterr().err
    again, prompter, examples = start(plain_tokenizer())
    fit(again, prompter, examples, settings(), tmp_path)
    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_loss_that_is_not_finite_stops(tmp_path: Path) -> None:
    model, prompter, examples = start(plain_tokenizer())
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(DataError, match=r"loss is nan at optimiser step 1 \(trees t-"):
        fit(model, prompter, examples, settings(), tmp_path)
    with pytest.raises(DataError, match="no training trees"):
        fit(model, prompter, [], settings(), tmp_path)


def test_a_gradient_that_is_not_finite_stops(tmp_path: Path) -> None:
    model, prompter, examples = start(plain_tokenizer())
    model.lm_head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(DataError, match="gradient's norm is inf at optimiser step 1"):
        fit(model, prompter, examples, settings(save_every=1), tmp_path)
    assert sound_checkpoint(tmp_path) is None


def test_an_adapter_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """The merged weights after a torn checkpoint are those of an uninterrupted run; the base's own stay as they are."""
    lora = Lora(rank=4, alpha=8, targets=["q_proj", "v_proj"])
    model, prompter, examples = start(plain_tokenizer())
    base = {name: value.clone() for name, value in model.state_dict().items()}
    weights = []
    for _ in range(2):
        fresh, _, _ = start(plain_tokenizer())
        torch.manual_seed(0)
        network = adapter.with_adapter(fresh, lora, prompter.ids)
        fit(network, prompter, examples, settings(gradient_checkpointing=True), tmp_path)
        weights.append({name: value.clone() for name, value in adapter.merged(network).state_dict().items()})
        newest = sound_checkpoint(tmp_path)
        assert newest is not None
        (newest / "adapter_model.safetensors").write_bytes(b"torn")
    assert base.keys() == weights[0].keys()
    for name, value in base.items():
        assert torch.equal(weights[0][name], weights[1][name]), name
        moved = not torch.equal(value, weights[0][name])
        assert moved == any(part in name for part in ("q_proj.weight", "v_proj.weight", "embed_tokens", "lm_head")), (
            name
        )
    rows = [prompter.ids.good, prompter.ids.bad, prompter.ids.mask]
    changed = (weights[0]["model.embed_tokens.weight"] != base["model.embed_tokens.weight"]).any(dim=1)
    assert set(changed.nonzero().flatten().tolist()) <= set(rows)
    with pytest.raises(DataError, match=r"train\.lora\.targets: the model has no module nowhere"):
        adapter.with_adapter(model, Lora(rank=4, alpha=8, targets=["nowhere"]), prompter.ids)
