"""The card in the folder of a trained model, in the Hub's form: Markdown with a YAML header.

The card in ``models/<run>`` has no results, because the benchmarks have not run yet. The stage ``report`` writes a card
with results to ``reports/cards``, with the same words from this module. The folder is an input of the scoring stages.
So the card has only facts that determine the weights: runs with equal weights have equal cards.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

from pathfinder.core.hub import HubModel
from pathfinder.core.labels import CORRECTNESS, OPTIMALITY, PREDICTED
from pathfinder.core.params import Train
from pathfinder.core.prompts import ERROR_FREE, VARIANTS, user_turn
from pathfinder.core.runs import Run
from pathfinder.training.metrics import texts

TASK = "text-classification"
_MEANINGS = {kind.name: kind.meaning for kind in PREDICTED} | {
    ERROR_FREE: "has no error",
    CORRECTNESS: "is correct",
    OPTIMALITY: "is useful",
}
"""The predicate of a sentence about a step, by label."""
TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("card.toml").read_text(encoding="utf-8"))
"""The words of ``card.toml`` by key."""
SOURCES_LICENCE = {"license": "other", "license_name": "as-the-sources"}
LARGEST_TOY = 100_000_000
"""Weights. The largest model of a generated world has 30 million, the smallest model of a profile has 500 million."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """The inputs that determine the weights of a run, besides settings and code.

    ``base`` is the repository of the base model, or the sha256 of its files by name. ``data`` is the sha256 of the
    training set. The mix takes ``share`` of its Monte-Carlo records, chosen by ``mix_seed``.
    """

    run: Run
    base: HubModel | Mapping[str, str]
    data: str
    share: float
    mix_seed: int


def card_of(learnt: Learnt, settings: Train, sources: Mapping[str, int], labels: Sequence[str], weights: int) -> str:
    """The card of a model with this number of ``weights`` that predicts ``labels``.

    ``sources`` counts, by source, the labelled steps that it learnt from.
    """
    run, base = learnt.run, learnt.base
    facts = {
        "run": run.name,
        "variant": run.variant,
        "labels": list(labels),
        "weights": weights,
        "base model": as_facts(base),
        "training set": {
            "file": "artifacts/train/train.parquet",
            "sha256": learnt.data,
            "mix": run.mix,
            "share of the Monte-Carlo records": learnt.share,
            "seed of the mix": learnt.mix_seed,
            "labelled steps by source": dict(sorted(sources.items())),
        },
        "settings": deciding(settings),
    }
    parts = [
        title(run),
        what(run.variant),
        *_toy(weights),
        "## Scoring with it",
        TEXTS["scoring"],
        loading(run.variant),
        "## Training",
        _facts(facts),
        TEXTS["labels"],
        "## Results",
        _text("results", run=run.name),
        "## Licences",
        f"{TEXTS['licences']} {TEXTS['duty']}",
        "## Limits",
        TEXTS["limits"],
    ]
    return joined(header(SOURCES_LICENCE, base.repo if isinstance(base, HubModel) else None), parts)


@dataclass(frozen=True, slots=True)
class Given:
    """A user's labelled steps that a model learnt from, how they were read, and figures on the held-out steps.

    ``sha256`` and ``rows`` describe the file. ``neutral`` says how neutral steps count; "" if there are none.
    ``too_long`` has the tokens of the first steps that the base cannot read, which were left out. ``held_out``
    has the figures of each label (``training.metrics.HeldOut``).
    """

    base: HubModel | Mapping[str, str]
    variant: str
    file: str
    sha256: str
    rows: int
    neutral: str
    learnt_steps: int
    too_long: Mapping[str, int]
    held_out: Mapping[str, Mapping[str, Any]]

    def facts(self) -> dict[str, Any]:
        """The data as a JSON value, for ``pathfinder.json`` and the card."""
        found = {
            name: getattr(self, name) for name in ("file", "sha256", "rows", "neutral", "learnt_steps", "too_long")
        }
        return {key: value for key, value in found.items() if value not in ("", {})}


def card_of_given(
    given: Given, settings: Train, labels: Sequence[str], weights: int, separator: str | None = None
) -> str:
    """The card of a model with this number of ``weights`` that ``pathfinder train`` made from a user's data.

    ``separator`` follows each step in the prompt of a model that classifies tokens.
    """
    facts = {
        "variant": given.variant,
        **({} if separator is None else {"separator": separator}),
        "labels": list(labels),
        "weights": weights,
        "base model": as_facts(given.base),
        "training data": given.facts(),
        "settings": deciding(settings),
    }
    rows = [
        f"| {label} | {found['n']} | {' | '.join(texts(found, 'accuracy', 'majority_accuracy', 'auc'))} |"
        for label, found in given.held_out.items()
    ]
    head = "| label | held-out steps | accuracy | of the commoner label | AUC |\n| --- | ---: | ---: | ---: | ---: |\n"
    parts = [
        f"# PathFinder process reward model: {given.variant}",
        _text("own", labels=", ".join(labels), file=given.file),
        *_toy(weights),
        "## Scoring with it",
        TEXTS["scoring"] if separator is None else TEXTS["scoring"].replace("label tokens", "separator"),
        loading(given.variant) if separator is None else _text("classes", separator=repr(separator)),
        "## Training",
        _facts(facts),
        "## Results",
        head + "\n".join(rows) if rows else "No problem was held out.",
        "## Licences",
        f"The base model and the training data have licences of their own. {TEXTS['duty']}",
        "## Limits",
        TEXTS["own_limits"],
    ]
    return joined(header(SOURCES_LICENCE, given.base.repo if isinstance(given.base, HubModel) else None), parts)


def as_facts(base: HubModel | Mapping[str, str]) -> dict[str, Any]:
    """A base model as a JSON value: its repository and commit, or the digests of its files."""
    if isinstance(base, HubModel):
        return {"repository": base.repo, "revision": base.revision}
    return {"sha256": dict(base)}


def _text(key: str, **values: Any) -> str:
    """Words of ``card.toml`` with the values of their names."""
    return Template(TEXTS[key]).substitute(TEXTS, **values)


def _toy(weights: int) -> list[str]:
    return [_text("toy", weights=f"{weights:,}")] if weights < LARGEST_TOY else []


def _facts(facts: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(dict(facts), sort_keys=False, allow_unicode=True, width=110)
    return textwrap.indent(text.rstrip("\n"), "    ")


def what(variant: str) -> str:
    """The card's first sentences: the probabilities that a model of a variant gives."""
    marks = VARIANTS[variant]
    first, second = ([_MEANINGS[mark.label] for mark in group] for group in (marks.first, marks.second))
    if marks.sequential:
        gives = f"It gives {_that(first + second)}, each given the labels before it"
    elif second:
        known = "these labels" if len(first) > 1 else "this label"
        gives = f"It first gives {_that(first)}, and then, given {known}, {_that(second)}"
    else:
        gives = f"It gives {_that(first)}" + ("; the reward is their product" if len(first) > 1 else "")
    return _text("what", gives=gives)


