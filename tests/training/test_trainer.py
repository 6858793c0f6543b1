"""The trainer takes the planned steps, resumes from valid checkpoints, and stops on a loss that is not finite."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from ground.io import DataError, write_json, write_parquet
from pathfinder.models.architectures import shape_of
from pathfinder.models.folders import open_model
from pathfinder.training import run
from pathfinder.training.checkpoints import newest_checkpoint
from pathfinder.training.examples import plan_steps
from pathfinder.training.network import load_network
from pathfinder.training.objective import batches, evaluate, summed_loss
from pathfinder.training.throughput import training_flops
from pathfinder.training.trainer import fit, share_of_rate
from tests.conftest import ROOT
from tests.support.models import plain_tokenizer, small_model
from tests.support.training import LEARNT, frame, settings, small_setup

DEMO = ROOT / "pathfinder/demo_model"


def test_the_trainer_takes_the_planned_steps(tmp_path: Path) -> None:
    """A step of the trainer is one AdamW step on the summed loss of all its labels."""
    model, prompter, examples = small_setup()
    twin, _, _ = small_setup()
    rows = fit(
        model, prompter, examples, settings(schedule="constant", warmup_ratio=0.0, max_grad_norm=1e9), tmp_path
    ).rows
    plan = plan_steps([e.samples for e in examples], 12, 2.0, 1)
    assert [row["step"] for row in rows] == list(range(1, len(plan) + 1))
    optimiser = torch.optim.AdamW(twin.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    for step, row in zip(plan, rows, strict=True):
        chosen = [examples[i] for i in step]
        sums = [
            summed_loss(twin, batch.to("cpu", twin.dtype), targets, prompter.ids)[0]
            for batch, targets in batches(chosen, 300)
        ]
        loss = torch.stack(sums).sum() / sum(len(example.targets.marks) for example in chosen)
        assert row["loss"] == pytest.approx(loss.item(), rel=1e-4)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=2e-4)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_a_run_of_one_step_learns(schedule: str) -> None:
    """A warm-up starts with rate 0, so it never takes the only step. Two steps are as in transformers."""
    chosen = settings(schedule=schedule, warmup_ratio=0.1)
    assert share_of_rate(chosen, 0, 1) == 1.0
    assert [share_of_rate(chosen, step, 2) for step in range(2)] == [0.0, 1.0]


def test_rows_of_new_tokens_are_drawn_from_the_seed(tmp_path: Path) -> None:
    """The base has as many rows as tokens."""
    tokenizer = plain_tokenizer()
    small_model(tokenizer, rows=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    one, same, other = (load_network(tmp_path, plain_tokenizer(), settings(seed=s))[0].state_dict() for s in (1, 1, 2))
    assert len(one["lm_head.weight"]) > len(tokenizer)
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


def test_steps_that_are_left_out_are_not_counted_as_learnt() -> None:
    """Neither by source, which the card states, nor in sum."""
    _, prompter, _ = small_setup()
    sets, about = run._examples((frame(6), frame(1)), settings(), prompter, 120, "")
    assert sum(example.records for example in sets["learn"]) == 12
    assert about["sources"] == {"prm800k": 12}
    with pytest.raises(DataError, match="no record fits into the model's 60 positions; choose a base"):
        run._examples((frame(6), frame(1)), settings(), prompter, 60, "")


def test_a_plain_base_with_another_tensor_is_trained_with_transformers(tmp_path: Path) -> None:
    trees = frame(4), frame(1)
    train = partial(run.train, variant="full", settings=settings(epochs=1.0), trees=lambda: trees, listed="")
    copy = shutil.copytree(DEMO, tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    save_file(weights | {"other.weight": torch.ones(1)}, copy / "model.safetensors", {"format": "pt"})
    plain, other = (train(open_model(base), progress=tmp_path / base.name) for base in (DEMO, copy))
    assert plain is not None
    assert other is not None
    assert type(plain.network) is not type(other.network)
    assert [row["loss"] for row in other.rows] == pytest.approx([row["loss"] for row in plain.rows], rel=1e-3)


def test_only_a_small_model_knows_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large base has learnt texts that nobody lists."""
    train = partial(run.train, open_model(DEMO), "no_subtasks", settings(epochs=0.5), listed="")
    trees = frame(4), frame(1)
    small = train(tmp_path / "small", trees=lambda: trees)
    monkeypatch.setattr(run, "LARGEST_TOY", 10)
    large = train(tmp_path / "large", trees=lambda: trees)
    assert small is not None
    assert small.known is not None
    assert large is not None
    assert large.known is None


