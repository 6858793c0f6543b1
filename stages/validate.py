"""Check the data against expectations; the stage fails if one is not met.

Reads   artifacts/{steps,labels,clean}; params: validate (train: mixes and prepare.preset as well)
Writes  reports/validation/{validation.json,index.html}, metrics/validate.json
Run     python -m stages.validate

``python -m stages.validate train`` checks the training set, between build and training: it reads
artifacts/{train,steps,clean} and metrics/build.json, and writes reports/validation_train and
metrics/validate_train.json.

The error of a failed stage names expectation, file, number of rows and example ids; the report is written in any case.
For tables that break a gate, Great Expectations' Data Docs go to .pathfinder/data_docs; they load scripts from the
network.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from evidence.record.stage import stage
from ground.io import DataError, atomic_folder, read_json, read_parquet, write_json, write_text
from ground.progress import Progress
from pathfinder.core.metrics import Agreement, write_metrics
from pathfinder.core.mixes import records_of
from pathfinder.core.params import load_params
from pathfinder.core.records import as_trained
from pathfinder.gates.checker import Checker
from pathfinder.gates.gates import Result, Suite
from pathfinder.gates.outcome import failure, metrics_of, outcome_of, outcome_page
from pathfinder.gates.suites import SCHEMAS, Tables, agreement, contents, file_of, shares, structure, without_answers
from pathfinder.gates.train_suites import SIDES, TRAIN_SCHEMAS, train_contents

BUILD = Path("metrics/build.json")
DOCS = Path(".pathfinder")


@stage
def main(what: Literal["labelled", "train"] = "labelled") -> None:
    """Run the stage."""
    params = load_params()
    is_train, bounds = what == "train", params.validate_
    name = "validate_train" if is_train else "validate"
    report = Path("reports") / name.replace("validate", "validation")
    schemas = TRAIN_SCHEMAS if is_train else SCHEMAS
    others = ("trajectories", "steps", "clean") if is_train else ()
    reduced = {"answers": without_answers}
    tables = {table: read_parquet(Path(file_of(table)), reduce=reduced.get(table)) for table in (*schemas, *others)}
    if is_train:
        trained = as_trained(tables["trajectories"], tables["steps"], params.prepare.preset)
        tables["trajectories"], tables["steps"] = trained
    checker = Checker()
    results = _checked(checker, f"{name} structure", len(schemas), structure(tables, schemas))
    records, figures = 0, dict[str, Any]()
    if all(result.passed for result in results):
        if is_train:
            kept = int(read_json(BUILD)["kept"])
            results += _checked(
                checker, name, 6 + (bounds.mix_tolerance > 0), train_contents(tables, kept, bounds, params.mixes)
            )
            records = sum(records_of(tables[side]) for side in SIDES)
        else:
            results += _checked(checker, name, 8, contents(tables, bounds))
            records, figures = len(tables["clean"]), _figures(tables)
    outcome = outcome_of(results, {table: tables[table] for table in schemas})
    with atomic_folder(report) as folder:
        write_json(folder / "validation.json", outcome)
        write_text(folder / "index.html", outcome_page(outcome))
    write_metrics(Path(f"metrics/{name}.json"), metrics_of(results, records, **figures))
    if error := failure(results, report):
        checker.write_docs(DOCS / name.replace("validate", "data_docs"))
        raise DataError(error)


def _checked(checker: Checker, label: str, total: int, suites: Iterable[Suite]) -> list[Result]:
    with Progress(label, total, "suites") as progress:
        return checker.run(suites, lambda name: progress.advance(note=name))


def _figures(tables: Tables) -> dict[str, Any]:
    rows = agreement(tables).iter_rows()
    by_rating = {name: Agreement(judged=judged, share=share) for name, judged, share in rows}
    return {"shares": shares(tables), "agreement": by_rating}


if __name__ == "__main__":
    main()
