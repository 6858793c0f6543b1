"""Write the training set for other trainers, with a description that data set tools read.

Reads   artifacts/train, artifacts/raw/manifest.json, artifacts/raw/models/base (its special tokens)
Writes  artifacts/export: paper/ (the published form), trl/ (stepwise supervision), croissant.json, and
        metrics/export.json
Run     python -m stages.export

``datasets.load_dataset`` reads either folder, ``mlcroissant`` the description. Memory depends on one batch of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

from pathfinder.core.io import DataError, read_json, write_json, write_text
from pathfinder.core.params import load_params
from pathfinder.core.progress import Progress
from pathfinder.core.tables import table_writer
from pathfinder.data.croissant import describe
from pathfinder.data.export import (
    PAPER,
    PAPER_CARD,
    STEPWISE,
    STEPWISE_CARD,
    Row,
    card,
    neutral,
    paper_rows,
    special_texts,
    stepwise_rows,
)
from pathfinder.provenance.stage import stage

TRAIN = Path("artifacts/train")
MANIFEST = Path("artifacts/raw/manifest.json")
MODEL = Path("artifacts/raw/models/base")
EXPORT = Path("artifacts/export")
METRICS = Path("metrics/export.json")
SPLITS = ("train", "test")
_TREES = 64  # a batch
_FORMS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], Iterator[Row]], str, str]] = {
    "paper": (PAPER, paper_rows, "PathFinder samples", PAPER_CARD),
    "trl": (STEPWISE, stepwise_rows, "PathFinder stepwise supervision", STEPWISE_CARD),
}


def read_trees(path: Path) -> Iterator[dict[str, Any]]:
    """The trees of a file, a batch in memory at a time."""
    if not path.exists():
        raise DataError(f"{path}: no such file; run the build stage")
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_TREES):
            yield from batch.to_pylist()


def write_rows(path: Path, schema: dict[str, Any], rows: Iterable[Row]) -> int:
    """Write rows as they come; returns how many."""
    with table_writer(path, schema) as table:
        for row in rows:
            table.add(*row)
            if table.rows % _ROWS == 0:
                table.flush()
    return table.rows


_ROWS = 4096  # a row group: long texts in lists are what fills the memory


def licences() -> list[str]:
    """Licences of the sources of the steps, each once."""
    manifest = read_json(MANIFEST)
    return sorted({str(manifest[name]["licence"]) for name in ("prm800k", "mistral") if name in manifest})


@stage
def main() -> None:
    """Run the stage."""
    profile = load_params().profile
    with Progress("export", len(_FORMS) * len(SPLITS), "files") as progress:
        specials, terms = special_texts(MODEL), licences()
        metrics: dict[str, dict[str, int]] = {}
        for form, (schema, make, title, text) in _FORMS.items():
            counts: dict[str, int] = {}
            for split in SPLITS:
                trees = read_trees(TRAIN / f"{split}.parquet")
                rows = (row for tree in trees for row in make(neutral(tree, specials)))
                counts[split] = write_rows(EXPORT / form / f"{split}.parquet", schema, rows)
                progress.advance(note=f"{form}/{split}")
            write_text(EXPORT / form / "README.md", card(title, text, counts, terms))
            metrics[form] = counts
        write_json(EXPORT / "croissant.json", describe(EXPORT, f"pathfinder-prm-{profile}", terms))
        write_json(METRICS, metrics)


if __name__ == "__main__":
    main()
