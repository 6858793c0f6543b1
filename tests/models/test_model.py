from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ground.io import DataError
from pathfinder.core.prompts import MASK
from pathfinder.models import model, tokens
from pathfinder.models.folders import open_model
from tests.support.models import plain_tokenizer, small_model


def test_the_matrices_grow_only_without_spare_rows() -> None:
    tokenizer = plain_tokenizer()
    roomy = small_model(tokenizer, rows=len(tokenizer) + 3)
    head = roomy.lm_head.weight.clone()
    assert model.add_labels(roomy, tokenizer) == ["<+>", "<->", "<extra>"]
    rows = roomy.get_input_embeddings().weight
    assert rows.shape[0] == len(tokenizer)
    assert torch.equal(rows[tokenizer.convert_tokens_to_ids(MASK)], rows[tokenizer.pad_token_id])
    assert torch.equal(head, roomy.lm_head.weight)
    before = rows.clone()
    assert model.add_labels(roomy, tokenizer) == []
    assert torch.equal(before, rows)
    other = plain_tokenizer()
    tight = small_model(other, rows=len(other))
    model.add_labels(tight, other)
    assert tight.get_input_embeddings().weight.shape[0] == len(other)


def test_folders_load_and_invalid_ones_are_refused(tmp_path: Path) -> None:
    tokenizer = plain_tokenizer()
    tokens.add_label_tokens(tokenizer)
    made = small_model(tokenizer)
    made.save_pretrained(tmp_path / "good")
    again = model.load_model(open_model(tmp_path / "good"), "float64")
    assert again.dtype == torch.float64
    assert not again.training
    with pytest.raises(DataError, match=r"config\.json"):
        model.load_model(open_model(tmp_path / "absent"))
    (tmp_path / "good" / "model.safetensors").unlink()
    (tmp_path / "good" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(DataError, match="safetensors"):
        model.load_model(open_model(tmp_path / "good"))


def test_too_little_memory_is_no_broken_file(tmp_path: Path) -> None:
    class Greedy:
        @staticmethod
        def from_pretrained(*_: object, **__: object) -> None:
            raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="can't start new thread"):
        model.read_model(Greedy, tmp_path, "float32")


def test_a_pointer_leads_to_the_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = "a" * 40
    snapshot = tmp_path / "cache" / "models--some--model" / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (tmp_path / "hub.json").write_text(json.dumps({"repo": "some/model", "revision": revision}))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    assert open_model(tmp_path).files == snapshot


def test_a_small_model_runs_on_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bits of its scores would depend on the number of threads."""
    small_model(plain_tokenizer()).save_pretrained(tmp_path)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        model.load_model(open_model(tmp_path), where="cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
