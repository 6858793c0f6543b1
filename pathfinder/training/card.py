"""The card in the folder of a trained model, in the Hub's form: Markdown with a YAML header.

The card in ``models/<run>`` has no results, because the benchmarks have not run yet. The stage ``report`` writes a card
with results to ``reports/cards``, with the same words from this module. The folder is an input of the scoring stages.
So the card states only what determines the weights: runs with equal weights have equal cards.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from pathfinder.core.hub import HubModel
from pathfinder.core.params import Train
from pathfinder.core.prompts import VARIANTS, user_turn
from pathfinder.core.runs import Run

TASK = "text-classification"
WHAT = """\
A process reward model: it judges each step of a mathematical solution. It first gives the probabilities that the step \
has no math error and that it fits what came before, and then, given these labels, the probability that it is correct \
(arXiv 2505.19706)."""
SCORING = """\
In a clone of the project that made it, or after `pip install .` there:

    pathfinder score FILE --pretty --model FOLDER

`PRM.load("FOLDER")` does the same from Python (docs/library.md). FOLDER is the folder with `pathfinder.json`, which \
names the variant, the label tokens and the settings of the training. All probabilities are of *no* error: higher is \
better."""
_EXAMPLE = """\
problem = "Tom has 5 apples. He buys 7. How many apples does he have?"
steps = ["He buys 7, so 5 + 7 = 12 apples.", "The answer is \\\\boxed{13}."]"""
_CLASSES = """\
This code gives the same rewards with the package transformers, without the project. Every step is followed by the \
separator {separator!r}, where the model gives the probabilities of a wrong and a correct step. `"."` is the folder of \
this card. The texts must not contain special tokens.

```python
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

{example}

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForTokenClassification.from_pretrained(".", dtype="auto").eval()
ids, ends = [], []
for text in (problem, *(text for step in steps for text in (step, {separator!r}))):
    ids += tokenizer(text, add_special_tokens=False)["input_ids"]
    ends.append(len(ids) - 1)
start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
with torch.inference_mode():
    shares = model(torch.tensor([start + ids])).logits[0, len(start) :].float().softmax(-1)
rewards = shares[ends[2::2], 1].tolist()
for step, reward in zip(steps, rewards):
    print(f"{{reward:.3f}}", step)
```"""
_LOADING = """\
This code gives the same rewards with the package transformers, without the project. It asks for the labels in one \
prompt and for the correctness in another one, which has the labels. `"."` is the folder of this card. The texts must \
not contain special tokens.

```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

{example}

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".", dtype="auto").eval()
good, bad, mask = tokenizer.convert_tokens_to_ids(["<+>", "<->", "<extra>"])
question = {user!r} + problem


@torch.inference_mode()
def ask(answer):
    turns = [{{"role": "user", "content": question}}, {{"role": "assistant", "content": answer}}]
    ids = tokenizer.apply_chat_template(turns, return_tensors="pt", return_dict=True)["input_ids"]
    before = (ids[0] == mask).nonzero().flatten() - 1
    return model(ids).logits[0, before][:, [good, bad]].float().softmax(-1)[:, 0].tolist()


rewards = []
for number, step in enumerate(steps):
    text, labels = "\\n\\n".join([*steps[:number], f"Current Step: {{step}} "]), []
    for captions in {captions}:
        found = ask(text + ", ".join([*labels, *(f"{{caption}}: <extra>" for caption in captions)]))
        labels += [f"{{caption}}: {{'<+>' if p >= 0.5 else '<->'}}" for caption, p in zip(captions, found)]
    rewards.append({reward})
    print(f"{{rewards[-1]:.3f}}", labels, step)
```"""
LABELS = """\
A human rating of a step as correct or neutral implies its labels. For the other steps an LLM judge was asked, and a \
filter kept the answers that agree with the rating of the source."""
LIMITS = """\
The model learnt from English solutions of mathematical problems whose steps are separated, and its errors were typed \
by a judge that is itself wrong at times. It does not check arithmetic with a tool. It can accept a wrong step with \
high confidence, above all on kinds of problems that it has not seen. Do not use it as the only judge of a person's \
work."""
SOURCES_LICENCE = {"license": "other", "license_name": "as-the-sources"}
DUTY = "Whoever uses the model must respect the licence of every source that went into it."
_TOY = """\
**This is a toy** of {weights:,} weights. A model of this size can learn simple, generated problems, as in \
the quickstart. Its scores on real problems mean nothing."""
_OWN = """\
A process reward model: it judges each step of a solution and gives the probability that the step deserves each label \
of {labels}. It learnt from labelled steps of `{file}`."""
_OWN_LIMITS = """\
The model learnt what these labels say, on problems like these. It can be wrong with high confidence, above all on \
other kinds of problems. Do not use it as the only judge of a person's work."""
_RESULTS = """\
The card of a published model has its results. In the project that trained it, they are in `reports/cards/{run}.md` \
once the stage `report` has run."""
_LICENCES = """\
The base model and the training data have licences of their own, which the card with the results names. {duty}"""
LARGEST_TOY = 100_000_000
"""Weights. The largest model of the generated worlds has 30 million, the smallest one of the profiles 500 million."""


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

    ``sources`` counts the labelled steps that it learnt from by source.
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
        WHAT,
        *([_TOY.format(weights=weights)] if weights < LARGEST_TOY else []),
        "## Scoring with it",
        SCORING,
        loading(run.variant),
        "## Training",
        _facts(facts),
        LABELS,
        "## Results",
        _RESULTS.format(run=run.name),
        "## Licences",
        _LICENCES.format(duty=DUTY),
        "## Limits",
        LIMITS,
    ]
    return joined(header(SOURCES_LICENCE, base.repo if isinstance(base, HubModel) else None), parts)


