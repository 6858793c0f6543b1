"""A ``Decoder`` has the numbers of transformers' modules, bit by bit, and leaves all that is not plain to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ground.io import DataError, read_json
from pathfinder.core.prompts import VARIANTS
from pathfinder.models.decoder import Decoder, KVCache, load_decoder, save_decoder, supports
from pathfinder.models.folders import open_model
from pathfinder.models.model import load_model, longest
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import Backend, batch_trees
from pathfinder.tree.passes import Prompter
from tests.conftest import ROOT
from tests.support.models import plain_tokenizer, queries_of, random_decoder, small_model

PROBLEMS = ("What is $x^2$?", "Why?", "Let x = 3. " * 9)


def logits_of(
    network: Any,
) -> torch.Tensor:
    """The logits of some trees, in one pass, and the keys and values of its layers."""
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    trees = [prompter.tree(queries_of(problem, ["Let x = 3.", "so $x^2$ = 9"]))[0] for problem in PROBLEMS]
    batch = batch_trees(trees).to("cpu", network.dtype)
    cache: KVCache = {}
    use_trees(network)
    with torch.inference_mode():
        logits = read_logits(network, batch, cache)
    return torch.cat([x.flatten() for x in (logits, *(x for layer in sorted(cache) for x in cache[layer]))])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize(
    ("shape", "tied"),
    [({}, True), ({"head_dim": 10}, False), ({"num_key_value_heads": 4, "hidden_size": 48}, False)],
    ids=["tied", "heads", "keys"],
)
@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
def test_the_numbers_are_those_of_transformers(
    model_type: str, shape: dict[str, int], tied: bool, dtype: str, tmp_path: Path
) -> None:
    more = {"tie_word_embeddings": tied, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_theta": 5e5}}
    made = random_decoder(model_type, plain_tokenizer(), **more, **shape)
    made.save_pretrained(tmp_path, max_shard_size="20KB" if tied else "5GB")
    opened = open_model(tmp_path)
    own, theirs = load_decoder(opened, dtype), load_model(opened, dtype)
    assert isinstance(own, Decoder)
    assert own.num_parameters() == theirs.num_parameters()
    assert longest(own.config) == longest(theirs.config)
    assert {name: x.tolist() for name, x in own.state_dict().items()} == {
        name: x.tolist() for name, x in theirs.state_dict().items()
    }
    assert torch.equal(logits_of(own), logits_of(theirs))


def test_the_shipped_model_has_the_numbers_of_transformers() -> None:
    opened = open_model(ROOT / "pathfinder/demo_model")
    own = load_decoder(opened)
    assert isinstance(own, Decoder)
    assert torch.equal(logits_of(own), logits_of(load_model(opened)))


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_are_those_of_transformers(tied: bool, tmp_path: Path) -> None:
    """They differ in rounding: the last layer computes the readings only."""
    random_decoder("qwen2", plain_tokenizer(), tie_word_embeddings=tied).save_pretrained(tmp_path)
    opened = open_model(tmp_path)
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    trees = [prompter.tree(queries_of(problem, ["Let x = 3.", "so $x^2$ = 9"]))[0] for problem in PROBLEMS]
    found = []
    for load in (load_decoder, load_model):
        network = load(opened).train()
        use_trees(network)
        logits = read_logits(network, batch_trees(trees).to("cpu", torch.float32))
        torch.autograd.backward(logits.logsumexp(-1).square().sum())
        found.append({name: parameter.grad for name, parameter in network.named_parameters()})
    own, theirs = found
    assert own.keys() == theirs.keys()
    for name, gradient in own.items():
        assert torch.allclose(gradient, theirs[name], rtol=1e-4, atol=1e-5 * float(theirs[name].abs().max())), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_decoder_has_the_files_of_transformers(dtype: str, tied: bool, tmp_path: Path) -> None:
    random_decoder("llama", plain_tokenizer(), tie_word_embeddings=tied).save_pretrained(tmp_path / "base")
    opened = open_model(tmp_path / "base")
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    own.mkdir()
    save_decoder(load_decoder(opened), own, dtype)
    load_model(opened, dtype).save_pretrained(theirs)
    assert {path.name: path.read_bytes() for path in own.iterdir()} == {
        path.name: path.read_bytes() for path in theirs.iterdir()
    }


OLD = {"rope_parameters": None, "rope_theta": 5e5, "rope_scaling": None, "torch_dtype": "float32", "layer_types": None}
"""How transformers 4 writes what transformers 5 writes otherwise."""


def test_a_configuration_of_transformers_4_means_the_same(tmp_path: Path) -> None:
    made = random_decoder("qwen2", plain_tokenizer(), rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    made.save_pretrained(tmp_path)
    wanted = logits_of(load_decoder(open_model(tmp_path)))
    edit(tmp_path, OLD | {"sliding_window": 4096, "use_sliding_window": False})
    own = load_decoder(open_model(tmp_path))
    assert isinstance(own, Decoder)
    assert torch.equal(logits_of(own), wanted)
    assert longest(own.config) == longest(load_model(open_model(tmp_path)).config) == 4096


def edit(folder: Path, values: dict[str, Any]) -> None:
    content = read_json(folder / "config.json") | values
    kept = {name: value for name, value in content.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    "values",
    [
        {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": None, "rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": None},
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0, "layer_types": None},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"hidden_act": "gelu"},
        {"model_type": "qwen3"},
        {"eos_token_id": None},
        {"attention_bias": True},
    ],
    ids=lambda values: next(iter(values)),
)
def test_all_that_is_not_plain_is_left_to_transformers(values: dict[str, Any], tmp_path: Path) -> None:
    """The weights of some do not fit; transformers says so."""

    def outcome(load: Any) -> str:
        try:
            return type(load(open_model(tmp_path))).__name__
        except DataError as error:
            return str(error)

    random_decoder("qwen2", plain_tokenizer()).save_pretrained(tmp_path)
    assert isinstance(load_decoder(open_model(tmp_path)), Decoder)
    edit(tmp_path, values)
    wanted, found = (outcome(load) for load in (load_model, load_decoder))
    assert found == wanted != "Decoder"


@pytest.mark.parametrize("damage", ["cut", "missing", "more", "size", "integers"])
def test_broken_weights_are_left_to_transformers(damage: str, tmp_path: Path) -> None:
    random_decoder("llama", plain_tokenizer()).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        norm = weights.pop("model.norm.weight")
        new = {"missing": {}, "more": {"model.extra": norm.clone()}, "size": {}, "integers": {}}
        kept = {"more": norm, "size": norm[1:].clone(), "integers": norm.int()}
        new[damage] |= {"model.norm.weight": kept[damage]} if damage in kept else {}
        save_file(weights | new[damage], path, {"format": "pt"})
    opened = open_model(tmp_path)
    if damage in ("more", "integers"):
        assert not isinstance(load_decoder(opened), Decoder)
    else:
        with pytest.raises(DataError, match=r"cannot be loaded|weights have no model.norm.weight"):
            load_decoder(opened)


@pytest.mark.parametrize("backend", ["cascade", "flex"])
def test_logits_and_cache_equal_those_of_the_model(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = plain_tokenizer()
    model = small_model(tokenizer)
    use_trees(model)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    trees = [prompter.tree(queries_of(problem, ["Let x = 3.", "so 9"]))[0] for problem in ("What is $x^2$?", "Why?")]
    batch = batch_trees(trees, backend).to("cpu", model.dtype)
    caches: list[KVCache] = [{}, {}]
    with torch.no_grad():
        assert supports(model)
        got = read_logits(model, batch, caches[0])
        monkeypatch.setattr("pathfinder.tree.attention.supports", lambda model: False)
        wanted = read_logits(model, batch, caches[1])
    assert torch.allclose(got, wanted, atol=1e-5)
    assert caches[0].keys() == caches[1].keys() == {0, 1}
    for layer, pair in caches[0].items():
        for mine, theirs in zip(pair, caches[1][layer], strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)


def test_gradients_and_other_decoders_use_the_model_itself() -> None:
    model = small_model(plain_tokenizer())
    assert not supports(model)
    with torch.no_grad():
        assert supports(model)
        assert not supports(torch.nn.Linear(1, 1))
        model.config.hidden_act = "gelu"
        assert not supports(model)
