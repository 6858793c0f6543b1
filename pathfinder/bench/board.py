"""The work of the verb ``leaderboard``: the results in several folders of ``bench --predictions`` side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from math import nan
from pathlib import Path
from typing import Any

from ground.io import DataError, read_json, read_jsonl
from pathfinder.bench.evaluate import Selection
from pathfinder.bench.rows import ALL, RESULT, TABLES, WHOLE, Row
from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.evaluation import BenchmarkName
from pathfinder.benchmarks.paper import SIZES
from pathfinder.core.readings import DECLARED, OWN
from pathfinder.pages.page import Page, Section, Table, Text, to_html
from pathfinder.reporting.comparisons import System, compare, gather, on_prmbench, on_processbench

_MEASURES: dict[BenchmarkName, tuple[Any, str]] = {
    "processbench": (on_processbench, processbench.READING),
    "prmbench": (on_prmbench, prmbench.READING),
}
"""Each benchmark's way to measure predictions, and the reading that it asks a chat model for."""
ALONE = "Each interval above is about one difference: among many, some exclude zero by chance."
"""A note below several differences."""
Results = Mapping[str, tuple[dict[str, Any], list[Row]]]


def read_results(folders: Sequence[Path]) -> Results:
    """The content of each folder's ``bench.json``, and its rows; raises ``DataError`` for a folder without a result."""
    found = {}
    for folder in folders:
        if not (folder / RESULT).is_file():
            raise DataError(
                f"{folder}: no {RESULT}; give folders that `pathfinder bench MODEL --predictions FOLDER` wrote"
            )
        try:
            result = read_json(folder / RESULT)
            found[str(folder)] = result, [Row(**row) for row in result["rows"]]
        except (KeyError, TypeError) as error:
            raise DataError(f"{folder / RESULT}: no result of `pathfinder bench --predictions {folder}`") from error
    return found


def kept_results(
    folder: Path | None, model: str, identity: Mapping[str, Any], names: Collection[str]
) -> tuple[list[Row], float]:
    """The rows of an earlier result in ``folder`` on benchmarks other than ``names``, and the seconds that it took.

    Raises ``DataError`` if the result belongs to a different model, or to one of the name ``model`` with a different
    ``identity``.
    """
    if folder is None or not (folder / RESULT).exists():
        return [], 0.0
    ((result, rows),) = read_results([folder]).values()
    if result.get("model") != model:
        raise DataError(f"{folder / RESULT}: the result of {result.get('model')}; name another folder for {model}")
    if result.get("identity", identity) != identity:  # an older result has none
        raise DataError(
            f"{folder / RESULT}: the result of other weights or settings of {model}; name another folder for these"
        )
    kept = [row for row in rows if row.benchmark not in names]
    return kept, float(result["seconds"]) if kept else 0.0


def ranked(results: Results) -> list[dict[str, Any]]:
    """The figures of whole benchmarks in percent, the highest first, with the paper's if the numbers of items agree."""
    rows = [
        {"system": name, "source": result["model"], "seconds": result["seconds"], **asdict(row)}
        for name, (result, mine) in results.items()
        for row in mine
        if row.subset == ALL
    ]
    for name, size in {name: sum(sizes.values()) for name, sizes in SIZES.items()}.items():
        place = TABLES[name].columns.index(WHOLE[name])
        for one in TABLES[name].rows if any((row["benchmark"], row["n"]) == (name, size) for row in rows) else ():
            row = Row(name, "", ALL, "", size, one.values[place], nan, nan)
            rows.append({"system": one.name, "source": "published", "seconds": nan, **asdict(row)})
    return sorted(rows, key=lambda row: (row["benchmark"], -row["value"], row["system"]))


def differences(results: Results, data: Path) -> Iterator[str]:
    """A sentence per pair of systems with predictions on a benchmark: their difference by their main readings, if any.

    Raises ``DataError`` for a missing folder of a benchmark, and for predictions that ``bench`` did not write.
    """
    for name in _MEASURES:
        rules = {one: row.rule for one, (_, rows) in results.items() for row in reversed(rows) if row.benchmark == name}
        files = {one: file for one in rules if (file := Path(one, f"{name}.jsonl")).exists()}
        if len(files) < 2:
            continue
        items = Selection(data).read(name).items
        systems = {one: _system(name, items, file, rules[one]) for one, file in files.items()}
        yield from map(str, compare(systems, combinations(systems, 2), name, INTERVALS))
        for left, right in combinations(systems, 2):
            if systems[left].keys != systems[right].keys:
                yield f"{left} and {right} are not compared on {name}: they have predictions for different items."


def _system(name: BenchmarkName, items: Sequence[Any], file: Path, rule: str) -> System:
    measure, asked = _MEASURES[name]
    reading = rule if rule in DECLARED else asked if rule == "repaired" else OWN
    rows = [row for _, row in read_jsonl(file)]
    try:
        found = gather({0: measure(items, rows)}, INTERVALS, reading=reading)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: not predictions of `bench --predictions`; run it again") from error
    if found is None:
        raise DataError(f"{file}: its items differ from those in --data; name the folder that `bench` read")
    return found


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """A row as texts."""
    texts = {"benchmark": row["benchmark"], "system": row["system"], "reading": row["rule"], "%": f"{row['value']:.1f}"}
    texts["95 % interval"] = f"[{row['low']:.1f}, {row['high']:.1f}]".replace("[nan, nan]", "")
    seconds = f"{row['seconds']:.0f}".replace("nan", "")
    return {**texts, "n": f"{row['n']:,}", "seconds": seconds, "source": row["source"]}


def as_html(rows: Sequence[Mapping[str, Any]], told: Sequence[str]) -> str:
    """The table and the differences as a separate page."""
    texts = list(map(cells, rows))
    table = Table("In percent, by the reading of each row", list(texts[0]), [list(row.values()) for row in texts])
    return to_html(Page("Leaderboard", [table], [Section("Paired differences", list(map(Text, told)))]))
