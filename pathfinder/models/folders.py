"""Model folders. ``open_model`` finds the files of a folder and reads their JSON, but loads no weights.

All code that loads or describes the model gets this ``OpenedModel``, so no file is searched for twice.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ground.io import DataError, read_json, sha256_file
from pathfinder.core.hub import HubModel, cached_folder, read_hub_model
from pathfinder.core.prompts import LABEL_TOKENS, VARIANTS, Variant
from pathfinder.core.steps import Known
from pathfinder.models.tokens import (
    LabelIds,
    inference_tokenizer,
    label_ids,
    refuse_without_labels,
    refuse_without_rows,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MODEL_FILE = "pathfinder.json"
"""The description of a trained PRM in its folder."""
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model's config.json, read once. ``content`` is the whole object; ``folder`` names the model in messages."""

    folder: Path
    content: Mapping[str, Any]

    @property
    def dtype(self) -> Literal["bfloat16", "float32"]:
        """The precision of the files; float16 counts as "float32"."""
        stored = self.content.get("dtype") or self.content.get("torch_dtype")
        return "bfloat16" if stored == "bfloat16" else "float32"

    @property
    def positions(self) -> int:
        """The longest text in tokens. Raises ``DataError`` if the file does not say."""
        value = self.content.get("max_position_embeddings")
        if type(value) is not int or value < 1:
            raise DataError(
                f"{self.folder}: config.json has max_position_embeddings {value!r:.80}; expected a positive integer"
            )
        return value

    @property
    def rows(self) -> int | None:
        """The rows of the vocabulary; None if the file does not say. The model's loader reports that."""
        value = self.content.get("vocab_size")
        return value if type(value) is int else None


@dataclass(frozen=True)
class OpenedModel:
    """A model folder whose files were found and whose config.json was read."""

    folder: Path
    """The folder as the caller named it, for messages."""
    files: Path
    """The folder with the files: ``folder``, or its commit in the Hub's cache."""
    origin: HubModel | None
    """The repository that ``folder`` points to, if it holds no files itself."""
    config: Configuration

    @property
    def is_described(self) -> bool:
        """True if the folder has the description that training writes."""
        return (self.files / MODEL_FILE).exists()

    @cached_property
    def variant(self) -> Variant:
        """The PRM's variant. Raises ``DataError`` if its description names an unknown one."""
        return variant_of(self.files, self.description)

    @cached_property
    def known(self) -> Known:
        """The words and numbers that a small model learnt from; empty if its description has none.

        Raises ``DataError`` if the description is damaged.
        """
        given = self.description.get("known") if isinstance(self.description, dict) else None
        try:
            return Known.of_json(given) or Known()
        except DataError as error:
            raise DataError(f"{self.files / MODEL_FILE}: {error}") from error

    @cached_property
    def description(self) -> Any:
        """The JSON value of its description; None if it has none."""
        return description_of(self.files)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer for inference. Raises ``DataError`` as ``load_tokenizer`` does."""
        return inference_tokenizer(self.files)

    @cached_property
    def labels(self) -> LabelIds:
        """Ids of a PRM's label tokens. Raises ``DataError`` if the tokenizer lacks one, or the model a row."""
        refuse_without_labels(self.tokenizer, self.folder)
        refuse_without_rows(self.tokenizer, self.files, self.config.rows)
        return label_ids(self.tokenizer)

    def part(self, name: str) -> Path | None:
        """The folder of a part of the model, such as ``lora`` or ``tokenizer``; None if the model has no such part.

        The part is a folder below ``folder`` or, if the model is in the Hub's cache, below its folder there. A part of
        ``folder`` may itself point to a different repository (docs/benchmarks.md). Raises ``DataError`` if the cache
        lacks a file.
        """
        part = self.folder / name
        if (model := read_hub_model(part)) is not None:
            return cached_folder(part, model)
        inside = part if part.is_dir() else self.files / name
        return inside if inside.is_dir() else None


def open_model(folder: Path) -> OpenedModel:
    """Find the files of the model in ``folder``, or in the Hub's cache if ``folder`` points there. Needs no network.

    Raises ``DataError`` if it is not a model folder, the cache lacks a file, or config.json is not a JSON object.
    """
    origin = read_hub_model(folder)
    if origin is not None:
        files = cached_folder(folder, origin)
    elif (folder / "config.json").exists():
        files = folder
    else:
        raise DataError(f"{folder}: no config.json; name the folder that holds a model's files")
    content = read_json(files / "config.json")
    if not isinstance(content, dict):
        raise DataError(f"{files / 'config.json'}: no JSON object; fetch the model's files again")
    return OpenedModel(folder, files, origin, Configuration(folder, content))


def digests_of(folder: Path) -> dict[str, str]:
    """The sha256 of each file of a model folder, also behind links, as in the Hub's cache; sorted by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def description_of(files: Path) -> Any:
    """The JSON value of the description of a PRM with these files; None if it has none, like published checkpoints."""
    return read_json(files / MODEL_FILE) if (files / MODEL_FILE).exists() else None


def variant_of(files: Path, content: Any = None) -> Variant:
    """The variant of the PRM with these files; raises ``DataError`` if its description names an unknown one.

    ``content`` is the description, if it was read before.
    """
    content = description_of(files) if content is None else content
    if content is None:
        return VARIANTS["full"]
    name = content.get("variant") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in VARIANTS:
        raise DataError(f"{files / MODEL_FILE}: unknown variant {name!r:.80}; expected one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


@contextmanager
def uncollected() -> Iterator[None]:
    """Import torch and transformers in the block without the garbage collector.

    It would cost an eighth of the time and find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def special_texts(model: Path) -> tuple[str, ...]:
    """The label tokens and the special tokens of the model's ``tokenizer.json``, longest first.

    ``model`` is a model folder or points to the Hub's cache. Raises ``DataError`` if it has no usable tokenizer file.
    """
    path = model / TOKENIZER
    if (pointer := read_hub_model(model)) is not None:  # weights are not needed
        only = {name: about for name, about in pointer.files.items() if name == TOKENIZER}
        path = cached_folder(model, replace(pointer, files=only)) / TOKENIZER
    added = read_json(path).get("added_tokens") if path.exists() else None
    if not isinstance(added, list):
        raise DataError(f"{path}: no list of added_tokens; a model folder needs its tokenizer files")
    special = {str(token["content"]) for token in added if token.get("special")} | set(LABEL_TOKENS)
    return tuple(sorted(special, key=lambda text: (-len(text), text)))
