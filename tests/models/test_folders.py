"""A model folder is opened once: its files, configuration, description and tokenizer are read where it is opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ground import io
from ground.io import DataError, write_json
from pathfinder.bench.search import SearchOptions, policy_of
from pathfinder.models import folders
from pathfinder.models.folders import MODEL_FILE, digests_of, open_model, variant_of
from pathfinder.prm.scoring import Scorer
from tests.prm.test_scoring import save_prm


def test_a_description_names_the_variant(tmp_path: Path) -> None:
    write_json(tmp_path / MODEL_FILE, {"variant": "no_subtasks"})
    assert variant_of(tmp_path).name == "no_subtasks"


def test_a_published_checkpoint_without_a_description_is_the_full_variant(tmp_path: Path) -> None:
    assert variant_of(tmp_path).name == "full"


@pytest.mark.parametrize("content", [{"variant": "odd"}, {}])
def test_an_unknown_variant_is_refused(content: dict[str, str], tmp_path: Path) -> None:
    write_json(tmp_path / MODEL_FILE, content)
    with pytest.raises(DataError, match=r"pathfinder\.json: unknown variant .*; expected one of full"):
        variant_of(tmp_path)


def test_a_scorer_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_prm(tmp_path)
    read: list[str] = []

    def counted(path: Path) -> object:
        read.append(path.name)
        return io.read_json(path)

    monkeypatch.setattr(folders, "read_json", counted)
    model = open_model(tmp_path)
    Scorer(model)
    Scorer(model)
    assert read.count("config.json") == 1
    assert read.count(MODEL_FILE) <= 1
    assert model.tokenizer is model.tokenizer


def test_the_configuration_is_typed(tmp_path: Path) -> None:
    for written, dtype in ({"dtype": "bfloat16"}, "bfloat16"), ({"torch_dtype": "float16"}, "float32"), ({}, "float32"):
        write_json(tmp_path / "config.json", {**written, "max_position_embeddings": 7, "vocab_size": 5})
        config = open_model(tmp_path).config
        assert (config.dtype, config.positions, config.rows) == (dtype, 7, 5)
    write_json(tmp_path / "config.json", {"max_position_embeddings": "7", "vocab_size": "5"})
    config = open_model(tmp_path).config
    assert config.rows is None
    with pytest.raises(DataError, match="max_position_embeddings '7'; expected a positive integer"):
        _ = config.positions


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no config\.json; name the folder that holds a model"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps([]))
    with pytest.raises(DataError, match=r"config\.json: no JSON object; fetch the model's files again"):
        open_model(tmp_path)


def test_a_snapshot_of_links_is_known_by_its_weights(tmp_path: Path) -> None:
    """The Hub's cache has a link per file; fails if two such models pass for one."""
    found, policies = [], set[str]()
    for weights in ("1", "2"):
        blob, snapshot = tmp_path / f"blob{weights}", tmp_path / weights / "lora"
        blob.write_text(weights)
        snapshot.mkdir(parents=True)
        (snapshot / "model.safetensors").symlink_to(blob)
        found.append(digests_of(snapshot.parent))
        policies.add(policy_of(SearchOptions(str(snapshot.parent))).identity)
    assert found[0].keys() == found[1].keys() == {"lora/model.safetensors"}
    assert found[0] != found[1]
    assert len(policies) == 2
