"""The training set in two forms that other trainers read: the published one, and stepwise supervision.

Text from outside is neutralised as in training (``pathfinder.models.tokens.neutralise``), so that the only label tokens and
chat tokens in an exported text are the ones that the method puts there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pathfinder.core import prompts
from pathfinder.core.io import DataError, read_json
from pathfinder.core.prompts import BAD, GOOD, LABEL_TOKENS, MASK, VARIANTS
from pathfinder.models.tokens import neutralise

_TURNS = pl.List(pl.Struct({"role": pl.String(), "content": pl.String()}))
PAPER: dict[str, Any] = {"inputs": _TURNS, "labels": _TURNS, "source": pl.String()}
"""As published (``build_dataset.py``; the public set adds ``source``): chat turns with and without masked labels."""
STEPWISE: dict[str, Any] = {
    "prompt": pl.String(),
    "completions": pl.List(pl.String()),
    "labels": pl.List(pl.Boolean()),
}
"""TRL's stepwise supervision: is each step right?"""

Row = tuple[Any, ...]


def special_texts(model: Path) -> tuple[str, ...]:
    """The label tokens and every special token in the model's ``tokenizer.json``, longest first."""
    path = model / "tokenizer.json"
    added = read_json(path).get("added_tokens") if path.exists() else None
    if not isinstance(added, list):
        raise DataError(f"{path}: no list of added_tokens; a model folder needs its tokenizer files")
    special = {str(token["content"]) for token in added if token.get("special")} | set(LABEL_TOKENS)
    return tuple(sorted(special, key=lambda text: (-len(text), text)))


def neutral(tree: dict[str, Any], specials: Sequence[str]) -> dict[str, Any]:
    """A row of ``records.TREES`` whose texts hold no special token."""
    return tree | {
        "problem": neutralise(tree["problem"], specials),
        "steps": [neutralise(step, specials) for step in tree["steps"]],
        "branches": [branch | {"step": neutralise(branch["step"], specials)} for branch in tree["branches"]],
    }


def paper_rows(tree: dict[str, Any]) -> Iterator[Row]:
    """Two samples a record (``PAPER``): both error labels masked; then correctness masked, the error labels given."""
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
    """The tree's stepwise rows (``STEPWISE``); a step is right where its correctness label is 1.

    One row follows the trunk while its steps have labels, to the first wrong one. Every other rated step gives one
    row: the trunk before it, which must be labelled right all through, and the step itself.
    """
    followed: dict[int, bool] = {}
    others = []
    for branch in tree["branches"]:
        place, label = branch["step_index"], branch["correctness"] == 1
        on_trunk = place < len(tree["steps"]) and branch["step"] == tree["steps"][place]
        if on_trunk and place not in followed:
            followed[place] = label
        else:
            others.append((place, branch["step"], label))
    right = 0
    while followed.get(right):
        right += 1
    labels = [True] * right + [False] * (right in followed)
    if labels:
        yield tree["problem"], tree["steps"][: len(labels)], labels
    for place, step, label in others:
        if place <= right:
            yield tree["problem"], [*tree["steps"][:place], step], [True] * place + [label]


def card(title: str, text: str, rows: dict[str, int], licences: Sequence[str]) -> str:
    """A dataset card (Markdown with the hub's YAML head) for a folder with ``train.parquet`` and ``test.parquet``."""
    total = sum(rows.values())
    files = "".join(f"  - split: {split}\n    path: {split}.parquet\n" for split in rows)
    size = next((name for name, most in _SIZES if total < most), "n>1M")
    counts = "\n".join(f"| {split} | {count:,} |" for split, count in rows.items())
    return (
        "---\n"
        f"pretty_name: {title}\nlanguage: [en]\nlicense: other\nlicense_name: as-the-sources\n"
        f"task_categories: [text-classification]\nsize_categories: ['{size}']\n"
        f"configs:\n- config_name: default\n  data_files:\n{files}---\n\n"
        f"# {title}\n\n{text}\n\n| split | rows |\n| --- | ---: |\n{counts}\n\n"
        f"Licences of the sources: {', '.join(licences)}.\n\n{NEUTRAL}\n"
    )


_SIZES = (("n<1K", 1_000), ("1K<n<10K", 10_000), ("10K<n<100K", 100_000), ("100K<n<1M", 1_000_000))
NEUTRAL = (
    "Problems and steps come from people and models. Where one holds a special token's text (`<+>`, `<->`, `<extra>`, "
    "a chat token), a word joiner (U+2060) stands after its first character, so that a tokenizer reads no token there."
)
PAPER_CARD = (
    "Process reward samples in the form of the published PathFinder data: `inputs` and `labels` are the same two chat "
    "turns; in `inputs` the asked labels read `<extra>`, in `labels` they read `<+>` or `<->`. Each rated step gives "
    "two samples: mathematics and consistency asked; then correctness asked with these two given. `source` names the "
    "step's origin. Problems of `test`, and their near duplicates, do not stand in `train`."
)
STEPWISE_CARD = (
    "Stepwise supervision: `prompt` is the problem, `completions` are steps and `labels` say of each whether it is "
    "right (its correctness label: sound, consistent and useful). One row follows each solution while its steps have "
    "labels, to the first wrong one; every other rated step gives a row of its own after the same steps, where these "
    "are right. Steps after one that has no label are left out."
)
