"""Write the report: results with baselines and intervals, the paper's tables and ours, and an account of the data.

Reads   metrics/, artifacts/predictions, artifacts/raw/{processbench,prmbench,manifest.json},
        reports/validation{,_train}, infra/experiment/answers.json; params: profile, runs, baselines, critics, report
Writes  reports/report.{html,md}, reports/tables.json, reports/plots/, reports/cards/<run>.md, metrics/summary.json
Run     python -m stages.report

``python -m stages.report published`` is the stage of a profile without runs: it writes only the tables of published
PRMs, critics and the policy, to reports/published.{html,md,json}. ``python -m stages.report index`` is the stage
``index``, which follows every upstream line and step to the runs that used it (``pathfinder.reporting.index.write``).

Parts whose metrics do not exist yet are reported as missing. The page has no time stamp: same input, same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from evidence.record.stage import stage
from ground.io import atomic_folder, read_json, write_json, write_text
from pathfinder.core.hub import downloaded_sources
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.pages.page import files_of, to_html, to_markdown
from pathfinder.reporting.card import card_of
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.index.write import write_index
from pathfinder.reporting.names import CARDS, PUBLISHED, TABLES
from pathfinder.reporting.origins import digest_of_source
from pathfinder.reporting.page.contents import page_of, systems_only, with_files
from pathfinder.reporting.page.exports import plots_of, summary_of, tables_of
from pathfinder.reporting.results import load_results
from world.oracle import Truth

REPORTS, SUMMARY = Path("reports"), Path("metrics/summary.json")
_WITHOUT_DATA: dict[str, Any] = dict.fromkeys(
    ("prepare", "label", "filtered", "validated", "build", "train_validated", "truth")
)
GATES = {name: REPORTS / name / "validation.json" for name in ("validation", "validation_train")}


@stage
def main(which: Literal["report", "published", "index"] = "report") -> None:
    """Run the stage."""
    params = load_params()
    if which == "index":
        write_index(params)
        return
    results = load_results(Path("metrics"), parse_runs(params.runs), [*params.baselines, *params.critics])
    gates = {name: read_json(path) if path.exists() else None for name, path in GATES.items()}
    if which == "published":  # the folder may still have the data and gates of another profile
        gates, results = {}, replace(results, **_WITHOUT_DATA)
    evidence = Evidence(results, Path("artifacts/predictions"), Path("artifacts/raw"), params.report, Truth())
    page = page_of(evidence, params.profile, gates)
    if which == "published":
        page = systems_only(page)
    digests = {path: digest_of_source(path) for path in files_of(page)}

    tables = TABLES if which == "report" else PUBLISHED
    whole = with_files(page, digests, tables.as_posix(), params.profile)
    write_text(REPORTS / f"{which}.html", to_html(whole))
    write_text(REPORTS / f"{which}.md", to_markdown(whole))
    write_json(tables, tables_of(evidence, page, params.profile, digests))
    if which == "published":
        return
    write_json(SUMMARY, summary_of(evidence))
    with atomic_folder(REPORTS / "plots") as folder:
        for name, rows in plots_of(evidence).items():
            write_json(folder / f"{name}.json", rows)
    sources = downloaded_sources()
    with atomic_folder(CARDS) as folder:
        for run in results.runs:
            if run.name in results.train:
                write_text(folder / f"{run.name}.md", card_of(run, results, sources, evidence.is_toy))


if __name__ == "__main__":
    main()