def _that(meanings: Sequence[str]) -> str:
    """Words for the probabilities of these predicates of a step."""
    noun = "probabilities" if len(meanings) > 1 else "probability"
    clauses = [f"that {'it' if place else 'the step'} {meaning}" for place, meaning in enumerate(meanings)]
    return f"the {noun} " + " and ".join(filter(None, (", ".join(clauses[:-1]), clauses[-1])))


def loading(variant: str) -> str:
    """Code that scores with transformers only, with the published prompts of a variant."""
    marks = VARIANTS[variant]
    asks = TEXTS["asks"]["sequential" if marks.sequential else "twice"] if marks.second else ""
    captions = [[mark.caption for mark in group] for group in (marks.first, marks.second) if group]
    if marks.sequential:
        captions = [[caption] for group in captions for caption in group]
    has_product = not marks.second and len(marks.first) > 1
    reward = "torch.tensor(found).prod().item()" if has_product else "found[-1]"
    return _text("loading", user=repr(user_turn("")), asks=asks, captions=captions, reward=reward)


def deciding(settings: Train) -> dict[str, Any]:
    """The settings that determine the weights, without processes and checkpoints."""
    return settings.model_dump(exclude={"launch", "save_every", "checkpoint_gib"})


def title(run: Run) -> str:
    """The heading of a card."""
    return f"# PathFinder process reward model: {run.name}"


def header(licence: Mapping[str, str], base: str | None) -> dict[str, Any]:
    """The header of a card. ``base`` is the Hub's name of the base model, if it has one."""
    found: dict[str, Any] = {"language": ["en"], "library_name": "transformers", "pipeline_tag": TASK, **licence}
    found["tags"] = ["process-reward-model", "mathematics", "error-typing"]
    return found | ({"base_model": base} if base else {})


def joined(metadata: Mapping[str, Any], parts: Sequence[str]) -> str:
    """A card from its header and the paragraphs of its text."""
    top = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{top}---\n\n" + "\n\n".join(parts) + "\n"
