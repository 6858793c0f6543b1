from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from ground.io import DataError, read_parquet, write_json, write_parquet
from pathfinder.gates.suites import file_of, without_answers
from stages.validate import main
from tests.support.gate_tables import Tables, clean_tables, kept_records, set_values, train_tables


def write_tables(folder: Path, root: Path, tables: Tables) -> None:
    for name, table in tables.items():
        write_parquet(folder / file_of(name), table)
    params = (root / "params.yaml").read_text().replace("min_parsed_share: 0.9", "min_parsed_share: 0.5")
    (folder / "params.yaml").write_text(params)


def test_the_gate_before_training_blocks_and_counts_records(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = train_tables()
    write_tables(tmp_path, root, tables)
    monkeypatch.chdir(tmp_path)
    write_json(Path("metrics/build.json"), {"kept": kept_records(tables)})
    main(["train"])
    figures = json.loads(Path("metrics/validate_train.json").read_text())
    assert figures["read"] == figures["kept"] == kept_records(tables)
    write_json(Path("metrics/build.json"), {"kept": kept_records(tables) + 1})
    with pytest.raises(DataError, match="train and test hold what build kept"):
        main(["train"])
    assert Path("reports/validation_train/index.html").exists()


def test_the_stage_blocks_and_names_gate_file_rows_and_examples(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = clean_tables()
    tables["labels"] = set_values("math", 2, pl.col("origin") == "judge")(tables["labels"])
    write_tables(tmp_path, root, tables)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        main([])
    message = str(caught.value)
    assert "artifacts/labels/labels.parquet: ExpectColumnValuesToBeInSet" in message
    assert "20 of 40 rows break it" in message
    assert "prm800k-0123abcd-1-2-2" in message
    assert json.loads(Path("metrics/validate.json").read_text())["success"] is False
    pages = [page.read_text() for page in Path(".pathfinder/data_docs").rglob("*.html")]
    assert any("20 unexpected values" in page for page in pages)


@pytest.mark.campaign
def test_the_stage_writes_the_same_bytes_twice_and_no_markup_from_the_data(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path, root, clean_tables())
    monkeypatch.chdir(tmp_path)
    main([])
    files = [Path("reports/validation") / name for name in ("validation.json", "index.html")]
    first = [file.read_bytes() for file in files]
    main([])
    assert [file.read_bytes() for file in files] == first
    page = first[1].decode()
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    metrics = json.loads(Path("metrics/validate.json").read_text())
    assert metrics["success"] is True
    assert metrics["read"] == metrics["kept"] == len(clean_tables()["clean"])
    assert not Path(".pathfinder/data_docs").exists()


def test_the_texts_of_the_answers_are_not_kept_in_memory_and_missing_ones_are_found(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600,000 answers have 3.6 GiB."""
    tables = clean_tables()
    tables["answers"] = tables["answers"].with_columns(answer=pl.lit("x" * 10_000))
    write_tables(tmp_path, root, tables)
    monkeypatch.chdir(tmp_path)
    read = read_parquet(Path(file_of("answers")), reduce=without_answers)
    assert read.schema == tables["answers"].schema
    assert read.estimated_size() < 300 * len(read)
    main([])
    tables["answers"] = set_values("answer", None, pl.col("outcome") == "parsed")(tables["answers"])
    write_parquet(Path(file_of("answers")), tables["answers"])
    with pytest.raises(DataError, match=r"answers\.parquet: \w+ToNotBeNull"):
        main([])
