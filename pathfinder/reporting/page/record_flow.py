"""The path of every record from stage to stage: a chart, a table, and a check that the counts balance.

A record keeps its source from the upstream line to the training samples. The label stage passes on every record and the
filter drops the unlabelled ones. The chart shows those as lost at labelling only.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from pathfinder.core.metrics import Flow, Stage
from pathfinder.data.metrics import Build
from pathfinder.pages.page import Block, Figure, Table, Text
from pathfinder.pages.svg import Station, flow_chart
from pathfinder.reporting.cells import figures
from pathfinder.reporting.names import CAPTIONS, MISSING, TEXTS
from pathfinder.reporting.origins import SUM, made, said
from pathfinder.reporting.results import Results

_NAMES = {"prm800k": "PRM800K", "rlhflow_mistral": "RLHFlow-Mistral", "math_shepherd": "Math-Shepherd"}
_SAMPLES = 2  # a record is two samples of the published training: first labels masked, then correctness


def source_name(source: str) -> str:
    """A source's published name."""
    return _NAMES.get(source, source)


def accounting(results: Results) -> list[Block]:
    """A chart, two tables, and a sentence that says if the counts balance and match the previous stage's counts."""
    stages = results.stages
    if not any(stages.values()):
        return [Text(f"{MISSING}: run the prepare stage.")]
    blocks: list[Block] = []
    present = {name: stage for name, stage in stages.items() if stage is not None}
    if unbalanced := [name for name, stage in present.items() if stage.read != stage.kept + sum(stage.lost.values())]:
        blocks.append(Text(f"The counts do not balance at: {', '.join(unbalanced)}.", is_notice=True))
    if broken := _between(results):
        blocks.append(Text(f"The counts do not match between stages: {'; '.join(broken)}.", is_notice=True))
    if not blocks and all(stages.values()):
        blocks.append(Text("The counts balance: each stage accounts for all records that the previous one kept."))
    if results.prepare is not None and (lines := results.prepare.lines) is not None:
        counts = [lines.read, lines.quarantined]
        text = "{:,} upstream lines were read and {:,} of them quarantined. The other lines contain the records below."
        blocks.append(Text(said(text.format(*counts), counts)))
    flow = stations(results)
    words = ". ".join(f"{one.name}: {_named_counts(one.bands)}; {_reasons(one.left) or 'none left'}" for one in flow)
    numbers = [count for one in flow for part in (one.bands, one.left) for count in part.values()]
    text = said(words or "No stage has run.", numbers)
    blocks.append(Figure(flow_chart(flow), text, "Records by source, upstream to training."))
    blocks.append(_table(stages))
    met = {reason for stage in present.values() for reason in stage.dropped}
    if known := [f"{reason}: {meaning}" for reason, meaning in TEXTS["drop_reasons"].items() if reason in met]:
        blocks.append(Text(f"Reasons. {'; '.join(known)}."))
    if results.build is not None:
        blocks.append(_split(results.build))
    return blocks


def stations(results: Results) -> list[Station]:
    """The stations of the flow, without stages that have not run."""
    prepare, label, filtered = results.prepare, results.label, results.filtered
    gates, build = results.validated, results.build
    found = []
    if prepare:
        read = _named({source: flow.read for source, flow in prepare.sources.items()}) or {"all sources": prepare.read}
        found.append(Station("read upstream", read, prepare.lost))
        found.append(Station("prepared", _kept(prepare), label.lost if label else {}))
    if label:
        dropped = {k: (n, label.lost.get(k, 0)) for k, n in filtered.lost.items()} if filtered else {}
        rest = {k: made("difference", n - before, [n, before]) for k, (n, before) in dropped.items() if n > before}
        found.append(Station("labelled (rating or judge)", _kept(label), rest))
    if filtered:
        found.append(Station("consistent", _kept(filtered), gates.lost if gates else {}))
        if gates and gates.kept:
            found.append(Station("past the gates", _kept(filtered), build.lost if build else {}))
    if build:
        train, test = build.train, build.test
        sources = {**train.sources, **test.sources}
        pairs = {source: [side.sources.get(source, 0) for side in (train, test)] for source in sources}
        both = {source: made(SUM, sum(pair), pair) for source, pair in pairs.items()}
        found.append(Station("built", _named(both), {"held out for testing": test.records}))
        samples = f"{_SAMPLES * train.records:,} samples, {_SAMPLES} per record"
        found.append(Station("for training", _named(train.sources), {}, samples))
    return found


def _named(sources: Mapping[str, int]) -> dict[str, int]:
    named: dict[str, int] = {}
    for source in sorted(sources, key=lambda source: (source != "prm800k", source)):
        name, count = source_name(source), sources[source]
        named[name] = made(SUM, named[name] + count, [named[name], count]) if name in named else count
    return named


def _kept(stage: Stage) -> dict[str, int]:
    """The records that a stage kept, by source."""
    return _named({source: flow.kept for source, flow in stage.sources.items()}) or {"all sources": stage.kept}


def _between(results: Results) -> list[str]:
    """Counts that differ from one stage to the next."""
    pairs: list[tuple[str, int, int]] = []
    stages, label, filtered, build = results.stages, results.label, results.filtered, results.build
    for (first, before), (second, after) in pairwise(stages.items()):
        if before and after:
            # the label stage passes on every record
            key, count = ("read", before.read) if first == "label" else ("kept", before.kept)
            pairs.append((f"{first} {key} and {second} read", count, after.read))
    if label and filtered:
        for reason, count in label.dropped.items():
            pairs.append((f"label and filter dropped as {reason}", count, filtered.dropped.get(reason, 0)))
    if build:
        pairs.append(("build kept and its two sides contain", build.kept, build.train.records + build.test.records))
    return [f"{name} ({left:,} and {right:,})" for name, left, right in pairs if left != right]


def _table(stages: Mapping[str, Stage | None]) -> Table:
    rows: list[tuple[str, ...]] = []
    whole: set[int] = set()
    for name, stage in stages.items():
        whole.add(len(rows))
        if stage is None:
            rows.append((name, "", *[MISSING] * 4, ""))
            continue
        rows.append((name, "all", *_row(stage)))
        rows += [(name, source_name(source), *_row(flow)) for source, flow in stage.sources.items()]
    headers = ("stage", "source", "read", "kept", "dropped", "quarantined", "reasons")
    return Table(CAPTIONS["records"], headers, rows, frozenset(whole))


def _row(flow: Flow) -> tuple[str, ...]:
    lost = [made(SUM, sum(part.values()), [part]) for part in (flow.dropped, flow.quarantined)]
    return *figures([flow.read, flow.kept, *lost], ","), said(_reasons(flow.lost), flow.lost.values())


def _split(build: Build) -> Table:
    rows = []
    for name, side in (("train", build.train), ("test", build.test)):
        samples = made(f"{_SAMPLES} times the copy", _SAMPLES * side.records, [side.records])
        counts = figures([side.trees, side.problems, side.records, samples], ",")
        sources = _named(side.sources)
        rows.append((name, *counts, said(_named_counts(sources), sources.values())))
    headers = ("side", "trees", "problems", "records", "samples", "records by source")
    return Table("Split by problem. A problem and its near duplicates are on one side.", headers, rows)


def _named_counts(bands: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in bands.items()) or "none"


def _reasons(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(lost.items(), key=lambda p: (-p[1], p[0])))
