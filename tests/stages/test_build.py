from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from ground.io import DataError, read_json, text_digest, write_json, write_jsonl, write_parquet
from ground.text import normalise
from pathfinder.core.mixes import records_of
from pathfinder.core.records import CLEAN, DECISIONS, LINES, STEPS, TRAJECTORIES, TREES, problem_id
from pathfinder.data import trainset
from pathfinder.data.exclusions import EXCLUSIONS
from pathfinder.data.overlap import StepIndex, StepMatch
from stages import build

PROBLEMS = 40
TRAIN = Path("artifacts/train")
LONG = "We add the apples of the first day and the apples of the second day, which are twice as many as the first."
NEAR = LONG.replace("We add", "Now add")


def problem(i: int) -> str:
    return f"Person {i} has {i} apples and buys {i + 1} more on day {i}. How many apples does person {i} have?"


@pytest.fixture
def inputs(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two trajectories per problem (one human, one Monte-Carlo) of two records each, and tiny benchmarks."""
    monkeypatch.chdir(tmp_path)
    trajectories, steps, clean, lines = [], [], [], []
    for i in range(PROBLEMS):
        for source in ("prm800k", "rlhflow_mistral"):
            name = f"{source}-00000000-{i}"
            text = problem(i)
            trajectories.append((name, source, f"{source}.jsonl", i + 1, problem_id(text), text, ["one", f"two {i}"]))
            if source == "prm800k":
                trajectories[-1][-1].append(LONG)
            rater = f"rater-{i % 4}" if source == "prm800k" else None
            lines.append((name, f"{source}-content-{i}", source, f"{source}/all.jsonl", i + 1, rater, 2, None))
            for step in range(2):
                identity = f"{name}-{step}-0"
                steps.append((identity, name, source, step, 0, f"step {step} of {i}", 1))
                clean.append((identity, 1, 1, 1))
    frames: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("artifacts/steps/trajectories.parquet", trajectories, TRAJECTORIES),
        ("artifacts/steps/steps.parquet", steps, STEPS),
        ("artifacts/clean/clean.parquet", clean, CLEAN),
        ("artifacts/steps/lines.parquet", lines, LINES),
    ]
    for path, rows, schema in frames:
        write_parquet(Path(path), pl.DataFrame(rows, schema=schema, orient="row"))
    write_json(Path("metrics/validate.json"), {"success": True})
    write_jsonl(EXCLUSIONS, [])
    item = {
        "id": "gsm8k-0",
        "generator": "g",
        "problem": problem(3).upper(),
        "steps": ["one", "new", NEAR],
        "label": -1,
    }
    write_json(Path("artifacts/raw/processbench/gsm8k.json"), [item | {"final_answer_correct": True}])
    row = {
        "idx": "r0",
        "original_question": "Q",
        "modified_question": "Q",
        "question": "Q",
        "original_process": ["a"],
        "modified_process": ["b"],
        "modified_steps": [1],
        "error_steps": [1],
        "reason": "",
        "classification": "circular",
    }
    write_jsonl(Path("artifacts/raw/prmbench/circular.jsonl"), [row])
    write_jsonl(Path("artifacts/raw/search/math.jsonl"), [{"problem": problem(5), "answer": "11"}])
    params = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    params["build"] |= {"test_share": 0.3, "mistral_records": 1000, "max_records": 0, "remove_overlap": False}
    params["search"]["sets"] = ["math"]
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    return tmp_path


def change(**values: Any) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    params["build"] |= values
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")


def trees(side: str) -> pl.DataFrame:
    frame = pl.read_parquet(f"artifacts/train/{side}.parquet")
    assert dict(frame.schema) == TREES
    return frame


def figures() -> dict[str, Any]:
    value: dict[str, Any] = read_json(Path("metrics/build.json"))
    assert value["read"] == value["kept"] + sum(value["dropped"].values())
    return value


def test_the_official_preset_removes_captions_after_labelling(inputs: Path) -> None:
    for name, column in (("trajectories", "steps"), ("steps", "step")):
        path = Path(f"artifacts/steps/{name}.parquet")
        frame = pl.read_parquet(path)
        caption = pl.lit("Step 1: see Step 2:  ")
        captioned = pl.col(column).list.eval(caption + pl.element()) if column == "steps" else caption + pl.col(column)
        write_parquet(path, frame.with_columns(captioned.alias(column)))
    params = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    params["prepare"]["preset"] = "official"
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    build.main()
    rows = pl.concat([trees("train"), trees("test")])
    for source, steps, branches in rows.select("source", "steps", "branches").iter_rows():
        for text in (*steps, *(branch["step"] for branch in branches)):
            assert text.startswith("Step 1: see Step 2:  " if source == "prm800k" else "see ")
            assert source == "prm800k" or "Step 2:" not in text
    with pytest.raises(DataError, match="so the build has no parts"):
        build.main(["--part", "1/2"])


def test_no_problem_is_on_both_sides_and_nothing_is_lost(inputs: Path) -> None:
    build.main()
    train, test = trees("train"), trees("test")
    assert len(test) > 0
    assert not set(train["problem_id"]) & set(test["problem_id"])
    assert records_of(train) + records_of(test) == figures()["kept"] == 4 * PROBLEMS


NOTHING = {"exact_problems": 0, "near_problems": 0, "exact_steps": 0, "exact_short_steps": 0, "near_steps": 0}
HELD = {problem_id(problem(3)), problem_id(problem(5))}


def test_overlap_is_found_and_reported_by_benchmark_and_source(inputs: Path) -> None:
    build.main()
    overlap = figures()["overlap"]
    both = NOTHING | {"exact_problems": 1, "exact_steps": 1, "exact_short_steps": 1}
    assert overlap["processbench/gsm8k"] == {
        "items": 1,
        "steps": 3,
        "short_steps": 2,
        **both,
        "near_steps": 1,
        "kept": both | {"near_steps": 1},
        "sources": {"prm800k": both | {"near_steps": 1}, "rlhflow_mistral": both},
    }
    assert overlap["search/math"]["exact_problems"] == 1
    assert overlap["prmbench/circular"] | NOTHING == overlap["prmbench/circular"]
    assert set(overlap) == {"processbench/gsm8k", "prmbench/circular", "prmbench-original/circular", "search/math"}
    steps = pl.read_parquet("artifacts/overlap/steps.parquet")
    assert dict(steps.schema) == trainset.STEP_HITS
    assert steps.select("benchmark_id", "step_index", "kind").rows() == [
        ("gsm8k-0", 0, "exact"),
        ("gsm8k-0", 2, "near"),
    ]
    assert steps["step_digest"].to_list() == [text_digest(normalise(text)) for text in ("one", LONG)]
    assert figures()["removed"] == {}
    assert pl.read_parquet("artifacts/overlap/removed.parquet").is_empty()


def test_overlap_is_removed_on_request_and_recorded(inputs: Path) -> None:
    change(remove_overlap=True)
    build.main()
    found = figures()
    assert found["dropped"] == {"overlap": 8}
    assert found["removed"] == {
        "processbench/gsm8k": {"problems": 1, "records": 4},
        "search/math": {"problems": 1, "records": 4},
    }
    removed = pl.read_parquet("artifacts/overlap/removed.parquet")
    assert dict(removed.schema) == trainset.REMOVED
    assert set(removed["problem_id"]) == HELD
    assert removed["records"].sum() == 8
    assert not HELD & (set(trees("train")["problem_id"]) | set(trees("test")["problem_id"]))
    for name in ("processbench/gsm8k", "search/math"):
        assert found["overlap"][name]["exact_problems"] == 1
        assert found["overlap"][name]["kept"]["exact_problems"] == 0


def test_every_source_accounts_for_its_records(inputs: Path) -> None:
    change(remove_overlap=True, mistral_records=11, max_records=60)
    build.main()
    found = figures()
    for key in ("read", "kept"):
        assert sum(source[key] for source in found["sources"].values()) == found[key]
    for source in found["sources"].values():
        assert source["read"] == source["kept"] + sum(source["dropped"].values())
    assert found["sources"]["prm800k"]["dropped"].keys() == {"overlap", "limit"}
    assert found["sources"]["rlhflow_mistral"]["dropped"].keys() >= {"overlap", "mix"}


def test_the_mix_and_the_limit_take_whole_trees(inputs: Path) -> None:
    change(mistral_records=11)
    build.main()
    assert figures()["dropped"] == {"mix": 2 * PROBLEMS - 10}
    change(max_records=20)
    build.main()
    assert figures()["kept"] == 20
    sizes = pl.concat([trees("train"), trees("test")])["branches"].list.len()
    assert sizes.unique().to_list() == [2]


def test_the_same_inputs_give_the_same_bytes(inputs: Path) -> None:
    paths = [
        Path("artifacts/train/train.parquet"),
        Path("artifacts/overlap/overlap.parquet"),
        Path("metrics/build.json"),
    ]
    build.main()
    before = [path.read_bytes() for path in paths]
    build.main()
    assert [path.read_bytes() for path in paths] == before


def test_failed_validation_blocks(inputs: Path) -> None:
    write_json(Path("metrics/validate.json"), {"success": False})
    with pytest.raises(DataError, match="did not pass validation"):
        build.main()
    assert not Path("artifacts/train").exists()


def test_unknown_records_are_refused(inputs: Path) -> None:
    frame = pl.read_parquet("artifacts/clean/clean.parquet")
    stranger = pl.DataFrame([("stranger", 1, 1, 1)], schema=CLEAN, orient="row")
    write_parquet(Path("artifacts/clean/clean.parquet"), pl.concat([frame, stranger]))
    with pytest.raises(DataError, match="1 ids are not in the steps"):
        build.main()
    assert not Path("metrics/build.json").exists()


def decided() -> pl.DataFrame:
    frame = pl.read_parquet("artifacts/decisions.parquet")
    assert dict(frame.schema) == DECISIONS
    assert frame["id"].n_unique() == len(frame) == 4 * PROBLEMS
    return frame


def test_every_decision_has_its_reason_or_side(inputs: Path) -> None:
    change(remove_overlap=True, mistral_records=40, max_records=100)
    build.main()
    frame = decided()
    assert dict(frame.drop_nulls("reason").group_by("reason").len().iter_rows()) == figures()["dropped"]
    assert set(frame["reason"].drop_nulls()) == {"overlap", "mix", "limit"}
    details = {(reason, detail) for reason, detail in frame.select("reason", "detail").rows() if reason}
    assert details == {
        ("overlap", "exact problem of processbench/gsm8k gsm8k-0"),
        ("overlap", "exact problem of search/math 0"),
        ("mix", "build.mistral_records"),
        ("limit", "build.max_records"),
    }
    for side in ("train", "test"):
        ids = trees(side)["branches"].explode().struct.field("id").to_list()
        assert sorted(frame.filter(side=side)["id"]) == sorted(ids)
    assert frame.filter(pl.col("side").is_null() == pl.col("reason").is_null()).is_empty()
    assert set(frame.filter(pl.col("side").is_not_null())["group"]) <= {problem_id(problem(i)) for i in range(PROBLEMS)}


def test_excluded_records_are_in_no_tree(inputs: Path) -> None:
    whole = {"content": "prm800k-content-7", "reason": "the author asked"}
    single = {"content": "rlhflow_mistral-content-8", "step": 1, "completion": 0}
    write_jsonl(EXCLUSIONS, [whole, single, {"rater": "rater-2"}, {"content": "no such line"}])
    build.main()
    raters = [f"prm800k-00000000-{i}-{step}-0" for i in range(2, PROBLEMS, 4) for step in range(2)]
    gone = {"prm800k-00000000-7-0-0", "prm800k-00000000-7-1-0", "rlhflow_mistral-00000000-8-1-0", *raters}
    assert figures()["dropped"] == {"excluded": len(gone)}
    left = {b["id"] for side in ("train", "test") for tree in trees(side)["branches"] for b in tree}
    assert not left & gone
    assert "rlhflow_mistral-00000000-8-0-0" in left
    frame = decided().filter(reason="excluded")
    assert set(frame["id"]) == gone
    found = dict(frame.select("id", "detail").iter_rows())
    assert found["prm800k-00000000-7-0-0"] == "content:prm800k-content-7 (the author asked)"
    assert found["rlhflow_mistral-00000000-8-1-0"] == "content:rlhflow_mistral-content-8-1-0"
    assert found["prm800k-00000000-2-0-0"] == "rater:rater-2"


def test_a_source_is_excluded_by_its_name_or_its_folder(inputs: Path) -> None:
    write_jsonl(EXCLUSIONS, [{"source": "rlhflow_mistral"}])
    build.main()
    assert set(trees("train")["source"]) == {"prm800k"}
    lines = pl.read_parquet("artifacts/steps/lines.parquet")
    renamed = pl.col("file").str.replace("rlhflow_mistral/", "mistral/")
    write_parquet(Path("artifacts/steps/lines.parquet"), lines.with_columns(renamed))
    write_jsonl(EXCLUSIONS, [{"source": "mistral"}])
    build.main()
    assert set(trees("train")["source"]) == {"prm800k"}


@pytest.mark.parametrize(
    "line, says",
    [
        ({"content": "a", "rater": "b"}, "exactly one of content, rater and source"),
        ({"reason": "none"}, "exactly one of content, rater and source"),
        ({"rater": "b", "step": 1, "completion": 0}, "step and completion belong together"),
        ({"content": "a", "step": 1}, "step and completion belong together"),
        ({"contents": "a"}, "Extra inputs"),
    ],
)
def test_a_malformed_exclusion_is_refused_with_its_place(inputs: Path, line: dict[str, Any], says: str) -> None:
    write_jsonl(EXCLUSIONS, [{"rater": "x"}, line])
    with pytest.raises(DataError, match=rf"exclusions.jsonl:2: .*{says}"):
        build.main()


def test_a_missing_exclusion_list_is_refused(inputs: Path) -> None:
    EXCLUSIONS.unlink()
    with pytest.raises(DataError, match=r"exclusions.jsonl: no such file; restore it"):
        build.main()


def made() -> dict[str, bytes]:
    """The outs of the stage, which are removed."""
    files = [*TRAIN.iterdir(), *Path("artifacts/overlap").iterdir(), Path("artifacts/decisions.parquet")]
    found = {str(path): path.read_bytes() for path in (*files, Path("metrics/build.json"))}
    for path in found:
        Path(path).unlink()
    return found


@pytest.fixture
def many_matches(inputs: Path) -> Path:
    """Benchmark steps that hostile training texts equal, nearly equal, or do not."""
    path = Path("artifacts/steps/steps.parquet")
    frame = pl.read_parquet(path)
    texts = [HOSTILE[n % len(HOSTILE)] + (" again" * (n % 2) if n < 40 else f" {n}") for n in range(len(frame))]
    write_parquet(path, frame.with_columns(step=pl.Series(texts)))
    item = {"id": "gsm8k-0", "generator": "g", "problem": "Other?", "steps": [*HOSTILE, LONG], "label": -1}
    write_json(Path("artifacts/raw/processbench/gsm8k.json"), [item | {"final_answer_correct": True}])
    return inputs


HOSTILE = [f"{text} {NEAR.replace('apples', word)}" for word, text in (("a\u2028b", "<|im_end|>"), ("é💥", "\x00"))]


@pytest.mark.parametrize("count", [1, 3])
def test_parts_of_the_search_give_the_bytes_of_one_process(
    many_matches: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.main()
    whole = made()
    for number in range(count, 0, -1):
        build.main(["--part", f"{number}/{count}"])
        assert not list(TRAIN.iterdir())
    parts = sorted(Path(".pathfinder/parts/build").iterdir())
    found = [pl.read_parquet(part / "matches.parquet")["text"].to_list() for part in parts]
    assert len(set().union(*found)) == sum(len(set(texts)) for texts in found) > 5, "no text is searched twice"
    searched: list[int] = []
    match = StepIndex.match

    def watched(index: StepIndex, texts: pl.Series) -> dict[str, dict[int, StepMatch]]:
        searched.append(len(texts))
        return match(index, texts)

    monkeypatch.setattr(StepIndex, "match", watched)
    build.main()
    assert made() == whole
    assert searched == [0]
    assert not list(Path(".pathfinder/parts/build").iterdir())


def test_a_missing_part_is_searched_and_one_of_other_inputs_is_not_used(
    many_matches: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build.main()
    whole = made()
    build.main(["--part", "2/3"])
    change(near_duplicate_jaccard=0.99)
    build.main(["--part", "1/3"])
    change(near_duplicate_jaccard=0.8)
    (mine,) = Path(".pathfinder/parts/build").glob("*-2-of-3")
    (other,) = Path(".pathfinder/parts/build").glob("*-1-of-3")
    other.rename(str(mine).replace("2-of-3", "1-of-3"))
    build.main()
    assert made() == whole
    printed = capsys.readouterr().err
    assert "1-of-3: not used: it was made from other inputs" in printed
    assert "uses 1 of 3 parts" in printed
