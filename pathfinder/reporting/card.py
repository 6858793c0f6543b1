"""The card of a model in the Hub's form: Markdown with a YAML header that has a ``model-index``.

Source: the model card specification of the Hub (huggingface_hub, ``ModelCardData`` and ``EvalResult``). The header is
plain YAML, and ``pathfinder publish`` has it read by those classes. The card has no date and no digest of a record, so
equal metric files give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathfinder.core.labels import FOLDERS
from pathfinder.core.metrics import Measured
from pathfinder.core.readings import DEFINITION
from pathfinder.core.runs import Run
from pathfinder.pages.origins import origin_of
from pathfinder.pages.page import as_markdown_cell, as_markdown_text, markdown_table
from pathfinder.reporting.names import MISSING, PRMBENCH, PROCESSBENCH, SEARCH, TEXTS, Benchmark, name_of
from pathfinder.reporting.results import Results
from pathfinder.training import card

Manifest = Mapping[str, Mapping[str, Any]]
TOY = " (toy: generated stories)"
DATASETS = {PROCESSBENCH: "ProcessBench", PRMBENCH: "PRMBench", SEARCH: "search problems"}
_READINGS = {
    DEFINITION: "by class: quality or soundness",
    "soundness": "soundness",
    "quality": "quality",
    "official": "as published",
}
"""The names of the readings by their key in metric files; the card explains them."""
_TASK = {"type": card.TASK, "name": "errors and correctness of the steps of a solution"}
_HUB, _BASE, _JUDGE = "hub", "models/base", "models/judge"


@dataclass(frozen=True, slots=True)
class Figure:
    """One result in percent. ``part`` is a subset or category, or empty; ``place`` is ``file#pointer``.

    ``kind`` is the metric's identifier, ``rule`` the reading in words, and ``note`` what sets the items apart from the
    whole benchmark, if anything does.
    """

    benchmark: Benchmark
    part: str
    kind: str
    name: str
    rule: str
    value: float
    place: str
    note: str


def card_of(run: Run, results: Results, manifest: Manifest, is_toy: bool) -> str:
    """The card of a trained run; ``manifest`` describes the sources (artifacts/raw/manifest.json).

    ``is_toy`` says that the benchmarks are generated. Raises ``KeyError`` for a run without training metrics.
    """
    trained, texts = results.train[run.name], TEXTS["model_card"]
    records = {FOLDERS.get(name, name): int(count) for name, count in trained.sources.items() if count}
    inputs = {name: manifest[name] for name in (*records, _BASE, _JUDGE) if name in manifest}
    figures = _figures_of(results, run.name, is_toy)
    columns = ("location", "revision", "licence")
    sources = (
        (name, f"{count:,}", *(str(inputs.get(name, {}).get(column) or "–") for column in columns))
        for name, count in records.items()
    )
    licences = "; ".join(f"{name}: {source['licence']}" for name, source in inputs.items())
    parts = [
        card.title(run),
        f"{card.what(run.variant)} This model is the variant “{name_of(run)}”, seed {run.seed}, data mix {run.mix}.",
        *([texts["toy"]] if is_toy else []),
        "## Scoring with it",
        card.TEXTS["scoring"],
        card.loading(run.variant),
        "## Training",
        f"{_base(inputs)} It learnt from {trained.train_records:,} labelled steps in "
        f"{trained.optimiser_steps:,} optimiser steps.",
        _table(("source", "steps", *columns), sources),
        card.TEXTS["labels"],
        "## Results of this model",
        texts["results"],
        _table(
            ("data set", "part", "figure", "reading", "percent", "place"),
            ((_dataset(f), f.part or "all", f.name, f.rule, f"{f.value:.1f}", f.place) for f in figures),
        )
        if figures
        else f"{MISSING}: the benchmarks have not run.",
        "## Licences",
        f"{as_markdown_text(licences or 'unknown')}. {card.TEXTS['duty']}",
        "## Limits",
        card.TEXTS["limits"],
    ]
    return card.joined(_metadata(run, inputs, figures, manifest), parts)


def _base(inputs: Manifest) -> str:
    base = inputs.get(_BASE)
    if base is None:
        return "The base model is not in the manifest of the sources."
    revision = f" at {base['revision']}" if base["revision"] else ""
    return as_markdown_text(f"The base model is {base['location']}{revision} (licence {base['licence']}).")


def _table(headers: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    return markdown_table(headers, [tuple(map(as_markdown_cell, row)) for row in rows])


def _dataset(figure: Figure) -> str:
    return DATASETS[figure.benchmark] + figure.note


def _metadata(run: Run, inputs: Manifest, figures: Sequence[Figure], manifest: Manifest) -> dict[str, Any]:
    """The header of the card."""
    licences = sorted({str(source["licence"]) for source in inputs.values()})
    single = len(licences) == 1 and licences[0] != "unknown"
    licence = {"license": licences[0].lower()} if single else card.SOURCES_LICENCE
    on_hub = {name: str(source["location"]) for name, source in inputs.items() if source["kind"] == _HUB}
    found = card.header(licence, on_hub.pop(_BASE, None))
    if data := [where.removeprefix("datasets/") for name, where in on_hub.items() if name != _JUDGE]:
        found["datasets"] = data
    if figures:
        found["model-index"] = [{"name": run.name, "results": _index(figures, manifest)}]
    return found


def _index(figures: Sequence[Figure], manifest: Manifest) -> list[dict[str, Any]]:
    """The results of the ``model-index``: one entry per data set and part, with a metric per decision rule."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for figure in figures:
        key = figure.benchmark.key
        dataset = _described(figure, manifest.get(key, {}))
        entry = entries.setdefault((key, figure.part), {"task": dict(_TASK), "dataset": dataset, "metrics": []})
        file, _, pointer = figure.place.partition("#")
        name = f"{figure.name} in percent ({figure.rule})"
        place = {"file": file, "pointer": pointer}
        entry["metrics"].append({"type": figure.kind, "value": figure.value, "name": name, "args": place})
    return list(entries.values())


