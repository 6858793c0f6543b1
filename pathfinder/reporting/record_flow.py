"""The path of every record from stage to stage: a chart, a table, and a check that the counts balance.

A record keeps its source from the upstream line to the training samples. The label stage passes on every record and the
filter drops the unlabelled ones. The chart shows those as lost at labelling only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathfinder.pages.page import Block, Figure, Table, Text
from pathfinder.pages.svg import Station, flow_chart
from pathfinder.reporting.cells import figures
from pathfinder.reporting.names import MISSING
from pathfinder.reporting.origins import SUM, made, said
from pathfinder.reporting.results import Metrics, Results

_NAMES = {"prm800k": "PRM800K", "rlhflow_mistral": "RLHFlow-Mistral", "math_shepherd": "Math-Shepherd"}
_SAMPLES = 2  # a record is two samples of the published training: first labels masked, then correctness
_MEANINGS = {
    "not_sampled": "only the judge could label it, and the profile asks the judge about a sample",
    "unrated": "the source has no rating",
    "disagrees": "the judge contradicted the rating on every attempt",
    "unparsed": "no answer of the judge could be read",
    "overlap": "a benchmark has the problem",
    "excluded": "the list of exclusions names it",
    "mix": "not chosen for the largest mix of sources",
    "limit": "not chosen within the profile's limit of records",
}
"""The reasons that a reader meets most, in the order of the stages."""

Stages = Mapping[str, Metrics | None]


def source_name(source: str) -> str:
    """A source's published name."""
    return _NAMES.get(source, source)


def accounting(results: Results) -> list[Block]:
    """A chart and two tables, and whether each stage's counts balance and match those of the previous stage."""
    stages = results.stages
    if not any(stages.values()):
        return [Text(f"{MISSING}: run the prepare stage.")]
    blocks: list[Block] = []
    present = {name: metrics for name, metrics in stages.items() if metrics is not None}
    if unbalanced := [name for name, m in present.items() if m["read"] != m["kept"] + sum(_lost(m).values())]:
        blocks.append(Text(f"The counts do not balance at: {', '.join(unbalanced)}.", is_notice=True))
    if broken := _between(stages):
        blocks.append(Text(f"The counts do not match between stages: {'; '.join(broken)}.", is_notice=True))
    if not blocks and all(stages.values()):
        blocks.append(Text("The counts balance: each stage accounts for all records that the previous one kept."))
    if (prepare := stages["prepare"]) is not None and "lines" in prepare:
        counts = [prepare["lines"][key] for key in ("read", "quarantined")]
        text = "{:,} upstream lines were read and {:,} of them quarantined. The other lines contain the records below."
        blocks.append(Text(said(text.format(*counts), counts)))
    flow = stations(stages)
    words = ". ".join(f"{one.name}: {_named_counts(one.bands)}; {_reasons(one.left) or 'none left'}" for one in flow)
    numbers = [count for one in flow for part in (one.bands, one.left) for count in part.values()]
    text = said(words or "No stage has run.", numbers)
    blocks.append(Figure(flow_chart(flow), text, "Records by source, upstream to training."))
    blocks.append(_table(stages))
    met = {reason for metrics in present.values() for reason in metrics["dropped"]}
    if known := [f"{reason}: {meaning}" for reason, meaning in _MEANINGS.items() if reason in met]:
        blocks.append(Text(f"Reasons. {'; '.join(known)}."))
    if (build := stages["build"]) is not None:
        blocks.append(_split(build))
    return blocks


def stations(stages: Stages) -> list[Station]:
    """The stations of the flow; those of stages that have not run are left out."""
    prepare, label, filtered, gates, build = (stages[n] for n in ("prepare", "label", "filter", "validate", "build"))
    found = []
    if prepare:
        found.append(Station("read upstream", _bands(prepare, "read"), _lost(prepare)))
        found.append(Station("prepared", _bands(prepare, "kept"), _lost(label)))
    if label:
        unlabelled = _lost(label)
        dropped = {k: (n, unlabelled.get(k, 0)) for k, n in _lost(filtered).items()}
        rest = {k: made("difference", n - before, [n, before]) for k, (n, before) in dropped.items() if n > before}
        found.append(Station("labelled (rating or judge)", _bands(label, "kept"), rest))
    if filtered:
        found.append(Station("consistent", _bands(filtered, "kept"), _lost(gates)))
        if gates and gates["kept"]:
            found.append(Station("past the gates", _bands(filtered, "kept"), _lost(build)))
    if build:
        train, test = build["train"], build["test"]
        sources = {**train["sources"], **test["sources"]}
        pairs = {source: [side["sources"].get(source, 0) for side in (train, test)] for source in sources}
        both = {source: made(SUM, sum(pair), pair) for source, pair in pairs.items()}
        found.append(Station("built", _named(both), {"held out for testing": test["records"]}))
        samples = f"{_SAMPLES * train['records']:,} samples, {_SAMPLES} per record"
        found.append(Station("for training", _named(train["sources"]), {}, samples))
    return found


