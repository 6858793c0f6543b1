"""The verb ``train`` of the command ``pathfinder``: a PRM from a user's labelled steps, without the pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from ground import io
from ground.show import AsJson, aligned, counted, show
from ground.text import UsageError
from pathfinder.core.prompts import VARIANTS
from pathfinder.options import Revision

if TYPE_CHECKING:
    from pathfinder.core.params import Train
    from pathfinder.models.folders import OpenedModel
    from pathfinder.training.run import Trained
    from pathfinder.training.stepwise import Supervision

DEMO = Path(__file__).parent / "demo_model"
"""The default base: it knows the generated stories and the prompt of every variant, and trains on any CPU."""
VariantName = StrEnum("VariantName", [(name, name) for name in VARIANTS])  # type: ignore[misc]  # names of a table
_TUNING = "Training"


def train(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="JSON, CSV or Parquet. A row has prompt, completions (a list of steps) and labels (a "
            "list with true, false, 1, 0, -1 for each step, or null for a step that is not trained on). The lists "
            "math, consistency and correct in place of labels give typed errors.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The new model folder.")],
    base: Annotated[
        str,
        typer.Option(help="Folder of a model, or a repository of the Hub (default: the small PRM of this package)."),
    ] = "",
    revision: Revision = None,
    neutral: Annotated[
        Literal["positive", "negative", "drop", "third"] | None,
        typer.Option(
            metavar="MEANING",
            help="The meaning of label 0 if there are 1 and -1: as 1 (positive), as -1 (negative), left out (drop), or "
            "free of errors but not correct (third; docs/readings.md).",
        ),
    ] = None,
    head: Annotated[
        Literal["tokens", "classes"],
        typer.Option(
            help="tokens: label tokens after a prompt about one step. classes: wrong or correct, read at a separator "
            "after each step by a model for token classification, as TRL's PRMTrainer trains it."
        ),
    ] = "tokens",
    separator: Annotated[
        str, typer.Option(help="The text after each step, for --head classes.", show_default="a line break")
    ] = "",
    variant: Annotated[
        VariantName | None,
        typer.Option(
            metavar="VARIANT",
            help=f"Labels to predict: {', '.join(VARIANTS)} (default: full for typed labels, no_error_categories for "
            "--neutral third, plain_error for --neutral positive, else no_subtasks).",
        ),
    ] = None,
    soft: Annotated[bool, typer.Option("--soft", help="Learn the shares in mc_value in place of labels.")] = False,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of the problems that is held out for the figures.")
    ] = 0.1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Drop the checkpoints of an interrupted run.")] = False,
    epochs: Annotated[float, typer.Option(min=0.01, max=1000, help="Epochs.", rich_help_panel=_TUNING)] = 2.0,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-9,
            max=1.0,
            help="Highest learning rate (default: 1e-3 below 100 million weights, else 1e-4 with --lora or 1e-5).",
            rich_help_panel=_TUNING,
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Labelled steps of an optimiser step.", rich_help_panel=_TUNING)
    ] = 64,
    lora: Annotated[
        int, typer.Option(min=0, help="Rank of a LoRA adapter; 0 trains all weights.", rich_help_panel=_TUNING)
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of order and split.", rich_help_panel=_TUNING)
    ] = 42,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="Precision; auto: bfloat16 on a GPU.", rich_help_panel=_TUNING),
    ] = "auto",
    device: Annotated[
        Literal["auto", "cpu"], typer.Option(help="auto: a GPU, if there is one.", rich_help_panel=_TUNING)
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a PRM on your own labelled steps, without the pipeline.

    The same command resumes after an interruption.
    Rows with the same problem and first steps share their computation.
    A step that several rows repeat with the same label (with --soft: and share) counts once.
    """
    _refuse(out, base, revision, head, variant, separator)
    from pathfinder.models.cards import confined
    from pathfinder.training.stepwise import read
    from pathfinder.tree.separated import SEPARATOR

    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    data, progress = read(file, neutral), out.with_name(f"{out.name}.progress")
    asked = variant.value if variant else None  # YAML knows no enumeration
    name, after = (data.variant(asked, soft), None) if head == "tokens" else ("no_subtasks", separator or SEPARATOR)
    if fresh:
        io.remove(progress)
    with confined():
        opened = _base(base, revision, head)
        settings = _settings(opened, epochs, learning_rate, batch, lora, seed, dtype, soft)
        result = _trained(data, name, opened, settings, held_out, out, progress, after)
    show(result, as_json, _lines(result))


def _refuse(out: Path, base: str, revision: str | None, head: str, variant: str | None, separator: str) -> None:
    """Raise for options that are wrong for any data."""
    if find_spec("accelerate") is None:  # check this first, because several extras install the next modules
        raise ModuleNotFoundError(name="accelerate")
    from pathfinder.models.launch import launched

    if launched():
        raise io.DataError("pathfinder train runs in one process; start it without a launcher (docs/training.md)")
    if not out.name or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise io.DataError(f"{out}: not an empty folder; name a new one with --out, or remove it")
    if head == "classes" and variant not in (None, "no_subtasks"):
        raise UsageError(f"--head classes has one label, so it cannot train {variant}; leave --variant out")
    if revision and not base:
        raise UsageError("--revision is for a --base of the Hub; name it, or leave the option out")
    if separator and head == "tokens":
        raise UsageError("--separator needs --head classes; add that, or leave --separator out")


