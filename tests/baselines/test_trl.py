"""A checkpoint of TRL's PRMTrainer against its own model class, on the rows that TRL makes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForTokenClassification,
    Qwen2Config,
    Qwen2ForTokenClassification,
    Qwen3Config,
    Qwen3ForTokenClassification,
)
from typer.testing import CliRunner

from ground.io import DataError
from pathfinder import PRM
from pathfinder.cli import app
from tests.baselines.model_folders import qwen_tokenizer, sentencepiece
from tests.support.models import sides
from tests.support.trl import tokenized

KINDS = {
    "qwen2": (Qwen2Config, Qwen2ForTokenClassification),
    "qwen3": (Qwen3Config, Qwen3ForTokenClassification),
    "llama": (LlamaConfig, LlamaForTokenClassification),
}
PROBLEM = "How many eggs do 16 ducks lay?\nEach lays half an egg."
STEPS = ("16 ducks.", "Each lays half an egg,\nso 16/2 = 9.", "  The answer is \\boxed{9}. ", "été, 二.")


def checkpoint(folder: Path, kind: str = "qwen2", labels: int = 2) -> Path:
    """A random model as ``PRMTrainer.save_model`` writes it."""
    tokenizer = sentencepiece(pad="</s>") if kind == "llama" else qwen_tokenizer()
    configuration, network = KINDS[kind]
    more = {"head_dim": 8} if kind == "qwen3" else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        settings = configuration(vocab_size=len(tokenizer), num_labels=labels, initializer_range=0.3, **more, **SIDES)
        make: Any = network
        model = make(settings)
        torch.nn.init.normal_(model.score.bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


SIDES = sides(32, 48, 2, 4, 2)


@torch.no_grad()
def as_trl(folder: Path, problem: str, steps: tuple[str, ...]) -> list[float]:
    """The probability of class 1 at every label."""
    ids, ends = tokenized(AutoTokenizer.from_pretrained(folder), problem, steps)
    model: Any = AutoModelForTokenClassification.from_pretrained(folder, attn_implementation="eager").eval()
    found: list[float] = model(torch.tensor([ids])).logits[0, ends].softmax(-1)[:, 1].tolist()
    return found


@torch.no_grad()
def trl_loss(folder: Path, labels: list[bool]) -> float:
    """The loss of a batch of one row in ``PRMTrainer``, which is the model's own."""
    ids, ends = tokenized(AutoTokenizer.from_pretrained(folder), PROBLEM, STEPS)
    wanted = torch.full((1, len(ids)), -100)
    wanted[0, ends] = torch.tensor(labels).long()
    model: Any = AutoModelForTokenClassification.from_pretrained(folder, attn_implementation="eager").eval()
    return float(model(torch.tensor([ids]), labels=wanted).loss)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_loaded_and_scored_as_trl_trained_it(tmp_path: Path, kind: str) -> None:
    folder = checkpoint(tmp_path / "model", kind)
    scored = PRM.load(folder, device="cpu").score(PROBLEM, STEPS)
    expected = as_trl(folder, PROBLEM, STEPS)
    assert list(scored.rewards) == pytest.approx(expected, abs=1e-5)
    assert max(expected) > 1.05 * min(expected)
    loss, rewards = trl_loss(folder, [True, False, False, True]), [*scored.rewards]
    mine = -sum(map(math.log, (rewards[0], 1 - rewards[1], 1 - rewards[2], rewards[3]))) / 4
    assert mine == pytest.approx(loss, abs=1e-5), "the mean over the labels of a batch"


def test_the_verbs_take_a_checkpoint_by_its_folder(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    (tmp_path / "s.jsonl").write_text(json.dumps({"problem": PROBLEM, "steps": STEPS}) + "\n")
    expected = as_trl(folder, PROBLEM, STEPS)
    for words in ([], ["--system", "trl"]):
        done = CliRunner().invoke(app, ["score", str(tmp_path / "s.jsonl"), "--model", str(folder), *words])
        assert done.exit_code == 0, done.output
        row = json.loads(done.stdout)
        assert [step["reward"] for step in row["steps"]] == pytest.approx(expected, abs=1e-5)
        assert row["steps"][0]["math"] is None
    assert "no pathfinder.json" not in done.stderr
    done = CliRunner().invoke(app, ["score", str(tmp_path / "s.jsonl"), "--model", str(folder), "--mode", "pass1"])
    assert "asks for labels, which trl does not have" in done.stderr


def test_texts_move_no_reading(tmp_path: Path) -> None:
    """A step with separators, or with the text of a special token, is one step."""
    prm = PRM.load(checkpoint(tmp_path / "model"), device="cpu")
    plain, forged = prm.score(PROBLEM, ["one", "two"]), prm.score(PROBLEM, ["one", "two\nthree\n<|im_end|>\nfour"])
    assert len(forged.steps) == 2
    assert forged.rewards[0] == pytest.approx(plain.rewards[0], abs=1e-6)


def test_a_model_of_other_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 3 classes, expected 2"):
        PRM.load(checkpoint(tmp_path / "model", labels=3), device="cpu")
