"""The card in a model's folder: the Hub's classes read it, and it states only what determines the weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData

from extras.publish.client import read_card
from pathfinder.core.hub import HubModel
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.runs import parse_run
from pathfinder.demo import MODEL
from pathfinder.library import PRM
from pathfinder.training.card import Learnt, card_of, loading
from pathfinder.training.outcome import save_model
from pathfinder.tree.passes import Prompter
from tests.support.models import small_model, world_tokenizer
from tests.support.training import LEARNT, settings

LABELS = ("math", "consistency", "correctness")
SOURCES = {"rlhflow_mistral": 192, "prm800k": 6438}
HUB = HubModel("Qwen/Qwen2.5-Math-7B-Instruct", "a" * 40, {"config.json": {"bytes": 1, "sha256": "ef" * 32}})


def card(learnt: Learnt = LEARNT, sources: dict[str, int] = SOURCES, weights: int = 7_000_000_000) -> str:
    return card_of(learnt, settings(), sources, LABELS, weights)


def facts(text: str) -> Any:
    """The block of facts in a card."""
    return yaml.safe_load(text.partition("## Training\n\n")[2].partition("\n\n")[0])


def test_the_hub_reads_the_header(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(card(replace(LEARNT, base=HUB)))
    header = read_card(tmp_path / "README.md", "model")
    described: Any = ModelCardData(**header)
    assert described.to_dict() == header
    assert header["base_model"] == "Qwen/Qwen2.5-Math-7B-Instruct"
    assert (header["license"], header["license_name"]) == ("other", "as-the-sources")
    assert "model-index" not in header
    data: Any = ModelCard(card()).data
    assert data.base_model is None, "a base model that is not of the Hub has no name there"


def test_the_facts_are_those_of_the_training() -> None:
    text = card(replace(LEARNT, run=parse_run("no_subtasks-prm800k-s2"), base=HUB, share=0.0))
    found = facts(text)
    assert (found["run"], found["variant"], found["labels"]) == ("no_subtasks-prm800k-s2", "no_subtasks", [*LABELS])
    assert found["base model"] == {"repository": HUB.repo, "revision": HUB.revision}
    data = found["training set"]
    assert (data["sha256"], data["mix"], data["share of the Monte-Carlo records"]) == ("cd" * 32, "prm800k", 0.0)
    assert data["labelled steps by source"] == SOURCES
    assert found["settings"]["learning_rate"] == settings().learning_rate
    assert facts(card())["base model"] == {"sha256": {"model.safetensors": "ab" * 32}}
    assert "reports/cards/no_subtasks-prm800k-s2.md" in text


def test_what_does_not_determine_the_weights_does_not_change_the_card() -> None:
    other = settings(launch="pair", save_every=7, checkpoint_gib=3.0)
    assert card_of(LEARNT, other, dict(reversed(SOURCES.items())), LABELS, 7_000_000_000) == card()
    assert card_of(LEARNT, settings(learning_rate=0.5), SOURCES, LABELS, 7_000_000_000) != card()


@pytest.mark.parametrize(("weights", "is_toy"), [(660_000, True), (494_000_000, False)])
def test_a_tiny_model_is_called_a_toy(weights: int, is_toy: bool) -> None:
    assert (f"**This is a toy** of {weights:,} weights" in card(weights=weights)) is is_toy


@pytest.mark.parametrize("name", VARIANTS)
def test_a_card_says_what_its_variant_gives_and_asks(name: str) -> None:
    text, marks = card(replace(LEARNT, run=parse_run(name))), VARIANTS[name]
    labels = {mark.label for mark in (*marks.first, *marks.second)}
    words = {"math": "no math error", "error_free": "the step has no error", "optimality": "it is useful"}
    words |= {"consistency": "it is consistent with", "correctness": "is correct"}
    given = text.partition("## ")[0]
    assert {label for label, phrase in words.items() if phrase in given} == labels
    assert ("another one" in text) is (bool(marks.second) and not marks.sequential)
    assert ("each label in a prompt" in text) is marks.sequential
    assert "project. `" in text or marks.second, "one prompt needs no explanation"


@pytest.mark.parametrize("name", VARIANTS)
def test_the_code_of_a_card_gives_the_rewards_of_the_library(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = world_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS[name])
    learnt = replace(LEARNT, run=parse_run(name))
    save_model(small_model(tokenizer), tokenizer, prompter, settings(), [], tmp_path / "model", learnt, {})
    assert rewards_by_card(tmp_path / "model", (tmp_path / "model/README.md").read_text(), monkeypatch) == by_library(
        tmp_path / "model"
    )


def test_the_code_of_a_card_gives_the_rewards_of_the_demo_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rewards_by_card(MODEL, loading("full"), monkeypatch) == by_library(MODEL)


def rewards_by_card(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The rewards that the code of a card calculates in the folder of its model, and what it scores."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102
    assert names["tokenizer"].__class__.__name__ == "Qwen2Tokenizer"
    assert len(names["rewards"]) == len(names["steps"]) == 2
    return pytest.approx(names["rewards"], abs=1e-5)


def by_library(folder: Path) -> list[float]:
    """The rewards of the same solution by the library."""
    names: dict[str, Any] = {}
    lines = loading("full").splitlines()
    exec("\n".join(line for line in lines if line.startswith(("problem = ", "steps = "))), names)  # noqa: S102
    return [*PRM.load(folder).score(names["problem"], names["steps"]).rewards]
