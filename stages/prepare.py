"""Convert the upstream files into trajectories and rated steps.

Reads   artifacts/raw/{prm800k,mistral,math_shepherd}, those that the catalogue names; params: prepare, download
Writes  artifacts/steps/{trajectories,steps,quarantine,lines,dropped}.parquet, metrics/prepare.json
Run     python -m stages.prepare

docs/data.md compares the two presets.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import polars as pl

from pathfinder.core.io import write_json
from pathfinder.core.params import load_params
from pathfinder.core.tables import table_writer
from pathfinder.data.conversion import READERS, SCHEMAS, Counts, convert_folder, repeat_figures
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw")
STEPS_FOLDER = Path("artifacts/steps")
METRICS = Path("metrics/prepare.json")


@stage
def main() -> None:
    """Run the stage."""
    params = load_params()
    catalogue = {source.name for source in params.download.sources}
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    keys: list[pl.DataFrame] = []
    with ExitStack() as stack:
        tables = {
            name: stack.enter_context(table_writer(STEPS_FOLDER / f"{name}.parquet", schema))
            for name, schema in SCHEMAS.items()
        }
        for name in READERS:
            if name in catalogue:
                for source, found in convert_folder(RAW / name, params.prepare, tables, keys).items():
                    counts[source] += found
    figures = sum(counts.values(), Counts()).figures() | repeat_figures(keys)
    figures |= {"trajectories": tables["trajectories"].rows, "preset": params.prepare.preset}
    write_json(METRICS, figures | {"sources": {source: found.figures() for source, found in counts.items()}})


if __name__ == "__main__":
    main()
