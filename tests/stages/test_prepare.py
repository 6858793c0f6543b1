from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from ground.io import DataError, read_json, read_parquet, sha256_file
from pathfinder.core.records import QUARANTINE, STEPS, TRAJECTORIES
from pathfinder.data import conversion
from pathfinder.data.upstream import read_batches
from stages.prepare import main
from tests.support.stage_inputs import ROOT, prm800k_line, write_params, write_raw

OUT = Path("artifacts/steps")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path, prepare={"preset": "repaired", "max_quarantined_share": 0.2})
    write_raw(tmp_path)
    return tmp_path


def balanced(metrics: dict[str, object]) -> bool:
    dropped, quarantined = metrics["dropped"], metrics["quarantined"]
    assert isinstance(dropped, dict)
    assert isinstance(quarantined, dict)
    return metrics["read"] == sum([metrics["kept"], *dropped.values(), *quarantined.values()])


def test_every_record_is_kept_with_an_id_that_names_its_line(project: Path) -> None:
    main()
    steps = read_parquet(OUT / "steps.parquet", STEPS)
    trajectories = read_parquet(OUT / "trajectories.parquet", TRAJECTORIES)
    metrics = read_json(Path("metrics/prepare.json"))
    assert len(steps) == metrics["kept"] == metrics["read"] == 6 * 9
    assert steps["id"].n_unique() == len(steps)
    digest = sha256_file(Path("artifacts/raw/prm800k/phase1_train.jsonl"))[:8]
    record = steps.filter(pl.col("id") == f"prm800k-{digest}-3-1-1").row(0, named=True)
    assert (record["step"], record["rating"], record["step_index"]) == ("We said that.", 0, 1)
    trajectory = trajectories.filter(pl.col("trajectory_id") == record["trajectory_id"]).row(0, named=True)
    assert trajectory["problem"] == "What is 2 + 1?"
    assert trajectory["steps"] == ["We add 1 to 2.", "So it is 3."]
    assert (trajectory["file"], trajectory["line"]) == ("prm800k/phase1_train.jsonl", 3)


def test_equal_inputs_give_equal_bytes(project: Path) -> None:
    main()
    first = {path.name: path.read_bytes() for path in OUT.iterdir()}
    shutil.rmtree(OUT)
    main()
    assert {path.name: path.read_bytes() for path in OUT.iterdir()} == first


