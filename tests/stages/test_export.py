from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from ground.io import DataError, read_json, write_json, write_parquet
from pathfinder.core.prompts import LABEL_TOKENS
from pathfinder.core.records import TREES
from stages import export
from tests.support.export_trees import tree
from tests.support.stage_inputs import write_params


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_params(tmp_path)
    for split, numbers in (("train", range(20)), ("test", range(20, 24))):
        frame = pl.DataFrame([tree(n) for n in numbers], schema=TREES)
        write_parquet(Path(f"artifacts/train/{split}.parquet"), frame)
    tokens = [{"content": "<|im_end|>", "special": True}, {"content": "plain", "special": False}]
    write_json(Path("artifacts/raw/models/base/tokenizer.json"), {"added_tokens": tokens})
    licences = {"prm800k": "MIT", "mistral": "unknown", "math_shepherd": "Apache-2.0", "models/base": "other"}
    source: dict[str, object] = {"kind": "shipped", "location": "data", "revision": None, "files": {}}
    manifest = {name: source | {"licence": text} for name, text in licences.items()}
    write_json(Path("artifacts/raw/manifest.json"), manifest)
    return tmp_path


def test_the_published_form_loads_and_has_the_turns_of_training(inputs: Path) -> None:
    import datasets

    export.main()
    loaded = datasets.load_dataset("artifacts/export/paper", cache_dir=str(inputs / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 160, "test": 32}
    first, second = loaded["train"][4], loaded["train"][5]
    assert set(first) == {"inputs", "labels", "source"}
    assert first["source"] == "rlhflow_mistral"
    user, asked = first["inputs"]
    assert [user["role"], asked["role"]] == ["user", "assistant"]
    assert asked["content"].endswith(" Math reasoning: <extra>, Consistency: <extra>")
    assert first["labels"][1]["content"].endswith(" Math reasoning: <+>, Consistency: <+>")
    assert second["inputs"][1]["content"].endswith(" Math reasoning: <+>, Consistency: <+>, Correctness: <extra>")
    assert second["labels"][1]["content"].endswith(" Math reasoning: <+>, Consistency: <+>, Correctness: <->")
    assert asked["content"].startswith("one\n\nCurrent Step: So ")


def test_no_text_of_a_problem_or_step_becomes_a_token(inputs: Path) -> None:
    export.main()
    for split in ("train", "test"):
        paper = pl.read_parquet(f"artifacts/export/paper/{split}.parquet")
        for inputs_, labels, _ in paper.iter_rows():
            marks = inputs_[1]["content"].count("Correctness: ") + 2
            for turns in (inputs_, labels):
                assert sum(turns[0]["content"].count(token) for token in LABEL_TOKENS) == 0
                assert sum(turns[1]["content"].count(token) for token in LABEL_TOKENS) == marks
                assert "<|im_end|>" not in turns[1]["content"]
        stepwise = pl.read_parquet(f"artifacts/export/trl/{split}.parquet")
        texts = [*stepwise["prompt"], *stepwise["completions"].explode()]
        assert not [text for text in texts if any(token in text for token in (*LABEL_TOKENS, "<|im_end|>"))]
        assert any("Score A: 1" in text for text in texts)


def test_the_stepwise_form_loads(inputs: Path) -> None:
    import datasets

    export.main()
    loaded = datasets.load_dataset("artifacts/export/trl", cache_dir=str(inputs / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 40, "test": 8}
    assert set(loaded["train"].column_names) == {"prompt", "completions", "labels"}
    assert all(len(row["completions"]) == len(row["labels"]) for row in loaded["train"])


_LOAD = """
import json, mlcroissant
dataset = mlcroissant.Dataset(jsonld="artifacts/export/croissant.json")
assert not dataset.metadata.ctx.issues.errors
rows = [(row["test/labels"], row["test/completions"]) for row in dataset.records("test")]
print(json.dumps([[[bool(x) for x in labels], [bytes(text).decode() for text in texts]] for labels, texts in rows]))
"""


def test_the_description_is_valid_and_its_records_load(inputs: Path) -> None:
    export.main()
    # In processes: absl, which mlcroissant imports, closes pytest's standard error when logging is configured again.
    validate = [str(Path(sys.executable).with_name("mlcroissant")), "validate", "--jsonld"]
    done = [
        subprocess.run(command, capture_output=True, text=True, check=False)
        for command in ([*validate, "artifacts/export/croissant.json"], [sys.executable, "-c", _LOAD])
    ]
    assert [process.returncode for process in done] == [0, 0], [process.stderr for process in done]
    rows = json.loads(done[1].stdout)
    assert len(rows) == 8
    assert rows[1] == [[False], ["bad"]]
    described = read_json(Path("artifacts/export/croissant.json"))
    assert described["license"] == ["Apache-2.0", "MIT", "unknown"]
    assert len(described["distribution"]) == 4
    assert str(inputs) not in json.dumps(described)


def test_the_same_training_set_gives_the_same_bytes(inputs: Path) -> None:
    def bytes_of() -> dict[str, bytes]:
        return {path.as_posix(): path.read_bytes() for path in Path("artifacts/export").rglob("*") if path.is_file()}

    export.main()
    before = bytes_of()
    export.main()
    assert bytes_of() == before
    assert len(before) == 7


def test_the_special_tokens_of_a_hub_model_are_read_from_its_cache(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export read ``tokenizer.json`` of the pointer's folder, which has none for a model of the Hub."""
    export.main()
    before = Path("artifacts/export/paper/train.parquet").read_bytes()
    base, revision = Path("artifacts/raw/models/base"), "a" * 40
    cached = inputs / "hub" / "models--o--n" / "snapshots" / revision / "tokenizer.json"
    cached.parent.mkdir(parents=True)
    (base / "tokenizer.json").rename(cached)
    files = {"tokenizer.json": {"sha256": "unused", "bytes": cached.stat().st_size}}
    write_json(base / "hub.json", {"repo": "o/n", "revision": revision, "files": files})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(inputs / "hub"))
    export.main()
    assert Path("artifacts/export/paper/train.parquet").read_bytes() == before
    cached.unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json of o/n at .* is not in the Hub cache"):
        export.main()


def test_a_missing_training_set_is_named(inputs: Path) -> None:
    Path("artifacts/train/test.parquet").unlink()
    with pytest.raises(DataError, match=r"test\.parquet: no such file; run the build stage"):
        export.main()
