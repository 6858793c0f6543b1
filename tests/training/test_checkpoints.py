"""Checkpoints: their number, their room on the disk, and what happens when one cannot be written."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from ground.io import DataError
from pathfinder.models.slices import write_tensors
from pathfinder.training import checkpoints
from pathfinder.training.trainer import fit
from tests.support.training import settings, small_setup

GIB = 2**30


def steps(folder: Path) -> list[int]:
    return sorted(checkpoints.step_of(path) for path in folder.glob("checkpoint-*"))


def test_the_limit_decides_how_many_are_kept(tmp_path: Path) -> None:
    model, prompter, examples = small_setup()
    size = checkpoints.size_of(model)
    for limit, kept in ((0.0, 2), (1.5, 1), (3.2, 3)):
        folder = tmp_path / str(kept)
        fit(model, prompter, examples, settings(checkpoint_gib=limit * size / GIB), folder)
        assert len(steps(folder)) == kept
        assert max(steps(folder)) == 12
    written = sum(path.stat().st_size for path in (tmp_path / "1/checkpoint-12").glob("*.safetensors"))
    assert size < written < 1.1 * size + 10_000
    with pytest.raises(DataError, match=r"train\.checkpoint_gib: .* one checkpoint has .* GiB; raise it, set it to 0"):
        fit(model, prompter, examples, settings(checkpoint_gib=0.5 * size / GIB), tmp_path / "none")


def test_a_full_disk_is_noticed_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with room for one checkpoint is not enough: the old one stays until the new one is complete."""
    model, prompter, examples = small_setup()
    size = checkpoints.size_of(model)
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10 * size, 9 * size, size))
    for limit, kept, remedy in ((0.0, 2, "make room"), (3.2, 3, "make room or lower train.checkpoint_gib")):
        with pytest.raises(DataError, match=rf": 0\.\d MiB free, {kept} checkpoints need [.\d]+ MiB; {remedy}$"):
            fit(model, prompter, examples, settings(checkpoint_gib=limit * size / GIB), tmp_path)
    assert steps(tmp_path) == []


def test_a_failure_to_write_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompter, examples = small_setup()

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        fit(model, prompter, examples, settings(), tmp_path)
    assert checkpoints.newest_checkpoint(tmp_path) is None


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the weights of its step, although training changed them before they were written."""
    model, _, _ = small_setup()
    optimiser = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    begin = threading.Event()

    def slow(*arguments: Any) -> str:
        begin.wait(20)
        return str(write_tensors(*arguments))

    monkeypatch.setattr(checkpoints, "write_tensors", slow)
    writer = checkpoints.Writer(tmp_path, 2, checkpoints.Group())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / checkpoints.STATE).write_text("{}")
    writer.save(1, model, optimiser)
    assert not list(tmp_path.glob("checkpoint-1/part-*"))  # it has not been written when training continues
    optimiser.step()
    begin.set()
    writer.finish()
    checkpoint = checkpoints.newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert not torch.equal(before["lm_head.weight"], model.lm_head.weight)
    checkpoints.read_weights(checkpoint, model)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_copies_of_a_cards_tensors_take_no_pinned_memory(tmp_path: Path) -> None:
    """Torch rounds pinned memory up to a power of two: up to twice the main memory that the plan counts."""

    class OnCard(torch.Tensor):
        is_cuda = True  # torch without a card refuses to pin

    tensor = torch.arange(3.0).as_subclass(OnCard)
    copy = checkpoints.Writer(tmp_path, 2, checkpoints.Group())._copy("weight/a", tensor)
    tensor.add_(1)
    assert copy.tolist() == [0.0, 1.0, 2.0]
    assert not copy.is_pinned()


def test_progress_is_never_half_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = tmp_path / "digest"
    (progress / "examples").mkdir(parents=True)

    def killed(path: Path, **_: Any) -> None:
        if path.exists():
            assert not progress.exists(), "the next run would find a part of it"
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        checkpoints.remove_progress(progress)
    assert list(tmp_path.iterdir())
    (progress / "examples").mkdir(parents=True)
    checkpoints.remove_progress(progress)
    assert not list(tmp_path.iterdir()), "also what the killed run left"