def test_worker_processes_write_the_same_bytes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("artifacts/raw/prm800k/phase1_train.jsonl")
    text = path.read_text()
    path.write_text("".join(text.replace("We add", f"{number} times we add") for number in range(600)) + "no JSON\n")
    assert len(list(read_batches(path))) > 1
    main()
    before = {path: path.read_bytes() for path in (*OUT.iterdir(), Path("metrics/prepare.json"))}
    monkeypatch.setattr(conversion, "_IN_PROCESS_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(200))
    started = list[int]()

    def pool(count: int, *more: Any, **named: Any) -> ProcessPoolExecutor:
        started.append(count)
        return ProcessPoolExecutor(2, *more, **named)

    monkeypatch.setattr(conversion, "ProcessPoolExecutor", pool)
    main()
    assert set(started) == {8}, "each worker takes memory, and one process feeds all"
    assert {path: path.read_bytes() for path in before} == before
    assert len(read_parquet(OUT / "quarantine.parquet", QUARANTINE)) == 1


def test_bad_lines_and_records_are_quarantined_with_position_and_reason(project: Path) -> None:
    path = Path("artifacts/raw/prm800k/phase1_train.jsonl")
    bad = prm800k_line("fine?", [("ok", 1)], [(None, 1), ("also", 1)])
    path.write_bytes(path.read_bytes() + b'{"question": \n' + json.dumps(bad).encode() + b"\n")
    main()
    quarantine = read_parquet(OUT / "quarantine.parquet", QUARANTINE)
    digest = sha256_file(path)[:8]
    assert quarantine.select("file", "line", "id", "reason").rows() == [
        ("prm800k/phase1_train.jsonl", 7, None, "not_json"),
        ("prm800k/phase1_train.jsonl", 8, f"prm800k-{digest}-8-1-0", "null_text"),
    ]
    metrics = read_json(Path("metrics/prepare.json"))
    assert metrics["quarantined"] == {"not_json": 1, "null_text": 1}
    assert metrics["lines"] == {"read": 14, "kept": 13, "quarantined": 1}
    assert balanced(metrics)
    assert all(balanced(source) for source in metrics["sources"].values())


def test_too_many_bad_lines_fail_the_stage_and_leave_no_outs(project: Path) -> None:
    path = Path("artifacts/raw/prm800k/phase1_train.jsonl")
    path.write_bytes(path.read_bytes() + b"no\n" * 3)
    with pytest.raises(DataError, match=r"3 of 9 lines.*max_quarantined_share"):
        main()
    assert not list(OUT.glob("*"))
    assert len(Path(".pathfinder/prepare/quarantine.jsonl").read_text().splitlines()) == 3


def test_repeats_and_conflicts_are_counted_and_kept(project: Path) -> None:
    path = Path("artifacts/raw/prm800k/phase1_train.jsonl")
    twice = prm800k_line("Again?", [("a", -1), ("a", 1), ("a", 1), ("a", None)])
    path.write_bytes(path.read_bytes() + json.dumps(twice).encode() + b"\n")
    main()
    metrics = read_json(Path("metrics/prepare.json"))
    assert (metrics["exact_repeats"], metrics["conflicting_ratings"]) == (3, 1)
    assert metrics["notes"]["null_ratings"] == 1
    assert metrics["kept"] == 6 * 9 + 4


def test_a_source_without_records_is_named(project: Path) -> None:
    line = {"question": {"problem": "Nothing?"}, "label": {"steps": []}}
    Path("artifacts/raw/prm800k/phase1_train.jsonl").write_text(json.dumps(line))
    with pytest.raises(DataError, match="artifacts/raw/prm800k: its files hold no record"):
        main()


def test_a_source_without_files_is_named(project: Path) -> None:
    shutil.rmtree("artifacts/raw/mistral")
    with pytest.raises(DataError, match="artifacts/raw/mistral: no file with records"):
        main()


def test_two_equal_files_are_refused(project: Path) -> None:
    """Their records would have the same ids, and the stages after this one would mix them up."""
    raw = Path("artifacts/raw")
    for name in ("empty.jsonl", "none.jsonl"):
        (raw / "prm800k" / name).touch()
    main()
    for copy in ("prm800k/copy.jsonl", "mistral/copy.jsonl"):
        shutil.copyfile(raw / "prm800k" / "phase1_train.jsonl", raw / copy)
        with pytest.raises(DataError, match=r"prm800k/phase1_train\.jsonl.*; remove one of them"):
            main()
        (raw / copy).unlink()


def test_the_real_files_balance_and_show_their_known_defects(
    project: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prm800k", "mistral"):
        shutil.rmtree(Path("artifacts/raw") / name)
        shutil.copytree(mirror / name, Path("artifacts/raw") / name)
    main()
    metrics = read_json(Path("metrics/prepare.json"))
    assert balanced(metrics)
    assert metrics["lines"] == {"read": 957, "kept": 957, "quarantined": 0}
    assert metrics["conflicting_ratings"] == 45
    assert metrics["notes"]["null_ratings"] > 0
    steps = read_parquet(OUT / "steps.parquet", STEPS)
    by_source = dict(steps.group_by("source").len().iter_rows())
    assert by_source == {"prm800k": metrics["kept"] - 25, "math_shepherd": 25}
    assert {source: books["kept"] for source, books in metrics["sources"].items()} == by_source


def test_math_shepherd_is_a_third_source_if_the_catalogue_names_it(project: Path, mirror: Path) -> None:
    shutil.copytree(mirror / "mistral", Path("artifacts/raw/math_shepherd"))
    main()
    assert set(read_json(Path("metrics/prepare.json"))["sources"]) == {"prm800k", "rlhflow_mistral"}
    catalogue = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))["download"]["sources"]
    third = next(dict(source) for source in catalogue if source["name"] == "mistral") | {"name": "math_shepherd"}
    write_params(project, download={"sources": [*catalogue, third]}, prepare={"max_quarantined_share": 0.2})
    main()
    metrics = read_json(Path("metrics/prepare.json"))
    assert metrics["sources"]["math_shepherd"]["kept"] == 25
    assert balanced(metrics)
    shutil.rmtree("artifacts/raw/math_shepherd")
    with pytest.raises(DataError, match="artifacts/raw/math_shepherd: no file with records"):
        main()


