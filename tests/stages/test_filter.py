from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ground.io import DataError, read_json, read_parquet, write_parquet
from pathfinder.core.records import CLEAN, DROPS, LABELS, STEPS
from stages.filter import main

# source, rating, (math, consistency, optimality) or an outcome -> correctness, or the reason of the drop
CASES = [
    ("prm800k", 1, (1, 1, 1), 1),
    ("prm800k", 0, (1, 1, 0), 0),
    ("prm800k", -1, (0, 1, 1), 0),
    ("prm800k", -1, (1, 1, 1), "disagrees"),
    ("prm800k", -1, "too_long", "too_long"),
    ("prm800k", None, "unrated", "unrated"),
    ("rlhflow_mistral", 1, (1, 1, 1), 1),
    ("rlhflow_mistral", 1, (1, 1, 0), "disagrees"),
    ("rlhflow_mistral", -1, (1, 1, 1), "disagrees"),
    ("rlhflow_mistral", -1, (1, 0, 1), 0),
    ("rlhflow_mistral", -1, "not_sampled", "not_sampled"),
    ("rlhflow_mistral", 1, "unparsed", "unparsed"),
]


def write_inputs() -> None:
    steps = [(f"r{n}", "t", source, 0, n, "s", rating) for n, (source, rating, _, _) in enumerate(CASES)]
    labels = []
    for n, (_, _, said, _) in enumerate(CASES):
        scores = said if isinstance(said, tuple) else (None, None, None)
        labels.append((f"r{n}", *scores, "judge", said if isinstance(said, str) else "parsed", 1))
    write_parquet(Path("artifacts/steps/steps.parquet"), pl.DataFrame(steps, schema=STEPS, orient="row"))
    write_parquet(Path("artifacts/labels/labels.parquet"), pl.DataFrame(labels[::-1], schema=LABELS, orient="row"))


def test_every_rule_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs()
    main()
    clean = read_parquet(Path("artifacts/clean/clean.parquet"), CLEAN)
    drops = read_parquet(Path("artifacts/clean/drops.parquet"), DROPS)
    decided = dict(clean.select("id", "correctness").iter_rows()) | dict(drops.iter_rows())
    assert decided == {f"r{n}": expected for n, (_, _, _, expected) in enumerate(CASES)}
    assert clean["id"].to_list() == [f"r{n}" for n, case in enumerate(CASES) if isinstance(case[3], int)]
    metrics = read_json(Path("metrics/filter.json"))
    assert metrics["read"] == len(CASES) == metrics["kept"] + sum(metrics["dropped"].values())
    assert metrics["dropped"] == {"disagrees": 3, "too_long": 1, "unrated": 1, "not_sampled": 1, "unparsed": 1}
    assert metrics["quarantined"] == {}
    assert sum(source["read"] for source in metrics["sources"].values()) == len(CASES)


def test_labels_of_another_table_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs()
    labels = pl.read_parquet("artifacts/labels/labels.parquet")
    write_parquet(Path("artifacts/labels/labels.parquet"), labels.head(5))
    with pytest.raises(DataError, match="5 labels for 12 steps"):
        main()
    more = pl.concat([labels, labels.head(1).with_columns(id=pl.lit("of no step"))])
    for others in (more, more.tail(12)):
        write_parquet(Path("artifacts/labels/labels.parquet"), others)
        with pytest.raises(DataError, match=f"{len(others)} labels for 12 steps"):
            main()
    write_parquet(Path("artifacts/labels/labels.parquet"), pl.concat([labels, labels.head(1)]))
    with pytest.raises(DataError, match="ids repeat"):
        main()