def _base(name: str, revision: str | None, head: str) -> OpenedModel:
    from pathfinder.models.folders import open_model
    from pathfinder.sources.named_models import model_folder

    opened = open_model(model_folder(name, revision) if name else DEMO)
    if head == "classes":
        from pathfinder.baselines.backbone import MODEL_TYPES

        if (kind := opened.config.content.get("model_type")) not in MODEL_TYPES:
            raise io.DataError(f"--base {name}: --head classes takes {', '.join(MODEL_TYPES)}, not {kind!r:.80}")
    return opened


def _settings(
    base: OpenedModel, epochs: float, rate: float | None, batch: int, rank: int, seed: int, dtype: str, soft: bool
) -> Train:
    """The settings of the profiles ``quickstart`` for a small base and ``paper`` for a large one."""
    from pathfinder.core.params import Lora, Train
    from pathfinder.models.architectures import shape_of
    from pathfinder.models.model import device
    from pathfinder.training.card import LARGEST_TOY

    is_small = shape_of(base.config.content, str(base.folder)).parameters < LARGEST_TOY
    precision: Any = dtype if dtype != "auto" else "bfloat16" if device() == "cuda" else "float32"
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return Train(
        dtype=precision,
        learning_rate=rate or (1e-3 if is_small else 1e-4 if rank else 1e-5),
        schedule="cosine",
        warmup_ratio=0.1,
        epochs=epochs,
        steps=0,
        batch_samples=2 * batch,
        token_budget=4096 if is_small else 16384,
        max_grad_norm=1.0,
        weight_decay=0.0,
        gradient_checkpointing=not is_small,
        weighting="sample",
        records_per_tree=batch,
        soft_labels=soft,
        lora=Lora(rank=rank, alpha=2 * rank or 1, base_dtype=precision, targets=targets),
        launch="",
        save_every=50,
        checkpoint_gib=0.0,
        seed=seed,
    )


def _trained(
    data: Supervision,
    variant: str,
    base: OpenedModel,
    settings: Train,
    held_out: float,
    out: Path,
    progress: Path,
    separator: str | None,
) -> dict[str, Any]:
    """Train, write the model folder ``out``, and return what the verb prints; ``progress`` holds the checkpoints."""
    import torch
    import transformers

    from pathfinder.engines.workers import code_digests
    from pathfinder.models.folders import MODEL_FILE
    from pathfinder.training.card import Given, as_facts, deciding
    from pathfinder.training.run import base_of, train
    from pathfinder.training.stepwise import MEANINGS, split

    trees, origin = split(data.trees(settings.soft_labels), held_out, settings.seed), base_of(base)
    identity = {
        "data": [data.sha256, data.neutral, variant, separator, held_out],
        "base": as_facts(origin),
        "settings": deciding(settings),
        "versions": [code_digests(), torch.__version__, transformers.__version__],
    }
    place = progress / io.digest_of(identity)[:16]
    done = cast("Trained", train(base, variant, settings, place, lambda: trees, str(out / MODEL_FILE), separator))
    figures, neutral = done.figures, MEANINGS[data.neutral] if data.neutral else ""
    labels = {label: found.as_json() for label, found in figures.test_labels.items()}
    of_file = data.file.name, data.sha256, len(data.rows), neutral
    done.save(settings, out, Given(origin, variant, *of_file, figures.train_records, figures.too_long, labels))
    io.remove(progress)
    return {
        "model": str(out),
        "variant": variant,
        "neutral": neutral,
        "rows": len(data.rows),
        "learnt_steps": figures.train_records,
        "held_out_steps": sum(len(example.ids) for example in done.held_out),
        "labels": labels,
        "optimiser_steps": figures.optimiser_steps,
        "final_loss": figures.final_loss,
        "seconds": done.throughput["seconds"],
        "steps_per_second": done.throughput["steps_per_second"],
        "too_long": figures.too_long_records,
    }


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The result for a reader, with the next commands."""
    from pathfinder.training.metrics import texts

    yield (
        f"trained {result['variant']} on {counted(result['learnt_steps'], 'labelled step')} in "
        f"{counted(result['optimiser_steps'], 'optimiser step')} ({result['steps_per_second']:.1f}/s); final loss "
        f"{result['final_loss']:.3f}"
    )
    if result["neutral"]:
        yield result["neutral"]
    if result["labels"]:
        yield f"\nOn {counted(result['held_out_steps'], 'held-out step')}:"
        head = ("label", "accuracy", "of the commoner label", "AUC", "loss")
        keys = ("accuracy", "majority_accuracy", "auc", "loss")
        rows = [(label, *texts(found, *keys)) for label, found in result["labels"].items()]
        yield from aligned([head, *rows])
    yield f"\nThe model, its card and its data's digest are in {result['model']}. What to try next:"
    yield f"  pathfinder score FILE --pretty --model {result['model']}"
    yield f"  pathfinder serve {result['model']}"