def _named(sources: Mapping[str, int]) -> dict[str, int]:
    named: dict[str, int] = {}
    for source in sorted(sources, key=lambda source: (source != "prm800k", source)):
        name, count = source_name(source), sources[source]
        named[name] = made(SUM, named[name] + count, [named[name], count]) if name in named else count
    return named


def _bands(metrics: Metrics, key: str) -> dict[str, int]:
    sources = metrics.get("sources")
    return _named({s: found[key] for s, found in sources.items()}) if sources else {"all sources": metrics[key]}


def _lost(metrics: Metrics | None) -> dict[str, int]:
    """Lost records by reason."""
    if metrics is None:
        return {}
    quarantined = {f"{reason} (quarantined)": count for reason, count in metrics["quarantined"].items()}
    return {reason: count for reason, count in {**metrics["dropped"], **quarantined}.items() if count}


def _between(stages: Stages) -> list[str]:
    """Counts that differ from one stage to the next."""
    pairs: list[tuple[str, Any, Any]] = []
    label, filtered, build = stages["label"], stages["filter"], stages["build"]
    for first, key, second in (
        ("prepare", "kept", "label"),
        ("label", "read", "filter"),
        ("filter", "kept", "validate"),
        ("validate", "kept", "build"),
        ("build", "kept", "validate_train"),
    ):
        if (before := stages[first]) and (after := stages[second]):
            pairs.append((f"{first} {key} and {second} read", before[key], after["read"]))
    if label and filtered:
        for reason, count in label["dropped"].items():
            pairs.append((f"label and filter dropped as {reason}", count, filtered["dropped"].get(reason, 0)))
    if build:
        sides = build["train"]["records"] + build["test"]["records"]
        pairs.append(("build kept and its two sides contain", build["kept"], sides))
    return [f"{name} ({left:,} and {right:,})" for name, left, right in pairs if left != right]


def _table(stages: Stages) -> Table:
    rows: list[tuple[str, ...]] = []
    whole: set[int] = set()
    for name, metrics in stages.items():
        whole.add(len(rows))
        if metrics is None:
            rows.append((name, "", *[MISSING] * 4, ""))
            continue
        rows.append((name, "all", *_row(metrics)))
        rows += [(name, source_name(source), *_row(found)) for source, found in metrics.get("sources", {}).items()]
    headers = ("stage", "source", "read", "kept", "dropped", "quarantined", "reasons")
    caption = "Records (rated steps) by stage and source. Read = kept + dropped + quarantined."
    return Table(caption, headers, rows, frozenset(whole))


def _row(metrics: Metrics) -> tuple[str, ...]:
    parts = [metrics.get(key, {}) for key in ("dropped", "quarantined")]
    lost = [made(SUM, sum(part.values()), [part]) for part in parts]
    reasons = _lost(metrics)
    return *figures([metrics["read"], metrics["kept"], *lost], ","), said(_reasons(reasons), reasons.values())


def _split(build: Metrics) -> Table:
    rows = []
    for side in ("train", "test"):
        found = build[side]
        samples = made(f"{_SAMPLES} times the copy", _SAMPLES * found["records"], [found["records"]])
        counts = figures([found["trees"], found["problems"], found["records"], samples], ",")
        sources = _named(found["sources"])
        rows.append((side, *counts, said(_named_counts(sources), sources.values())))
    headers = ("side", "trees", "problems", "records", "samples", "records by source")
    return Table("Split by problem. A problem and its near duplicates are on one side.", headers, rows)


def _named_counts(bands: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in bands.items()) or "none"


def _reasons(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(lost.items(), key=lambda p: (-p[1], p[0])))
