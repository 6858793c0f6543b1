"""Training in several processes (gloo, without a GPU) equals training in one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pathfinder.models.model import add_labels
from pathfinder.training.checkpoints import newest_checkpoint
from pathfinder.training.trainer import fit
from tests.support.models import plain_tokenizer
from tests.support.processes import in_processes
from tests.support.training import settings, small_setup
from tests.training.train_in_processes import (
    CHANGED,
    VARIATIONS,
    WAYS,
    continue_training,
    gradient,
    gradients,
    start_after_a_torn_checkpoint,
    train,
    train_once,
    train_variation,
    train_variations,
    whole_model,
)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_take_the_steps_of_one(tmp_path: Path, way: str) -> None:
    """The two processes use gradient checkpointing, the single one does not. Shards continue as four, and as one."""
    single, prompter, examples = small_setup()
    add_labels(single, plain_tokenizer())
    single.save_pretrained(tmp_path / "base")
    rows = fit(single, prompter, examples, settings(**CHANGED), tmp_path / "single", examples[:2]).rows
    errors = in_processes(2, train, tmp_path, way, tmp_path / "base", folder=tmp_path)
    two = json.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == len(two) > 3
    for mine, theirs in zip(rows, two, strict=True):
        assert mine == pytest.approx(theirs, rel=2e-4)
    assert any("held_out_loss_math" in row for row in rows)
    assert_close(single.state_dict(), load_file(tmp_path / "model.safetensors"))
    checkpoint = newest_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    parts = {f"part-0000{rank}-of-00002.{kind}" for rank in range(2) for kind in ("json", "safetensors")}
    assert {path.name for path in checkpoint.iterdir()} == {*parts, "trainer_state.json"}
    assert ("torn, removed" in errors) == (way == "shards")
    if way == "shards":
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / "checkpoints", tmp_path / "elsewhere")
        in_processes(4, continue_training, tmp_path, tmp_path / "base", folder=tmp_path)
        assert_close(single.state_dict(), load_file(tmp_path / "continued.safetensors"))
        _, alone = train_once(tmp_path / "elsewhere", whole_model(tmp_path / "base"))
        assert_close(single.state_dict(), alone)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.campaign)])
def test_gradients_of_several_processes_equal_those_of_one(tmp_path: Path, count: int) -> None:
    """Uneven trees, replicas and shards: some processes have fewer passes than others."""
    in_processes(count, gradients, tmp_path, folder=tmp_path)
    for dtype, bound in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        alone = gradient(tmp_path / "alone", dtype)
        norm = torch.cat([part.flatten() for part in alone.values()]).norm()
        for way in WAYS:
            found = load_file(tmp_path / f"{way}-{dtype}.safetensors")
            assert found.keys() == alone.keys()
            gap = torch.cat([(found[name] - part).flatten() for name, part in alone.items()]).norm()
            assert float(gap / norm) < bound, (way, dtype)


@pytest.mark.slow
def test_sharded_adapters_and_bfloat16_learn_as_in_one_process(tmp_path: Path) -> None:
    base = tmp_path / "base"
    single, _, _ = small_setup()
    add_labels(single, plain_tokenizer())
    single.save_pretrained(base)
    in_processes(2, train_variations, tmp_path, base, folder=tmp_path)
    for name, (_, _, dtype) in VARIATIONS.items():
        alone = tmp_path / "alone" / name
        alone.mkdir(parents=True)
        rows = train_variation(alone, base, name).rows
        losses = json.loads((tmp_path / name / "losses.json").read_text())
        assert losses == pytest.approx([row["loss"] for row in rows], rel=2e-4 if dtype == "float32" else 0.02), name
        mine, theirs = (load_file(folder / "model.st") for folder in (alone, tmp_path / name))
        assert mine.keys() == theirs.keys() == single.state_dict().keys()
        moved = {key for key, value in single.state_dict().items() if not torch.equal(value.float(), theirs[key])}
        assert moved == {key for key, value in single.state_dict().items() if not torch.equal(value.float(), mine[key])}
        bound = 1e-5 if dtype == "float32" else 0.02
        assert max(float((mine[key] - theirs[key]).abs().max()) for key in mine) < bound, name


def test_all_processes_wait_until_a_torn_checkpoint_is_gone(tmp_path: Path) -> None:
    """The first one deletes it. The others would otherwise measure files that disappear."""
    torn = tmp_path / "checkpoint-1"
    torn.mkdir()
    for number in range(2000):
        (torn / f"part-{number:05d}-of-02000.safetensors").touch()
    errors = in_processes(2, start_after_a_torn_checkpoint, tmp_path, folder=tmp_path)
    assert "torn, removed" in errors
    assert not torn.exists()


def assert_close(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert torch.allclose(value, theirs[name], atol=1e-5), name
