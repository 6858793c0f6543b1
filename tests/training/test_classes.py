"""A model that classifies tokens learns with the loss of TRL's PRMTrainer, by its own class in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer
from typer.testing import CliRunner

from ground.io import DataError, read_json
from pathfinder import PRM
from pathfinder.cli import app
from pathfinder.core.params import Lora
from pathfinder.models.folders import open_model
from pathfinder.models.tokens import open_tokenizer
from pathfinder.training.checkpoints import newest_checkpoint
from pathfinder.training.examples import read_examples
from pathfinder.training.network import load_classifier, merge
from pathfinder.training.objective import batches, summed_loss
from pathfinder.training.stepwise import read
from pathfinder.training.trainer import fit
from pathfinder.tree.separated import Separated
from tests.baselines.test_trl import KINDS, checkpoint
from tests.support.own_steps import ROOT, world_rows, write_lines
from tests.support.training import frame, settings
from tests.support.trl import padded, tokenized
from tests.training.test_card import rewards_by_card

BASE = ROOT / "data/models/base"
STEPS = ("He buys 7, so 5 + 7 = 12.", "The answer is <+>\n\\boxed{13}.", "été\n\n")
ROWS: list[dict[str, Any]] = [
    {"prompt": "5 + 7?", "completions": STEPS, "labels": [True, False, None]},
    {"prompt": "5 + 7?", "completions": [STEPS[0], "It is 12.", STEPS[2]], "labels": [True, True, False]},
    {"prompt": "5 + 7?", "completions": [STEPS[0]], "labels": [False]},
    {"prompt": "How many\n", "completions": ["Two.", "Two."], "labels": [False, True]},
]
"""Solutions that share steps; two rows disagree about the first one."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("separator", "budget"), [("\n", 4096), (" ->\n", 20)])
def test_loss_and_gradients_are_those_of_trl_on_a_batch(tmp_path: Path, kind: str, separator: str, budget: int) -> None:
    folder = checkpoint(tmp_path / "model", kind)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    reference: Any = AutoModelForTokenClassification.from_pretrained(folder, attn_implementation="eager").eval()
    rows = json.loads(json.dumps(ROWS).replace("<+>", "<\u2060+>"))  # as a text with a label token is read
    want = reference(**padded(rows, tokenizer, separator)).loss
    want.backward()
    want = want.item()
    prompter = Separated(open_tokenizer(folder), separator)
    examples = read_examples(read(write_lines(tmp_path / "rows.jsonl", ROWS)).trees(), prompter, budget)
    assert sum(example.records for example in examples) == 7
    network = load_classifier(folder, settings(), separator).train()
    total = sum(float(example.targets.weights.sum()) for example in examples)
    found = 0.0
    for batch, targets in batches(examples, budget):
        loss = summed_loss(network, batch.to("cpu", network.dtype), targets, prompter.ids)[0] / total
        loss.backward()  # type: ignore[no-untyped-call]
        found += loss.item()
    assert found == pytest.approx(want, abs=1e-5)
    ours = dict(network.named_parameters())
    for name, parameter in reference.named_parameters():
        assert torch.allclose(ours[name].grad, parameter.grad, atol=1e-5), name


def test_a_new_layer_is_drawn_from_the_seed_and_no_other_weight(tmp_path: Path) -> None:
    one, same, other = (load_classifier(BASE, settings(seed=seed), "\n").state_dict() for seed in (1, 1, 2))
    assert torch.equal(one["score.weight"], same["score.weight"])
    assert not torch.equal(one["score.weight"], other["score.weight"])
    assert torch.equal(one["model.norm.weight"], other["model.norm.weight"])
    with pytest.raises(DataError, match="cannot be loaded"):
        load_classifier(checkpoint(tmp_path / "three", labels=3), settings(), "\n")