def _described(figure: Figure, source: Mapping[str, Any]) -> dict[str, Any]:
    """The data set; only the whole benchmark has the Hub's name, because the Hub ranks its figures."""
    on_hub = source.get("kind") == _HUB and not figure.note
    own = figure.benchmark.key + "-toy" * (figure.note == TOY)
    kind = str(source["location"]).removeprefix("datasets/") if on_hub else own
    found: dict[str, Any] = {"name": _dataset(figure), "type": kind}
    found |= {"config": figure.part} if figure.part else {}
    return found | ({"revision": str(source["revision"])} if on_hub and source["revision"] else {})


def _figures_of(results: Results, run: str, is_toy: bool) -> list[Figure]:
    """The figures of a run, benchmark by benchmark; those that were not measured are left out."""
    files = results.benchmarks.items()
    notes = {bench: TOY if is_toy else _share(measured[run]) for bench, measured in files if run in measured}
    found = [
        Figure(benchmark, part, kind, name, rule, float(value), origin.of[0], notes[benchmark])
        for benchmark, part, kind, name, rule, value in _measured(results, run)
        if value is not None and (origin := origin_of(value)) is not None
    ]
    return sorted(found, key=lambda figure: (list(DATASETS).index(figure.benchmark), figure.part))


def _share(metrics: Measured) -> str:
    """The number of items that a limit kept; empty for a whole benchmark."""
    kept, left_out = metrics.kept or 0, metrics.dropped.get("limit", 0)
    return f" ({kept:,} of {kept + left_out:,} items)" if left_out else ""


def _measured(results: Results, run: str) -> Iterator[tuple[Benchmark, str, str, str, str, float | None]]:
    """The values of the fields of ``Figure`` up to ``value``."""
    processbench, prmbench, search = results.processbench.get(run), results.prmbench.get(run), results.search.get(run)
    for reading, words in _READINGS.items():
        if processbench and (of := processbench.readings.get(reading)):
            yield PROCESSBENCH, "", "f1", "mean F1", words, of.mean_f1
            for part, subset in of.subsets.items():
                yield PROCESSBENCH, part, "f1", "F1", words, subset.f1
        if prmbench and (read := prmbench.readings.get(reading)):
            for part, value in {"": read.overall, **read.categories}.items():
                yield PRMBENCH, part, "prmscore", "PRMScore", words, value
    if search:
        by = "" if search.reading in ("", SEARCH.reading) else f", by {search.reading}"
        words = f"guided search, highest reward per step{by}"
        yield SEARCH, "", "accuracy", "accuracy", words, search.average
        if best := search.best_of_n:
            words = f"best of {best.n} whole solutions by the minimum reward{by}"
            yield SEARCH, "", "accuracy", "accuracy", words, best.average.get("min")
