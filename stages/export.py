"""Export the training set for other trainers, with a description that dataset tools read.

Reads   artifacts/train, artifacts/raw/manifest.json, artifacts/raw/models/base (its special tokens); params: profile
Writes  artifacts/export: paper/ (the published form), trl/ (stepwise supervision), croissant.json, and
        metrics/export.json
Run     python -m stages.export

``datasets.load_dataset`` reads either folder; ``mlcroissant`` reads the description.
"""

from __future__ import annotations

from pathlib import Path

from evidence.record.stage import stage
from ground.io import write_json, write_text
from ground.manifest import read_manifest
from ground.progress import Progress
from pathfinder.core.hub import MANIFEST
from pathfinder.core.params import load_params
from pathfinder.data.conversion import READERS
from pathfinder.data.croissant import describe
from pathfinder.data.export import FORMS, card, neutral_trees, write_rows
from pathfinder.models.folders import special_texts

TRAIN = Path("artifacts/train")
MODEL = Path("artifacts/raw/models/base")
EXPORT = Path("artifacts/export")
METRICS = Path("metrics/export.json")
SPLITS = ("train", "test")


@stage
def main() -> None:
    """Run the stage."""
    profile, manifest, specials = load_params().profile, read_manifest(MANIFEST), special_texts(MODEL)
    licences = sorted({str(manifest[name]["licence"]) for name in READERS if name in manifest})
    metrics: dict[str, dict[str, int]] = {}
    with Progress("export", len(FORMS) * len(SPLITS), "files") as progress:
        for name, form in FORMS.items():
            metrics[name] = {}
            for split in SPLITS:
                trees = neutral_trees(TRAIN / f"{split}.parquet", specials)
                metrics[name][split] = write_rows(EXPORT / name / f"{split}.parquet", form, trees)
                progress.advance(note=f"{name}/{split}")
            write_text(EXPORT / name / "README.md", card(form, metrics[name], licences))
        write_json(EXPORT / "croissant.json", describe(EXPORT, f"pathfinder-prm-{profile}", licences))
        write_json(METRICS, metrics)


if __name__ == "__main__":
    main()