def test_a_plain_model_is_trained_without_transformers_and_as_with_it(tmp_path: Path) -> None:
    """The saved models agree but for rounding, and for defaults of generation, which the base does not name."""
    opened, frame_of, chosen = open_model(DEMO), frame(6), settings(epochs=2.0)
    train = partial(run.train, opened, "full", chosen, trees=lambda: (frame_of[1:], frame_of[:1]), listed="")
    write_parquet(tmp_path / "trees.parquet", frame_of)
    write_json(tmp_path / "settings.json", chosen.model_dump())
    subprocess.run([sys.executable, "-c", _ALONE, DEMO, tmp_path], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pathfinder.models.decoder.is_plain", lambda _: False)
        theirs = train(progress=tmp_path / "progress")
    assert theirs is not None
    assert isinstance(theirs.network, PreTrainedModel)
    theirs.save(chosen, tmp_path / "theirs", LEARNT)
    own = {path.name: path for path in (tmp_path / "own").iterdir()}
    assert {*own, "generation_config.json"} == {path.name for path in (tmp_path / "theirs").iterdir()}
    for name, path in own.items():
        if name != "model.safetensors":
            assert _unversioned(path) == _unversioned(tmp_path / "theirs" / name), name
    mine, other, before = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "own", tmp_path / "theirs", DEMO)
    )
    for name, weights in mine.items():  # attention hardly depends on a key's bias, so AdamW follows the rounding there
        bound = 2e-3 if name.endswith("k_proj.bias") else 2e-5
        assert torch.allclose(weights.float(), other[name].float(), atol=bound), name
    assert any(not torch.allclose(weights.float(), before[name].float(), atol=1e-3) for name, weights in mine.items())


def _unversioned(path: Path) -> bytes:
    """The bytes of a file without the version of transformers, which only transformers itself changes."""
    return re.sub(rb'"transformers_version": "[\d.]+"', b"", path.read_bytes())


_ALONE = """
import sys
from pathlib import Path
from ground.io import read_json, read_parquet
from pathfinder.core.params import Train
from pathfinder.models.folders import open_model
from pathfinder.training import run
from pathfinder.core.runs import parse_run
from pathfinder.training.card import Learnt

base, folder = map(Path, sys.argv[1:])
trees, settings = read_parquet(folder / "trees.parquet"), Train(**read_json(folder / "settings.json"))
parts = open_model(base), "full", settings, folder / "alone", lambda: (trees[1:], trees[:1]), ""
learnt = Learnt(parse_run("full"), {"model.safetensors": "ab" * 32}, "cd" * 32, share=1.0, mix_seed=42)
run.train(*parts).save(settings, folder / "own", learnt)
assert not {"accelerate", "peft", "torch._dynamo", "transformers"} & sys.modules.keys()
"""