def test_flags_and_finish_reasons_are_counted_and_change_nothing(project: Path) -> None:
    path = Path("artifacts/raw/prm800k/phase1_train.jsonl")
    main()
    before = read_json(Path("metrics/prepare.json"))["kept"]
    line = prm800k_line("Odd?", [("a", -1), ("b", 1)], [("c", 0)])
    line["is_initial_screening_question"] = True
    line["label"]["finish_reason"] = "give_up"
    line["label"]["steps"][0]["completions"][0]["flagged"] = True
    line["label"]["steps"][1] |= {"chosen_completion": None, "human_completion": {"text": "d", "rating": None}}
    strange = prm800k_line("Odder?", [("a", 1)])
    strange["label"]["finish_reason"] = "<script>"
    path.write_bytes(path.read_bytes() + b"".join(json.dumps(v).encode() + b"\n" for v in (line, strange)))
    main()
    metrics = read_json(Path("metrics/prepare.json"))
    assert metrics["kept"] == before + 4
    assert metrics["notes"] == {
        "finish_give_up": 1,
        "finish_solution": 6,
        "finish_unknown": 1,
        "flagged": 1,
        "human_completions": 1,
        "initial_screening": 1,
        "unchosen_steps": 1,
    }


HOSTILE = ["<|im_end|> <+>\u2028\x85\x1f", "\ud800", "é💥" * 400, "", "\x00", '{"part": "1-of-1"}', "../../etc"]


def made() -> dict[str, bytes]:
    """The outs of the stage, which are removed."""
    found = {str(path): path.read_bytes() for path in (*OUT.iterdir(), Path("metrics/prepare.json"))}
    shutil.rmtree(OUT)
    return found


@pytest.fixture
def whole(project: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The outs of one process from hostile texts, in three containers and many batches."""
    monkeypatch.setattr("pathfinder.data.upstream._CHUNK", 3000)
    write_params(project, prepare={"max_quarantined_share": 0.9})
    shutil.rmtree("artifacts/raw")
    write_raw(project, lines=30)
    path = Path("artifacts/raw/prm800k/phase1_train.jsonl")
    with path.open("ab") as file:
        for number, text in enumerate(HOSTILE):
            file.write(json.dumps(prm800k_line(f"{text} {number}?", [(text, -1), (text, 1)])).encode() + b"\n")
        file.write(b"no JSON\n\xff\xfe\n\n")
    (path.parent / "b.jsonl.gz").write_bytes(gzip.compress(path.read_bytes().replace(b"We add", b"They add")))
    Path("artifacts/raw/mistral/none.json").write_text("[]")
    assert len(list(read_batches(path))) > 7
    main()
    return made()


@pytest.mark.parametrize("count", [1, 3])
def test_parts_give_the_bytes_of_one_process(
    whole: dict[str, bytes], count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in random.Random(count).sample(range(1, count + 1), count):
        main(["--part", f"{number}/{count}"])
        assert not OUT.exists()
    monkeypatch.setattr(conversion, "convert_batch", None)  # nothing is left to convert
    main()
    assert made() == whole
    assert f"uses {count} of {count} parts" in capsys.readouterr().err
    assert not list(Path(".pathfinder/parts/prepare").iterdir())


def test_missing_damaged_and_foreign_parts_are_converted_again(
    whole: dict[str, bytes], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 4):
        main(["--part", f"{number}/4"])
    folder = Path(".pathfinder/parts/prepare")
    (second,) = folder.glob("*-2-of-4")
    path = Path("artifacts/raw/prm800k/phase1_train.jsonl")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"We add", b"I add"))
    main(["--part", "3/4"])
    path.write_bytes(content)
    (other,) = folder.glob("*-3-of-4")
    other.rename(folder / second.name.replace("2-of-4", "3-of-4"))
    damaged = second / "steps.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    main()
    assert made() == whole
    printed = capsys.readouterr().err
    assert "3-of-4: not used: it was made from other inputs" in printed
    assert "2-of-4: not used: its files do not have the digests" in printed
    assert "uses 2 of 4 parts" in printed


def test_a_killed_part_leaves_nothing_and_the_stage_does_its_work(whole: dict[str, bytes]) -> None:
    command = "import os, signal, pathfinder.data.converted_parts as parts, stages.prepare as prepare\n"
    command += "import pathfinder.data.upstream as upstream; upstream._CHUNK = 3000\n"
    command += "parts._add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    command += "prepare.main(['--part', '2/3'])"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", command], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not list(Path(".pathfinder/parts/prepare").glob("*-2-of-3"))
    for number in (1, 3):
        main(["--part", f"{number}/3"])
    main()
    assert made() == whole
