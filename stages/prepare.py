"""Convert the upstream files into trajectories and rated steps.

Reads   artifacts/raw/{prm800k,mistral,math_shepherd}, as far as the catalogue names them; params: prepare, download
Writes  artifacts/steps/{trajectories,steps,quarantine,lines,dropped}.parquet, metrics/prepare.json
Run     python -m stages.prepare [--part NUMBER/COUNT]

docs/data.md compares the two presets. With ``--part``, only that part of the work is done and stored for the stage
(docs/data.md).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

import pyarrow

from evidence.record.stage import stage
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import load_params
from pathfinder.core.parts import Part
from pathfinder.core.tables import table_writers
from pathfinder.data.conversion import READERS, SCHEMAS, Counts, convert_source, open_sources, repeat_figures
from pathfinder.data.converted_parts import FinishedBatches, conversion_parts, write_part
from pathfinder.data.metrics import Prepare

RAW = Path("artifacts/raw")
STEPS_FOLDER = Path("artifacts/steps")
METRICS = Path("metrics/prepare.json")
KEPT = Path(".pathfinder/prepare/quarantine.jsonl")
"""The quarantined records of a run that fails because of their number."""


@stage
def main(*, part: Annotated[str, "do only this part of the work, for example 2/3"] = "") -> None:
    """Run the stage."""
    params = load_params()
    catalogue, preset = {source.name for source in params.download.sources}, params.prepare.preset
    sources = open_sources(RAW / name for name in READERS if name in catalogue)
    parts = conversion_parts(sources, preset)
    if part:
        write_part(parts, Part.parse(part), sources, preset)
        return
    finished = FinishedBatches(parts.collect(), preset)
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    keys: list[pyarrow.Table] = []
    with table_writers(STEPS_FOLDER, SCHEMAS, {"quarantine": KEPT}) as tables:
        for source in sources:
            for name, found in convert_source(source, params.prepare, tables, keys, finished.work).items():
                counts[name] += found
    figures = Prepare(
        **dict(sum(counts.values(), Counts()).figures()),
        **repeat_figures(keys),
        sources={source: found.figures() for source, found in counts.items()},
        trajectories=tables["trajectories"].rows,
        preset=preset,
    )
    write_metrics(METRICS, figures)
    parts.clear()


if __name__ == "__main__":
    main()
