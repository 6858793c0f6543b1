"""The results of a training run: model folder, figures and log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ground.io import atomic_folder, write_json, write_text
from pathfinder.core.hub import CARD
from pathfinder.core.params import Train
from pathfinder.core.records import USES
from pathfinder.core.steps import Known
from pathfinder.models.decoder import Decoder, save_decoder
from pathfinder.models.folders import MODEL_FILE
from pathfinder.models.model import DTYPES
from pathfinder.models.tokens import save_tokenizer
from pathfinder.training import metrics
from pathfinder.training.card import Given, Learnt, card_of, card_of_given
from pathfinder.training.examples import Example
from pathfinder.training.network import merge, save_adapter
from pathfinder.tree.passes import Prompts
from pathfinder.tree.separated import Separated

_LOG_ROWS = 400
_LEFT_OUT = {"id": pl.String(), "tokens": pl.Int64()}


def save_model(
    network: Any,
    tokenizer: Any,
    prompter: Prompts,
    settings: Train,
    tokens_added: Sequence[str],
    path: Path,
    learnt: Learnt | Given,
    sources: Mapping[str, int],
    known: Known | None = None,
) -> None:
    """Write the trained network as a plain model folder, with ``pathfinder.json``, a card and a LoRA's adapter.

    ``sources`` counts, by source, the labelled steps that it learnt from. ``known`` has their words, if they are few.
    """
    with atomic_folder(path) as folder:
        if isinstance(network, Decoder):
            save_decoder(network, folder, settings.dtype)
        else:
            if settings.lora.rank:
                save_adapter(network, folder)
                network = merge(network)
            network.config._attn_implementation = "sdpa"
            network.config.name_or_path = ""
            network.config.use_cache = True
            network.to(DTYPES[settings.dtype]).save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
        ids, separator = prompter.ids, prompter.separator if isinstance(prompter, Separated) else None
        tokens = {"<+>": ids.good, "<->": ids.bad, "<extra>": ids.mask}
        description = {
            "variant": prompter.variant.name,
            "labels": prompter.labels,
            **({"token_ids": tokens, "tokens_added": tokens_added} if separator is None else {"separator": separator}),
            "train": settings.model_dump(),
            **({"data": learnt.facts()} if isinstance(learnt, Given) else {}),
            **({"known": known.as_json()} if known else {}),
        }
        write_json(folder / MODEL_FILE, description)
        weights = sum(parameter.numel() for parameter in network.parameters())
        if isinstance(learnt, Given):
            text = card_of_given(learnt, settings, prompter.labels, weights, separator)
        else:
            text = card_of(learnt, settings, sources, prompter.labels, weights)
        write_text(folder / CARD, text)
        for file in folder.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)


def figures(
    learn: Sequence[Example], test: Sequence[Example], rows: Sequence[dict[str, float]], **others: Any
) -> metrics.Train:
    """Counts of trees, records, samples and tokens, and the mean loss over the last tenth of the steps ``rows``.

    ``others`` has the remaining keys, which describe the records and the held-out labels.
    """
    trees, tail = len(learn) + len(test), rows[-max(1, len(rows) // 10) :]
    return metrics.Train(
        read=trees,
        kept=trees,
        dropped={},
        quarantined={},
        train_trees=len(learn),
        test_trees=len(test),
        train_records=len({name for example in learn for name in example.ids}),
        train_samples=sum(example.samples for example in learn),
        tokens_an_epoch=sum(len(example.tree) for example in learn),
        tokens_an_epoch_as_samples=sum(example.sample_tokens for example in learn),
        optimiser_steps=len(rows),
        final_loss=sum(row["loss"] for row in tail) / len(tail),
        **others,
    )


def uses(learn: Sequence[Example], plan: Sequence[Sequence[int]], left_out: Mapping[str, int]) -> pl.DataFrame:
    """The optimiser steps (from 1) that used each record, in the order of the examples (``records.USES``).

    ``plan`` holds the examples of each step; ``left_out`` the tokens of records that are too long for the model.
    """
    owners = [place for place, example in enumerate(learn) for _ in example.ids]
    ids = [name for example in learn for name in example.ids]
    records = pl.DataFrame({"example": owners, "id": ids}, schema={"example": pl.Int64(), "id": pl.String()})
    pairs = {
        "example": [example for step in plan for example in step],
        "steps": [number for number, step in enumerate(plan, start=1) for _ in step],
    }
    planned = pl.DataFrame(pairs, schema={"example": pl.Int64(), "steps": pl.Int32()})
    used = records.join(planned, on="example", how="left", maintain_order="left").group_by("id", maintain_order=True)
    rows = used.agg(pl.col("steps").drop_nulls().unique().sort()).select("id", "steps", tokens=pl.lit(None, pl.Int64()))
    long = pl.DataFrame({"id": list(left_out), "tokens": list(left_out.values())}, schema=_LEFT_OUT)
    no_steps = pl.lit([], pl.List(pl.Int32()))
    return pl.concat([rows, long.select("id", no_steps.alias("steps"), "tokens")]).select(*USES)


def thin_log(rows: Sequence[dict[str, float]]) -> list[metrics.LogRow]:
    """At most ``_LOG_ROWS`` rows: means over equal ranges of steps, with step and learning rate of each range's end."""
    length = -(-len(rows) // _LOG_ROWS)
    out = []
    for start in range(0, len(rows), length):
        part = rows[start : start + length]
        keys = dict.fromkeys(key for r in part for key in r if key.startswith(("loss", "accuracy_", "held_out_")))
        means = {key: sum(r[key] for r in part if key in r) / sum(key in r for r in part) for key in keys}
        row = {"step": part[-1]["step"], **means, "learning_rate": part[-1]["learning_rate"]}
        out.append(metrics.LogRow.model_validate(row))
    return out