def test_bfloat16_learns_as_float32_does(tmp_path: Path) -> None:
    """Under autocast the losses are close but not equal, and the trained weights stay float32."""
    losses = []
    for dtype in ("float32", "bfloat16"):
        model, prompter, examples = small_setup()
        chosen = settings(dtype=dtype, epochs=1.0, gradient_checkpointing=dtype == "bfloat16")
        losses.append([row["loss"] for row in fit(model, prompter, examples, chosen, tmp_path / dtype).rows])
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_torn_checkpoint_falls_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, prompter, examples = small_setup()
    whole = fit(model, prompter, examples, settings(), tmp_path)
    names = sorted((p.name for p in tmp_path.glob("checkpoint-*")), key=lambda n: int(n.split("-")[1]))
    assert len(names) == 2
    assert newest_checkpoint(tmp_path) == tmp_path / names[1]
    torn = tmp_path / names[1] / "part-00000-of-00001.safetensors"
    torn.write_bytes(torn.read_bytes()[:-7])
    assert newest_checkpoint(tmp_path) == tmp_path / names[0]
    assert not torn.parent.exists()
    assert "torn, removed" in capsys.readouterr().err
    again, prompter, examples = small_setup()
    rest = fit(again, prompter, examples, settings(), tmp_path)
    assert rest.rows == whole.rows
    assert 0 < 3 * rest.throughput["tokens"] < whole.throughput["tokens"], "only the last steps are taken again"
    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_loss_that_is_not_finite_stops(tmp_path: Path) -> None:
    model, prompter, examples = small_setup()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(DataError, match=r"loss is nan at optimiser step 1 \(trees t-"):
        fit(model, prompter, examples, settings(), tmp_path)
    with pytest.raises(DataError, match="no training trees"):
        fit(model, prompter, [], settings(), tmp_path)


def test_a_gradient_that_is_not_finite_stops(tmp_path: Path) -> None:
    model, prompter, examples = small_setup()
    model.lm_head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(DataError, match="gradient's norm is inf at optimiser step 1"):
        fit(model, prompter, examples, settings(save_every=1), tmp_path)
    assert newest_checkpoint(tmp_path) is None


def test_held_out_trees_are_evaluated_at_the_points_and_change_nothing(tmp_path: Path) -> None:
    model, prompter, examples = small_setup()
    without = fit(model, prompter, examples[2:], settings(epochs=8.0), tmp_path / "without").rows
    other, prompter, examples = small_setup()
    rows = fit(other, prompter, examples[2:], settings(epochs=8.0), tmp_path / "with", examples[:2]).rows
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert [{key: value for key, value in row.items() if not key.startswith("held_out_")} for row in rows] == without
    steps = [row["step"] for row in rows if "held_out_loss_math" in row]
    assert steps[0] == 1
    assert steps[-1] == len(rows)
    assert 1 < len(steps) <= 11
    last = evaluate(other, examples[:2], prompter, 4096)
    assert {label: rows[-1][f"held_out_loss_{label}"] for label in last} == {k: v["loss"] for k, v in last.items()}
    newest = newest_checkpoint(tmp_path / "with")
    assert newest is not None
    (newest / "part-00000-of-00001.safetensors").write_bytes(b"torn")
    again, prompter, examples = small_setup()
    assert fit(again, prompter, examples[2:], settings(epochs=8.0), tmp_path / "with", examples[:2]).rows == rows


def test_several_visible_gpus_never_split_a_row_of_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two GPUs and one process, ``torch.nn.DataParallel`` would cut a row of trees into halves."""

    def wrapped(*_: object) -> None:
        raise AssertionError("wrapped in DataParallel")

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.nn.DataParallel.__init__", wrapped)
    model, prompter, examples = small_setup()
    assert len(fit(model, prompter, examples, settings(epochs=1.0), tmp_path).rows) > 1


def test_throughput_counts_the_work_of_all_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, prompter, examples = small_setup()
    fitted = fit(model, prompter, examples, settings(epochs=2.0), tmp_path)
    assert fitted.throughput["tokens"] == 2 * sum(len(example.tree) for example in examples)
    assert fitted.throughput["tokens_per_second"] > 0
    assert "tokens/s" in capsys.readouterr().err
    shape = shape_of(model.config.to_dict(), "small")
    chain = examples[0].tree.depth
    pairs = sum(int(depth) + 1 for depth in chain)
    matrices = 2 * (32 * 32 * 2 + 32 * 16 * 2 + 32 * 48 * 3)
    readings = len(examples[0].targets.marks)
    forward = 2 * len(chain) * matrices + 4 * 2 * 32 * pairs + 2 * readings * 32 * model.config.vocab_size
    assert training_flops(shape, examples[0]) == 3 * forward
    assert training_flops(shape, examples[0], adapter=True) == 2 * forward
