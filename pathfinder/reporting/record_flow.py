"""Where every record went: the drawing, the table and the balance of the books from stage to stage.

A record keeps its source from the upstream line to the training samples. The label stage passes every record on, with
or without a label; the filter is what drops those without, so their losses are drawn at labelling and not twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathfinder.pages.page import Block, Figure, Table, Text
from pathfinder.pages.svg import Station, flow_chart
from pathfinder.reporting.results import MISSING, Metrics, Results

_NAMES = {
    "prm800k": "PRM800K",
    "rlhflow_mistral": "RLHFlow-Mistral",
    "math_shepherd": "Math-Shepherd",
}
_SAMPLES = 2  # a record is two samples of the published training: first labels masked, then correctness


def source_name(source: str) -> str:
    """A source by its own name."""
    return _NAMES.get(source, source)


def accounting(results: Results) -> list[Block]:
    """A drawing and two tables; whether each stage balances, and reads what the one before kept."""
    stages = results.stages
    blocks: list[Block] = []
    unbalanced = [name for name, metrics in stages.items() if metrics is not None and not _balances(metrics)]
    if unbalanced:
        blocks.append(Text(f"The books do not balance at: {', '.join(unbalanced)}.", is_notice=True))
    if broken := _between(stages):
        blocks.append(Text(f"The books do not balance between stages: {'; '.join(broken)}.", is_notice=True))
    if not unbalanced and not broken and all(stages.values()):
        blocks.append(Text("The books balance: each stage reads what the one before kept, and accounts for all of it."))
    blocks += _lines(stages["prepare"])
    flow = stations(stages)
    words = ". ".join(f"{one.name}: {_counts(one.bands)}; {_reasons(one.left) or 'none left'}" for one in flow)
    blocks.append(Figure(flow_chart(flow), words or "No stage has run.", "Records by source, from line to training."))
    blocks.append(_table(stages))
    if (build := stages["build"]) is not None:
        blocks.append(_split(build))
    return blocks


def stations(stages: Mapping[str, Metrics | None]) -> list[Station]:
    """The stations of the flow, as far as the stages have run."""
    prepare, label, filtered, gates, build = (
        stages[name] for name in ("prepare", "label", "filter", "validate", "build")
    )
    if prepare is None:
        return []
    found = [Station("read upstream", _bands(prepare, "read"), _lost(prepare))]
    found.append(Station("prepared", _bands(prepare, "kept"), _lost(label)))
    if label is None:
        return found
    unlabelled = _lost(label)
    rest = {k: n - unlabelled.get(k, 0) for k, n in _lost(filtered).items() if n > unlabelled.get(k, 0)}
    found.append(Station("labelled (rating or judge)", _bands(label, "kept"), rest))
    if filtered is None:
        return found
    found.append(Station("consistent", _bands(filtered, "kept"), _lost(gates)))
    if gates is None or not gates["kept"]:
        return found
    found.append(Station("past the gates", _bands(filtered, "kept"), _lost(build)))
    if build is None:
        return found
    train, test = build["train"], build["test"]
    both = {s: train["sources"].get(s, 0) + test["sources"].get(s, 0) for s in {**train["sources"], **test["sources"]}}
    found.append(Station("built", _named(both), {"held out for testing": test["records"]}))
    samples = f"{_SAMPLES * train['records']:,} samples, {_SAMPLES} a record"
    return [*found, Station("for training", _named(train["sources"]), {}, samples)]


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    named: dict[str, int] = {}
    for source in sorted(counts, key=lambda source: (source != "prm800k", source)):
        named[source_name(source)] = named.get(source_name(source), 0) + counts[source]
    return named


def _bands(metrics: Metrics, key: str) -> dict[str, int]:
    sources = metrics.get("sources")
    return _named({s: found[key] for s, found in sources.items()}) if sources else {"all sources": metrics[key]}


def _lost(metrics: Metrics | None) -> dict[str, int]:
    """Records that left, by reason."""
    if metrics is None:
        return {}
    quarantined = {f"{reason} (quarantined)": count for reason, count in metrics["quarantined"].items()}
    return {reason: count for reason, count in {**metrics["dropped"], **quarantined}.items() if count}


def _balances(metrics: Metrics) -> bool:
    return bool(metrics["read"] == metrics["kept"] + sum(_lost(metrics).values()))


def _between(stages: Mapping[str, Metrics | None]) -> list[str]:
    """What one stage kept and the next did not read."""
    broken = []

    def same(said: str, left: Any, right: Any) -> None:
        if left != right:
            broken.append(f"{said} ({left:,} and {right:,})")

    prepare, label, filtered, gates, build = (
        stages[name] for name in ("prepare", "label", "filter", "validate", "build")
    )
    if prepare and label:
        same("prepare kept and label read", prepare["kept"], label["read"])
    if label and filtered:
        same("label read and filter read", label["read"], filtered["read"])
        for reason, count in label["dropped"].items():
            same(f"label and filter dropped as {reason}", count, filtered["dropped"].get(reason, 0))
    if filtered and gates:
        same("filter kept and validate read", filtered["kept"], gates["read"])
    if gates and build:
        same("validate kept and build read", gates["kept"], build["read"])
    if build:
        if final := stages["validate_train"]:
            same("build kept and validate_train read", build["kept"], final["read"])
        same("build kept and its two sides hold", build["kept"], build["train"]["records"] + build["test"]["records"])
    return broken


def _lines(prepare: Metrics | None) -> list[Block]:
    if prepare is None or "lines" not in prepare:
        return []
    read, bad = prepare["lines"]["read"], prepare["lines"]["quarantined"]
    return [Text(f"{read:,} upstream lines were read, {bad:,} of them quarantined; they hold the records below.")]


def _table(stages: Mapping[str, Metrics | None]) -> Table:
    rows: list[tuple[str, ...]] = []
    whole: set[int] = set()
    for name, metrics in stages.items():
        whole.add(len(rows))
        if metrics is None:
            rows.append((name, "", MISSING, MISSING, MISSING, MISSING, ""))
            continue
        rows.append((name, "all", *_row(metrics)))
        rows += [(name, source_name(source), *_row(found)) for source, found in metrics.get("sources", {}).items()]
    headers = ("stage", "source", "read", "kept", "dropped", "quarantined", "reasons")
    return Table("read = kept + dropped + quarantined, in records (rated steps).", headers, rows, frozenset(whole))


def _row(metrics: Metrics) -> tuple[str, ...]:
    counts = (
        metrics["read"],
        metrics["kept"],
        sum(metrics.get("dropped", {}).values()),
        sum(metrics.get("quarantined", {}).values()),
    )
    return *(f"{count:,}" for count in counts), _reasons(_lost(metrics))


def _split(build: Metrics) -> Table:
    rows = []
    for side in ("train", "test"):
        found = build[side]
        sources = _counts(_named(found["sources"]))
        counts = (found["trees"], found["problems"], found["records"], _SAMPLES * found["records"])
        rows.append((side, *(f"{count:,}" for count in counts), sources))
    headers = ("side", "trees", "problems", "records", "samples", "records by source")
    return Table("The split, by problem: no problem, and none near it, stands on both sides.", headers, rows)


def _counts(bands: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in bands.items()) or "none"


def _reasons(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(lost.items(), key=lambda p: (-p[1], p[0])))
