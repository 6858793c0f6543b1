"""Check the data against expectations; the stage fails if one is not met.

Reads   artifacts/{steps,labels,clean}; params: validate
Writes  reports/validation/{validation.json,index.html}, metrics/validate.json
Run     python -m stages.validate

``python -m stages.validate train`` checks the training set, between build and training: it reads
artifacts/{train,steps,clean} and metrics/build.json, and writes reports/validation_train and
metrics/validate_train.json.

The error of a failed stage names expectation, file, number of rows and example ids; the report is written in any case.
Great Expectations' Data Docs, which load scripts from the network, are written to .pathfinder/data_docs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pathfinder.core.io import DataError, atomic_folder, read_json, read_parquet, write_json, write_text
from pathfinder.core.params import Validate, load_params
from pathfinder.core.progress import Progress
from pathfinder.gates.checker import Checker
from pathfinder.gates.gates import Result, Suite
from pathfinder.gates.outcome import failure, metrics_of, outcome_of, outcome_page
from pathfinder.gates.suites import SCHEMAS, Tables, agreement, contents, file_of, shares, structure
from pathfinder.gates.train_suites import SIDES, TRAIN_SCHEMAS, train_contents
from pathfinder.provenance.stage import stage

BUILD = Path("metrics/build.json")
DOCS = Path(".pathfinder")


@dataclass(frozen=True, slots=True)
class Validation:
    """One use of the stage: the tables to read, the schemas of those to check, and the suites of their rows."""

    stage: str
    read: tuple[str, ...]
    schemas: Mapping[str, Mapping[str, Any]]
    contents: Callable[[Tables, Validate], Iterable[Suite]]
    suites: int  # how many ``contents`` yields
    figures: Callable[[Tables], tuple[int, dict[str, Any]]]  # the number of records, and further metrics


def _train_contents(tables: Tables, bounds: Validate) -> Iterable[Suite]:
    return train_contents(tables, int(read_json(BUILD)["kept"]), bounds)


def _train_figures(tables: Tables) -> tuple[int, dict[str, Any]]:
    return sum(int(tables[side]["branches"].list.len().sum()) for side in SIDES), {}


def _figures(tables: Tables) -> tuple[int, dict[str, Any]]:
    by_rating = {name: {"judged": judged, "share": share} for name, judged, share in agreement(tables).iter_rows()}
    return len(tables["clean"]), {"shares": shares(tables), "agreement": by_rating}


LABELLED = Validation("validate", tuple(SCHEMAS), SCHEMAS, contents, 8, _figures)
TRAIN_TABLES = (*SIDES, "trajectories", "steps", "clean")
TRAIN = Validation("validate_train", TRAIN_TABLES, TRAIN_SCHEMAS, _train_contents, 6, _train_figures)


def _checked(checker: Checker, label: str, total: int, suites: Iterable[Suite]) -> list[Result]:
    with Progress(label, total, "suites") as progress:
        return checker.run(suites, lambda name: progress.advance(note=name))


@stage
def main(what: Literal["labelled", "train"] = "labelled") -> None:
    """Run the stage."""
    work = TRAIN if what == "train" else LABELLED
    report = Path("reports") / work.stage.replace("validate", "validation")
    bounds = load_params().validate_
    tables = {name: read_parquet(Path(file_of(name))) for name in work.read}
    checker = Checker()
    results = _checked(checker, f"{work.stage} structure", len(work.schemas), structure(tables, work.schemas))
    complete = all(result.passed for result in results)
    if complete:
        results += _checked(checker, work.stage, work.suites, work.contents(tables, bounds))
    checker.write_docs(DOCS / work.stage.replace("validate", "data_docs"))
    outcome = outcome_of(results, {name: tables[name] for name in work.schemas})
    with atomic_folder(report) as folder:
        write_json(folder / "validation.json", outcome)
        write_text(folder / "index.html", outcome_page(outcome))
    records, figures = work.figures(tables) if complete else (0, {})
    write_json(Path(f"metrics/{work.stage}.json"), metrics_of(results, records) | figures)
    if error := failure(results, report):
        raise DataError(error)


if __name__ == "__main__":
    main()
