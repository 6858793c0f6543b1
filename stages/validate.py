"""Gate the data: every expectation about steps, labels and clean records holds, or nothing is built on them.

Reads   artifacts/{steps,labels,clean}; params: validate
Writes  reports/validation/{validation.json,index.html}, metrics/validate.json
Run     python -m stages.validate

A broken gate ends the stage with an error that names expectation, file, number of rows and example ids; the report is
written all the same. Great Expectations' own Data Docs (they load scripts from the network) go to
.pathfinder/data_docs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from stages.core.gates import Result, check
from stages.core.io import DataError, atomic_folder, read_parquet, write_json, write_text
from stages.core.params import load_params
from stages.core.progress import Progress
from stages.core.suites import SCHEMAS, contents, file_of, shares, structure
from stages.core.validation_page import validation_page
from stages.lineage.record import recorded

REPORT = Path("reports/validation")
METRICS = Path("metrics/validate.json")
DOCS = Path(".pathfinder/data_docs")
_SHOWN = 20


def outcome(results: Sequence[Result], tables: dict[str, pl.DataFrame]) -> dict[str, Any]:
    """The results for machines: no time, no order but the suites' own."""
    return {
        "success": all(result.passed for result in results),
        "rows": {file_of(name): len(table) for name, table in tables.items()},
        "gates": [asdict(result) for result in results],
    }


def metrics(results: Sequence[Result], tables: dict[str, pl.DataFrame], complete: bool) -> dict[str, Any]:
    """Accounting (the gate lets all or nothing through) and the figures that have bounds."""
    records, success = len(tables["clean"]), all(result.passed for result in results)
    return {
        "success": success,
        "read": records,
        "kept": records if success else 0,
        "dropped": {} if success else {"gate failed": records},
        "quarantined": {},
        "gates": len(results),
        "gates_failed": sum(not result.passed for result in results),
        "shares": asdict(shares(tables)) if complete else None,
    }


def refusal(failed: Sequence[str], gates: int) -> str:
    """The error of a stage that blocks: every broken gate, up to a screenful, and the remedy."""
    more = [f"… and {len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else []
    remedy = (
        f"All of them: {REPORT}/index.html. Mend the stage that wrote the file, or, if the data is right and a "
        "bound is not, change it under `validate` in params.yaml; then run `dvc repro`."
    )
    return "\n".join([f"{len(failed)} of {gates} gates failed:", *failed[:_SHOWN], *more, remedy])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    bounds = load_params().validate_
    with recorded("validate"), Progress("validate", 2 * len(SCHEMAS) + 1, "suites") as progress:
        tables = {name: read_parquet(Path(file_of(name))) for name in SCHEMAS}
        results = check(structure(tables), DOCS, lambda name: progress.advance(note=name))
        complete = all(result.passed for result in results)
        if complete:
            results += check(contents(tables, bounds), DOCS, lambda name: progress.advance(note=name))
        found = outcome(results, tables)
        with atomic_folder(REPORT) as folder:
            write_json(folder / "validation.json", found)
            write_text(folder / "index.html", validation_page(found))
        write_json(METRICS, metrics(results, tables, complete))
        if failed := [str(result) for result in results if not result.passed]:
            raise DataError(refusal(failed, len(results)))


if __name__ == "__main__":
    main()
