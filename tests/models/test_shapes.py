from __future__ import annotations

import json
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.core.params import Lora, Source
from pathfinder.core.prompts import VARIANTS
from pathfinder.models.architectures import Shape, shape_of
from pathfinder.models.shapes import KNOWN, planned_shape
from pathfinder.training.network import with_adapter
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, small_model


def test_known_models_have_their_published_sizes() -> None:
    published = {
        "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
        "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": 32_763_876_352,
        "RLHFlow/Llama3.1-8B-PRM-Mistral-Data": 8_030_261_248,
        "GAIR/ReasonEval-7B": 7_241_732_096,
    }
    assert {name: KNOWN[name].parameters for name in published} == published


@pytest.mark.parametrize("tied", [False, True])
def test_a_shape_counts_every_parameter(tied: bool) -> None:
    model = small_model(plain_tokenizer())
    shape = shape_of({**model.config.to_dict(), "tie_word_embeddings": tied}, "small")
    ends = model.lm_head.weight.numel() if tied else 0
    assert shape.parameters == sum(p.numel() for p in model.parameters()) - ends
    assert shape.keys_and_values == 2 * 2 * 2 * 8


def test_an_adapter_counts_every_parameter() -> None:
    tokenizer = plain_tokenizer()
    lora = Lora(rank=4, alpha=8, base_dtype="float32", targets=["q_proj", "k_proj", "o_proj", "down_proj"])
    shape = shape_of(small_model(tokenizer).config.to_dict(), "small")
    ids = Prompter(tokenizer, VARIANTS["full"]).ids
    network = with_adapter(small_model(tokenizer), lora, ids)
    assert shape.adapter(lora) == sum(p.numel() for p in network.parameters() if p.requires_grad)


def test_a_server_divides_attention_heads_and_divides_or_copies_keys() -> None:
    def divisors(shape: Shape) -> list[int]:
        return [gpus for gpus in range(1, 41) if shape.divides(gpus)]

    assert divisors(KNOWN["Qwen/Qwen2.5-Math-7B-Instruct"]) == [1, 2, 4, 28]  # 28 heads, 4 for keys
    assert divisors(KNOWN["deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"]) == [1, 2, 4, 8, 40]  # 40 and 8
    sizes = {"intermediate_size": 96, "num_hidden_layers": 1, "vocab_size": 9}
    odd = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16}
    assert divisors(shape_of(odd | sizes, "odd")) == [1, 3, 6]


def test_a_config_without_sizes_is_refused() -> None:
    with pytest.raises(DataError, match=r"odd: config\.json has num_attention_heads None; expected a positive integer"):
        shape_of({"hidden_size": 3}, "odd")


def test_a_model_that_was_not_fetched_is_known_or_refused(tmp_path: Path) -> None:
    def source(location: str) -> list[Source]:
        return [Source(name="models/base", kind="hub", location=location, revision=None, licence="x", files={})]

    shape = planned_shape("base", source("Qwen/Qwen2.5-Math-7B-Instruct"), tmp_path)
    assert (shape.name, shape.layers) == ("Qwen/Qwen2.5-Math-7B-Instruct", 28)
    with pytest.raises(DataError, match=r"some/model: its size is unknown .* `pathfinder run download`"):
        planned_shape("base", source("some/model"), tmp_path)
    raw = tmp_path / "artifacts/raw"
    entry: dict[str, object] = {"kind": "hub", "revision": None, "licence": "x", "files": {}}
    small_model(plain_tokenizer()).config.save_pretrained(raw / "models/base")
    (raw / "manifest.json").write_text(json.dumps({"models/base": entry | {"location": "another/model"}}))
    with pytest.raises(DataError, match="some/model"):  # an earlier profile fetched another model
        planned_shape("base", source("some/model"), tmp_path)
    (raw / "manifest.json").write_text(json.dumps({"models/base": entry | {"location": "some/model"}}))
    found = planned_shape("base", source("some/model"), tmp_path)
    assert (found.name, found.layers) == ("some/model", 2)
