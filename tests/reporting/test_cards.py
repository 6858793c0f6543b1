"""The cards of models: the Hub's classes read them, and every figure is the one in the metric file it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from evidence.audit.pointers import value_at
from ground.io import read_json, write_json
from pathfinder.core.runs import parse_run
from pathfinder.reporting.card import card_of
from pathfinder.reporting.results import Results, load_results
from tests.support.report_inputs import write_best_of_n, write_everything

HUB = {"kind": "hub", "licence": "Apache-2.0", "revision": "a" * 40, "files": {}}
SHIPPED = HUB | {"kind": "shipped", "revision": None}
MANIFEST: dict[str, dict[str, Any]] = {
    "prm800k": SHIPPED | {"location": "data/prm800k", "licence": "MIT"},
    "mistral": HUB | {"location": "datasets/RLHFlow/Mistral-PRM-Data", "licence": "unknown"},
    "math_shepherd": SHIPPED | {"location": "data/unused", "licence": "not used"},
    "processbench": HUB | {"location": "datasets/Qwen/ProcessBench"},
    "models/base": HUB | {"location": "Qwen/Qwen2.5-Math-7B-Instruct"},
    "models/policy": HUB | {"location": "other/policy", "licence": "not used"},
}


@pytest.fixture
def results(folder: Path) -> Results:
    write_everything(("full",))
    return load_results(Path("metrics"), (parse_run("full"),))


def header(text: str) -> Any:
    return ModelCard(text).data


def test_every_result_is_the_value_at_the_place_that_it_names(results: Results) -> None:
    found = header(card_of(parse_run("full"), results, MANIFEST, is_toy=False)).eval_results
    assert {each.dataset_name for each in found} == {"ProcessBench", "PRMBench", "search problems"}
    for each in found:
        place = each.metric_args
        assert each.metric_value == value_at(read_json(Path(place["file"])), place["pointer"], place["file"])
        assert "/full.json" in place["file"]
    names = {each.metric_name for each in found if each.dataset_config is None}
    assert {"mean F1 in percent (soundness)", "mean F1 in percent (quality)"} <= names


def test_a_variant_without_the_reading_of_searches_names_its_own(folder: Path) -> None:
    write_everything(("plain_error",))
    write_best_of_n("plain_error")
    path, run = Path("metrics/search/plain_error.json"), parse_run("plain_error")
    write_json(path, read_json(path) | {"reading": "soundness"})
    text = card_of(run, load_results(Path("metrics"), (run,)), MANIFEST, is_toy=False)
    assert "guided search, highest reward per step, by soundness" in text
    assert "by the minimum reward, by soundness" in text
    assert "math error" not in text


def test_the_card_names_base_model_data_and_the_licence_of_each_source_that_was_used(results: Results) -> None:
    text = card_of(parse_run("full"), results, MANIFEST, is_toy=False)
    data = header(text)
    assert (data.license, data.license_name) == ("other", "as-the-sources")
    assert data.base_model == "Qwen/Qwen2.5-Math-7B-Instruct"
    assert data.datasets == ["RLHFlow/Mistral-PRM-Data"]
    assert "prm800k: MIT; mistral: unknown; models/base: Apache-2.0." in text
    assert "not used" not in text
    benchmark = next(each for each in data.eval_results if each.dataset_name == "ProcessBench")
    assert (benchmark.dataset_type, benchmark.dataset_revision) == ("Qwen/ProcessBench", "a" * 40)


def test_generated_sets_are_called_toy_and_never_take_the_name_of_a_real_one(results: Results) -> None:
    text = card_of(parse_run("full"), results, MANIFEST, is_toy=True)
    found = header(text).eval_results
    assert all("toy" in each.dataset_name and each.dataset_type.endswith("-toy") for each in found)
    assert "This is a toy" in text
    assert "Qwen/ProcessBench" not in text


def test_one_licence_is_named_and_the_same_inputs_give_the_same_bytes(results: Results) -> None:
    alike = {name: source | {"licence": "Apache-2.0"} for name, source in MANIFEST.items()}
    texts = {card_of(parse_run("full"), results, alike, is_toy=False) for _ in range(2)}
    assert header(texts.pop()).license == "apache-2.0"
    assert not texts


def test_a_hostile_licence_cannot_add_keys_or_markup(results: Results) -> None:
    hostile = "MIT\ntags: [official]\n---\n# not this <script>"
    alike = {name: source | {"licence": hostile} for name, source in MANIFEST.items()}
    text = card_of(parse_run("full"), results, alike, is_toy=False)
    data = header(text)
    assert data.license == hostile.lower()
    assert data.tags == ["process-reward-model", "mathematics", "error-typing"]
    assert "<script>" not in text.partition("\n---\n")[2]
    assert "\n# not this" not in text.partition("\n---\n")[2]


def test_a_run_without_benchmarks_has_a_card_that_says_so(results: Results) -> None:
    for name in ("processbench", "prmbench", "search"):
        Path(f"metrics/{name}/full.json").unlink()
    text = card_of(parse_run("full"), load_results(Path("metrics"), (parse_run("full"),)), {}, is_toy=False)
    assert header(text).eval_results is None
    assert "the benchmarks have not run" in text


def test_a_part_of_a_benchmark_has_its_number_of_items_and_never_the_benchmark_s_name_on_the_hub(folder: Path) -> None:
    write_everything(("full",))
    path = Path("metrics/processbench/full.json")
    write_json(path, read_json(path) | {"kept": 60, "dropped": {"limit": 3340}})
    text = card_of(parse_run("full"), load_results(Path("metrics"), (parse_run("full"),)), MANIFEST, is_toy=False)
    found = {each.dataset_name: each.dataset_type for each in header(text).eval_results}
    assert found.keys() == {"ProcessBench (60 of 3,400 items)", "PRMBench", "search problems"}
    assert found["ProcessBench (60 of 3,400 items)"] == "processbench"
