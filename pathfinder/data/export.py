"""The training set in two forms for other trainers: the published form, and stepwise supervision.

Problems and steps are neutralised as in training (``pathfinder.models.tokens.neutralise``), so that the label tokens
and chat tokens of an exported text all come from the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet

from ground.io import DataError
from pathfinder.core import prompts
from pathfinder.core.prompts import BAD, GOOD, MASK, VARIANTS
from pathfinder.core.tables import table_writer
from pathfinder.models.tokens import neutralise

Row = tuple[Any, ...]
_TREES = 64  # per batch
_ROWS = 4096  # per row group: long texts in lists fill the memory
_SIZES = (("n<1K", 1_000), ("1K<n<10K", 10_000), ("10K<n<100K", 100_000), ("100K<n<1M", 1_000_000))
_TURNS = pl.List(pl.Struct({"role": pl.String(), "content": pl.String()}))
NEUTRAL = (
    "Problems and steps come from people and models. If one contains the text of a special token (`<+>`, `<->`, "
    "`<extra>`, a chat token), a word joiner (U+2060) follows its first character, so that no tokenizer finds it."
)


@dataclass(frozen=True, slots=True)
class Form:
    """One form of the training set: the columns, the rows of a tree, and title and text of the dataset card."""

    schema: Mapping[str, Any]
    rows: Callable[[dict[str, Any]], Iterator[Row]]
    title: str
    text: str


def neutral_trees(path: Path, specials: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The trees of a file (``records.TREES``), without special tokens in their texts; one batch is in memory at a time.

    Raises ``DataError`` if the file does not exist.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file; run the build stage")
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_TREES):
            for tree in batch.to_pylist():
                tree["problem"] = neutralise(tree["problem"], specials)
                tree["steps"] = [neutralise(step, specials) for step in tree["steps"]]
                for branch in tree["branches"]:
                    branch["step"] = neutralise(branch["step"], specials)
                yield tree


def write_rows(path: Path, form: Form, trees: Iterable[dict[str, Any]]) -> int:
    """Write the rows of ``trees`` to a Parquet file; returns their number."""
    with table_writer(path, dict(form.schema)) as table:
        for tree in trees:
            for row in form.rows(tree):
                table.add(*row)
                if table.rows % _ROWS == 0:
                    table.flush()
    return table.rows


def paper_rows(tree: dict[str, Any]) -> Iterator[Row]:
    """Two samples per record: both error labels masked, then correctness masked with the error labels given."""
    variant = VARIANTS["full"]
    captions = [mark.caption for mark in (*variant.first, *variant.second)]
    user = {"role": "user", "content": prompts.user_turn(tree["problem"])}
    for branch in tree["branches"]:
        prefix, step = tree["steps"][: branch["step_index"]], branch["step"]
        gold = [GOOD if branch[name] == 1 else BAD for name in ("math", "consistency", "correctness")]
        for given, asked in ((0, 2), (2, 1)):
            pair = []
            for tokens in ([*gold[:given], *[MASK] * asked], gold[: given + asked]):
                turn = prompts.assistant_turn(prefix, step, list(zip(captions, tokens, strict=False)))
                pair.append([user, {"role": "assistant", "content": turn}])
            yield *pair, tree["source"]


def stepwise_rows(tree: dict[str, Any]) -> Iterator[Row]:
    """Rows of stepwise supervision; a step is correct if its correctness label is 1.

    One row follows the trunk while its steps have labels, up to the first incorrect step. Every other rated step gives
    one row: the trunk before it, if all of it is labelled correct, and the step.
    """
    trunk: dict[int, bool] = {}
    others = []
    for branch in tree["branches"]:
        place, label = branch["step_index"], branch["correctness"] == 1
        on_trunk = place < len(tree["steps"]) and branch["step"] == tree["steps"][place]
        if on_trunk and place not in trunk:
            trunk[place] = label
        else:
            others.append((place, branch["step"], label))
    correct = 0
    while trunk.get(correct):
        correct += 1
    labels = [True] * correct + [False] * (correct in trunk)
    if labels:
        yield tree["problem"], tree["steps"][: len(labels)], labels
    for place, step, label in others:
        if place <= correct:
            yield tree["problem"], [*tree["steps"][:place], step], [True] * place + [label]


def card(form: Form, rows: Mapping[str, int], licences: Sequence[str]) -> str:
    """The dataset card (Markdown with the Hub's YAML header) of a folder with one Parquet file per split."""
    total = sum(rows.values())
    files = "".join(f"  - split: {split}\n    path: {split}.parquet\n" for split in rows)
    size = next((name for name, limit in _SIZES if total < limit), "n>1M")
    counts = "\n".join(f"| {split} | {count:,} |" for split, count in rows.items())
    return (
        "---\n"
        f"pretty_name: {form.title}\nlanguage: [en]\nlicense: other\nlicense_name: as-the-sources\n"
        f"task_categories: [text-classification]\nsize_categories: ['{size}']\n"
        f"configs:\n- config_name: default\n  data_files:\n{files}---\n\n"
        f"# {form.title}\n\n{form.text}\n\n| split | rows |\n| --- | ---: |\n{counts}\n\n"
        f"Licences of the sources: {', '.join(licences)}.\n\n{NEUTRAL}\n"
    )


# Schema of the paper's form: ``build_dataset.py``; the public dataset adds ``source``.
PAPER = Form(
    {"inputs": _TURNS, "labels": _TURNS, "source": pl.String()},
    paper_rows,
    "PathFinder samples",
    "Process reward samples in the form of the published PathFinder data. `inputs` and `labels` are the same two chat "
    "turns, but the requested labels read `<extra>` in `inputs` and `<+>` or `<->` in `labels`. Each rated step gives "
    "two samples: one asks for mathematics and consistency; the other gives these two and asks for correctness. "
    "`source` names the origin of the step. `train` contains no problem of `test` and no near duplicate of one.",
)
STEPWISE = Form(  # as TRL reads it
    {"prompt": pl.String(), "completions": pl.List(pl.String()), "labels": pl.List(pl.Boolean())},
    stepwise_rows,
    "PathFinder stepwise supervision",
    "Stepwise supervision: `prompt` is the problem, `completions` are steps, and `labels` give the correctness of each "
    "step (free of errors, and useful). One row follows each solution while its steps have labels, up to the first "
    "incorrect step. Every other rated step gives a row of its own, after the same steps if these are correct. Steps "
    "after an unlabelled step are left out.",
)
FORMS = {"paper": PAPER, "trl": STEPWISE}
