"""Gate the data: every expectation about them holds, or nothing is built on them.

Reads   artifacts/{steps,labels,clean}; params: validate
Writes  reports/validation/{validation.json,index.html}, metrics/validate.json
Run     python -m stages.validate

``python -m stages.validate train`` is the gate between build and training: it reads artifacts/{train,steps,clean} and
metrics/build.json, and writes reports/validation_train and metrics/validate_train.json.

A broken gate ends the stage with an error that names expectation, file, number of rows and example ids; the report is
written all the same. Great Expectations' own Data Docs (they load scripts from the network) go to
.pathfinder/data_docs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pathfinder.core.io import DataError, atomic_folder, read_json, read_parquet, write_json, write_text
from pathfinder.core.params import Validate, load_params
from pathfinder.core.progress import Progress
from pathfinder.gates.gates import Checker, Result, Suite
from pathfinder.gates.suites import SCHEMAS, agreement, contents, file_of, shares, structure
from pathfinder.gates.train_suites import SIDES, TRAIN_SCHEMAS, train_contents
from pathfinder.gates.validation_page import validation_page
from pathfinder.provenance.stage import stage

DOCS = Path(".pathfinder")
_SHOWN = 20

Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Gated:
    """One use of the stage: what is read, which of it is gated, and where the outcome goes."""

    stage: str
    read: tuple[str, ...]
    schemas: Mapping[str, Mapping[str, Any]]
    contents: Callable[[Tables, Validate], Iterable[Suite]]
    suites: int  # how many contents yields
    figures: Callable[[Tables], dict[str, Any]]
    records: Callable[[Tables], int]

    @property
    def report(self) -> Path:
        """The folder of the report."""
        return Path("reports") / self.stage.replace("validate", "validation")

    @property
    def metrics(self) -> Path:
        """The file of the figures."""
        return Path("metrics") / f"{self.stage}.json"


def _train_contents(tables: Tables, bounds: Validate) -> list[Suite]:
    return train_contents(tables, tables, int(read_json(BUILD)["kept"]), bounds)


def _figures(tables: Tables) -> dict[str, Any]:
    found = agreement(tables).rename({"rating": "name"})
    by_rating = {name: {"judged": judged, "share": share} for name, judged, share in found.iter_rows()}
    return {"shares": asdict(shares(tables)), "agreement": by_rating}


BUILD = Path("metrics/build.json")
LABELLED = Gated("validate", tuple(SCHEMAS), SCHEMAS, contents, 8, _figures, lambda tables: len(tables["clean"]))
TRAINING = Gated(
    "validate_train",
    (*SIDES, "trajectories", "steps", "clean"),
    TRAIN_SCHEMAS,
    _train_contents,
    6,
    lambda tables: {},
    lambda tables: sum(int(tables[side]["branches"].list.len().sum()) for side in SIDES),
)


def outcome(results: Sequence[Result], tables: Tables) -> dict[str, Any]:
    """The results for machines: no time, no order but the suites' own."""
    return {
        "success": all(result.passed for result in results),
        "rows": {file_of(name): len(table) for name, table in tables.items()},
        "gates": [asdict(result) for result in results],
    }


def metrics(results: Sequence[Result], records: int) -> dict[str, Any]:
    """Accounting: the gate lets all or nothing through."""
    success = all(result.passed for result in results)
    return {
        "success": success,
        "read": records,
        "kept": records if success else 0,
        "dropped": {} if success else {"gate failed": records},
        "quarantined": {},
        "gates": len(results),
        "gates_failed": sum(not result.passed for result in results),
    }


def refusal(failed: Sequence[str], gates: int, report: Path) -> str:
    """The error of a stage that blocks: every broken gate, up to a screenful, and the remedy."""
    more = [f"… and {len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else []
    remedy = (
        f"All of them: {report}/index.html. Mend the stage that wrote the file, or, if the data is right and a "
        "bound is not, change it under `validate` in params.yaml; then run `dvc repro`."
    )
    return "\n".join([f"{len(failed)} of {gates} gates failed:", *failed[:_SHOWN], *more, remedy])


@stage
def main(what: Literal["labelled", "train"] = "labelled") -> None:
    """Run the stage."""
    gated = TRAINING if what == "train" else LABELLED
    bounds = load_params().validate_
    tables = {name: read_parquet(Path(file_of(name))) for name in gated.read}
    checker = Checker()
    results = _checked(checker, f"{gated.stage} structure", len(gated.schemas), structure(tables, gated.schemas))
    complete = all(result.passed for result in results)
    if complete:
        results += _checked(checker, gated.stage, gated.suites, gated.contents(tables, bounds))
    checker.write_docs(DOCS / gated.stage.replace("validate", "data_docs"))
    found = outcome(results, {name: tables[name] for name in gated.schemas})
    with atomic_folder(gated.report) as folder:
        write_json(folder / "validation.json", found)
        write_text(folder / "index.html", validation_page(found))
    figures = gated.figures(tables) if complete else {}
    write_json(gated.metrics, metrics(results, gated.records(tables) if complete else 0) | figures)
    if failed := [str(result) for result in results if not result.passed]:
        raise DataError(refusal(failed, len(results), gated.report))


def _checked(checker: Checker, label: str, total: int, suites: Iterable[Suite]) -> list[Result]:
    with Progress(label, total, "suites") as progress:
        return checker.run(suites, lambda name: progress.advance(note=name))


if __name__ == "__main__":
    main()