@pytest.mark.parametrize("rank", [0, 4])
def test_a_torn_checkpoint_falls_back_to_the_same_weights(tmp_path: Path, rank: int) -> None:
    lora = Lora(rank=rank, alpha=8, base_dtype="float32", targets=["q_proj", "v_proj"])
    chosen, prompter = settings(lora=lora), Separated(open_tokenizer(BASE))
    base, examples = load_classifier(BASE, settings(), "\n").state_dict(), read_examples(frame(6), prompter, 4096)
    weights, tokens = list[dict[str, torch.Tensor]](), list[float]()
    for _ in range(2):
        network = load_classifier(BASE, chosen, "\n")
        tokens.append(fit(network, prompter, examples, chosen, tmp_path).throughput["tokens"])
        newest = newest_checkpoint(tmp_path)
        assert newest is not None
        (newest / "part-00000-of-00001.safetensors").write_bytes(b"torn")
        weights.append((merge(network) if rank else network).state_dict())
    assert 0 < 3 * tokens[1] < tokens[0]
    assert base.keys() == weights[0].keys()
    for name, value in base.items():
        assert torch.equal(weights[0][name], weights[1][name]), name
        is_trained = not rank or any(part in name for part in ("q_proj.weight", "v_proj.weight", "score"))
        assert torch.equal(value, weights[0][name]) != is_trained, name


def test_the_verb_trains_a_model_that_transformers_and_score_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The separator is read back. The code in the card gives the same rewards."""
    file, out, after = write_lines(tmp_path / "own.jsonl", world_rows(20)), tmp_path / "prm", " ->\n"
    words = ["--out", out, "--base", BASE, "--head", "classes", "--separator", after, "--batch", "8", "--json"]
    done = CliRunner().invoke(app, ["train", *map(str, [file, *words])])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["labels"]["correctness"]["n"] == result["held_out_steps"] > 5
    assert read_json(out / "config.json")["architectures"] == ["Qwen2ForTokenClassification"]
    assert read_json(out / "config.json")["id2label"] == {"0": "wrong", "1": "correct"}
    described = read_json(out / "pathfinder.json")
    assert (described["separator"], described["labels"]) == (after, ["correctness"])
    assert "token_ids" not in described
    problem, steps = world_rows(1)[0]["prompt"], STEPS[:1]
    ids, ends = tokenized(AutoTokenizer.from_pretrained(out), problem, steps, after)
    model: Any = AutoModelForTokenClassification.from_pretrained(out).eval()
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0, ends].softmax(-1)[:, 1].tolist()
    prm = PRM.load(out, device="cpu")
    assert [*prm.score(problem, steps).rewards] == pytest.approx(want, abs=1e-5)
    assert prm.score("Zeno has 5 drachmas.", ["Zeno."]).row()["unlike"]
    assert repr(after) in (out / "README.md").read_text()
    found = rewards_by_card(out, (out / "README.md").read_text(), monkeypatch)
    scored = prm.score(
        "Tom has 5 apples. He buys 7. How many apples does he have?",
        ["He buys 7, so 5 + 7 = 12 apples.", "The answer is \\boxed{13}."],
    )
    assert [*scored.rewards] == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head", "classes", "--variant", "plain_error"], "has one label, so it cannot train plain_error"),
        (["--separator", "x"], "--separator needs --head classes"),
        (["--head", "classes", "--base", "gemma"], "takes qwen2, qwen3, mistral, llama, not 'gemma2'"),
    ],
)
def test_what_the_head_cannot_do_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gemma").mkdir()
    (tmp_path / "gemma/config.json").write_text(json.dumps(read_json(BASE / "config.json") | {"model_type": "gemma2"}))
    file = write_lines(tmp_path / "own.jsonl", world_rows(3))
    done = CliRunner().invoke(app, ["train", str(file), "--out", "prm", *words])
    assert (done.exit_code, message in done.stderr) == (1 if "--base" in words else 2, True), done.stderr


def test_a_separator_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    for wrong in (7, "", None):
        (folder / "config.json").write_text(json.dumps(read_json(folder / "config.json") | {"step_separator": wrong}))
        with pytest.raises(DataError, match=r"step_separator .* expected a text"):
            PRM.load(folder, device="cpu")
    assert open_model(folder).config.content["step_separator"] is None
