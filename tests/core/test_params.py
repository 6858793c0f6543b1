from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ground.io import DataError
from pathfinder.core.params import load_params


def content(root: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    return loaded


def write(folder: Path, value: Any) -> Path:
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    return path


def test_the_committed_file_is_complete(root: Path) -> None:
    assert load_params(root / "params.yaml").profile == "quickstart"


def test_every_single_missing_key_is_named(root: Path, tmp_path: Path) -> None:
    sections = {name: values for name, values in content(root).items() if isinstance(values, dict)}
    keys = [f"{section}.{key}" for section, values in sections.items() for key in values]
    with pytest.raises(DataError) as caught:
        load_params(write(tmp_path, content(root) | {name: {} for name in sections}))
    assert len(keys) > 50
    assert [key for key in keys if f"  {key}: Field required\n" not in str(caught.value)] == []


@pytest.mark.parametrize(
    "section, key, value",
    [
        ("train", "epochs", "4"),
        ("train", "batch_samples", 2.5),
        ("train", "batch_samples", True),
        ("build", "test_share", 1.5),
        ("label", "engine", "vlm"),
        ("search", "sets", ["gsm8k"]),
        ("report", "confidence", 1.0),
    ],
)
def test_ill_typed_values_are_named(root: Path, tmp_path: Path, section: str, key: str, value: Any) -> None:
    bad = content(root)
    bad[section][key] = value
    with pytest.raises(DataError, match=rf"{section}\.{key}"):
        load_params(write(tmp_path, bad))


def test_unknown_keys_are_named(root: Path, tmp_path: Path) -> None:
    bad = content(root)
    bad["train"]["lr"] = 1.0
    bad["extra"] = {}
    with pytest.raises(DataError, match=r"train\.lr: Extra inputs(.|\n)*extra: Extra inputs"):
        load_params(write(tmp_path, bad))


def test_repeated_sources_and_broken_files_are_refused(root: Path, tmp_path: Path) -> None:
    for keys in ("download.sources", "mixes"):
        bad = content(root)
        entries: Any = bad["mixes"] if keys == "mixes" else bad["download"]["sources"]
        entries.append(entries[0])
        with pytest.raises(DataError, match=rf"{keys}: .*names repeat"):
            load_params(write(tmp_path, bad))
    (tmp_path / "params.yaml").write_text("a: [")
    with pytest.raises(DataError, match="not valid YAML"):
        load_params(tmp_path / "params.yaml")
    with pytest.raises(DataError, match="pathfinder profile"):
        load_params(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("runs", "message"),
    [(["full", "fulll"], "run 'fulll': did you mean full"), (["full-700k"], "'700k', which is not one of `mixes`")],
)
def test_a_run_that_cannot_be_trained_is_refused_when_the_file_is_read(
    root: Path, tmp_path: Path, runs: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load_params(write(tmp_path, content(root) | {"runs": runs}))


def test_published_batches_have_equal_shares_of_a_step(root: Path, tmp_path: Path) -> None:
    changed = content(root)
    changed["train"] |= {"weighting": "device", "batch_samples": 48}
    assert load_params(write(tmp_path, changed)).train.batch_samples == 48
    changed["train"]["batch_samples"] = 40
    with pytest.raises(DataError, match=r"train: .*batch_samples 40 is not a multiple of 16"):
        load_params(write(tmp_path, changed))
    changed["train"] |= {"batch_samples": 48, "steps": 9}
    with pytest.raises(DataError, match=r"train: .*steps 9: weighting `device` has the published number"):
        load_params(write(tmp_path, changed))


@pytest.mark.parametrize("written", ["1e-5", "1e-05", "1E-5", "1.0e-5"])
def test_numbers_in_any_notation_of_dvc_are_numbers(root: Path, tmp_path: Path, written: str) -> None:
    """DVC writes 2e-05 for `dvc exp run -S train.learning_rate=2e-5`; PyYAML by itself reads a string."""
    text = (root / "params.yaml").read_text(encoding="utf-8")
    (tmp_path / "params.yaml").write_text(re.sub(r"learning_rate: \S+", f"learning_rate: {written}", text))
    assert load_params(tmp_path / "params.yaml").train.learning_rate == 1e-5
