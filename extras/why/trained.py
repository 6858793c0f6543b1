"""A trained run, opened so that its training can be repeated: settings, records and the base model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import torch
from pydantic import ValidationError

from extras.why.alike import records_of
from extras.why.replay import Trajectory, TreeLearner, rates_of, replay
from ground.io import DataError, read_json
from pathfinder.core.labels import CORRECTNESS
from pathfinder.core.params import Train
from pathfinder.core.prompts import Variant
from pathfinder.core.records import SOFT_TREES, TREES
from pathfinder.core.runs import Run
from pathfinder.models.folders import MODEL_FILE, open_model, variant_of
from pathfinder.models.model import load_model
from pathfinder.models.tokens import load_tokenizer
from pathfinder.training.examples import read_examples
from pathfinder.training.network import load_network, positions
from pathfinder.tree.attention import use_trees
from pathfinder.tree.passes import Prompter

_TOLERANCE = 1e-3
"""The largest allowed difference of a weight after repeated training; a machine with different kernels causes some."""


def settings_of(folder: Path) -> Train:
    """The training settings in a model folder. Raises ``DataError`` if its training cannot be differentiated here."""
    path = folder / MODEL_FILE
    if not path.exists():
        raise DataError(f"{path}: no such file; train the run first (`dvc repro train@{folder.name}`)")
    try:
        settings = Train.model_validate(read_json(path).get("train"))
    except (ValidationError, AttributeError) as error:
        raise DataError(f"{path}: no training settings; only models of the train stage can be explained") from error
    wrong = {
        "lora.rank": settings.lora.rank != 0,
        "dtype": settings.dtype != "float32",
        "weight_decay": settings.weight_decay != 0,
        "weighting": settings.weighting == "device",
        "launch": settings.launch != "",
        "gradient_checkpointing": settings.gradient_checkpointing,
    }
    if names := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise DataError(
            f"{path}: train.{', train.'.join(names)} is set; `why` differentiates full fine-tuning on trees in float32 "
            "in one process, without weight decay (extras/why/README.md)"
        )
    return settings


def open_learner(run: Run, folder: Path, base: Path, train: Path) -> TreeLearner:
    """The records of the run in ``folder``, and the model that it was trained from.

    Raises ``DataError`` as ``settings_of`` does, and for a variant without Correctness.
    """
    settings, variant = settings_of(folder), _variant(folder)
    trees = records_of(run, train, SOFT_TREES if settings.soft_labels else TREES)
    return learner_of(trees, base, variant, settings)


def open_reader(folder: Path) -> tuple[Any, Prompter]:
    """The trained network in ``folder``, and its prompter. Raises ``DataError`` if it has no Correctness."""
    opened, variant = open_model(folder), _variant(folder)
    network: Any = load_model(opened, where="cpu")
    use_trees(network)
    return network, Prompter(load_tokenizer(opened.files), variant)


def _variant(folder: Path) -> Variant:
    variant = variant_of(folder)
    if all(mark.label != CORRECTNESS for mark in (*variant.first, *variant.second)):
        raise DataError(
            f"{folder}: {variant.name} has no Correctness, whose log-odds are explained; name another run with --run"
        )
    return variant


def learner_of(trees: pl.DataFrame, base: Path, variant: Variant, settings: Train) -> TreeLearner:
    """The records of ``trees`` (``records.TREES`` or ``SOFT_TREES``), and the model in ``base``, before training."""
    torch.set_num_threads(1)  # a fixed order of sums, as in the train stage
    opened = open_model(base)
    tokenizer = load_tokenizer(opened.files)
    prompter = Prompter(tokenizer, variant)
    examples = read_examples(
        trees,
        prompter,
        settings.token_budget,
        settings.weighting,
        settings.records_per_tree,
        settings.soft_labels,
        positions(opened),
    )
    network, _ = load_network(opened.files, tokenizer, settings)
    return TreeLearner(examples, prompter, network, settings)


def repeat(learner: TreeLearner, settings: Train, folder: Path, on_step: Callable[[int], None]) -> Trajectory:
    """Repeat the training and keep its states.

    Raises ``DataError`` if the states do not fit into this machine's memory, or if the final weights differ from the
    model in ``folder``.
    """
    needed = 4 * 4 * learner.steps * sum(learner.shares)  # weights, gradient and two moments of each step, in float32
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > available:
        raise DataError(
            f"{folder}: the {learner.steps} optimiser steps need {needed / 2**30:.1f} GiB, {available / 2**30:.1f} GiB "
            "are free; explain a smaller model or a shorter training"
        )
    rates = rates_of(settings, learner.steps)
    trajectory = replay(learner, rates, settings.max_grad_norm, on_step=on_step)
    difference = distance(learner, trajectory, folder)
    if difference > _TOLERANCE:
        raise DataError(
            f"{folder}: the repeated training ends {difference:.2g} away from these weights; its data or code have "
            f"changed since, so train it again (`dvc repro train@{folder.name}`)"
        )
    return trajectory


def distance(learner: TreeLearner, trajectory: Trajectory, folder: Path) -> float:
    """The largest difference between a final weight and the same weight of the model in ``folder``."""
    trained, _ = open_reader(folder)
    other = torch.cat([p.detach().reshape(-1) for p in trained.parameters()])
    return float((other - trajectory.final).abs().max()) if len(other) == len(trajectory.final) else float("inf")