@dataclass(frozen=True, slots=True)
class Given:
    """A person's labelled steps that a model learnt from, how they were read, and the figures on the held-out ones.

    ``sha256`` and ``rows`` describe the file. ``neutral`` says what a neutral step counts as, "" if there is none.
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
    """The card of a model of so many ``weights`` that ``pathfinder train`` made from a person's own data.

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
        f"| {label} | {found['n']} | {found['accuracy']:.3f} | {found['majority_accuracy']:.3f} | {found['auc']:.3f} |"
        for label, found in given.held_out.items()
    ]
    head = "| label | held-out steps | accuracy | of the commoner label | AUC |\n| --- | ---: | ---: | ---: | ---: |\n"
    parts = [
        f"# PathFinder process reward model: {given.variant}",
        _OWN.format(labels=", ".join(labels), file=given.file),
        *([_TOY.format(weights=weights)] if weights < LARGEST_TOY else []),
        "## Scoring with it",
        SCORING if separator is None else SCORING.replace("label tokens", "separator"),
        loading(given.variant) if separator is None else _CLASSES.format(example=_EXAMPLE, separator=separator),
        "## Training",
        _facts(facts),
        "## Results",
        head + "\n".join(rows) if rows else "No problem was held out.",
        "## Licences",
        f"The base model and the training data have licences of their own. {DUTY}",
        "## Limits",
        _OWN_LIMITS,
    ]
    return joined(header(SOURCES_LICENCE, given.base.repo if isinstance(given.base, HubModel) else None), parts)


def as_facts(base: HubModel | Mapping[str, str]) -> dict[str, Any]:
    """A base model as a JSON value: its repository and commit, or the digests of its files."""
    if isinstance(base, HubModel):
        return {"repository": base.repo, "revision": base.revision}
    return {"sha256": dict(base)}


def _facts(facts: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(dict(facts), sort_keys=False, allow_unicode=True, width=110)
    return textwrap.indent(text.rstrip("\n"), "    ")


def loading(variant: str) -> str:
    """Code that scores with transformers only, with the published prompts of a variant."""
    marks = VARIANTS[variant]
    captions = [[mark.caption for mark in group] for group in (marks.first, marks.second) if group]
    if marks.sequential:
        captions = [[caption] for group in captions for caption in group]
    has_product = not marks.second and len(marks.first) > 1
    reward = "torch.tensor(found).prod().item()" if has_product else "found[-1]"
    return _LOADING.format(example=_EXAMPLE, user=user_turn(""), captions=captions, reward=reward)


def deciding(settings: Train) -> dict[str, Any]:
    """The settings that determine the weights: neither processes nor checkpoints."""
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
