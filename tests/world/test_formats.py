"""The generated corpora in the upstream formats: shapes, label noise, overlap, and identical bytes per seed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ground.io import read_json, read_jsonl, sha256_file
from pathfinder.core.records import problem_id
from tests.support.stories import SMALL, no_policy, read_again
from world.formats import write_corpus
from world.oracle import INSTRUCTED, Verdict, assess_all
from world.problem_sets import CLASSES, SEARCH_LEVELS
from world.recipes import RECIPES, Instructions, load_recipe
from world.statistics import count
from world.story import LEVELS

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ("phase1_train", "phase1_test", "phase2_train", "phase2_test")


def test_corpus_repeats_byte_for_byte(corpus: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path, SMALL, no_policy)
    index = read_json(corpus / "world.json")
    assert index == read_json(tmp_path / "world.json")
    assert len(index["files"]) == 4 + 1 + 4 + len(CLASSES) + len(SEARCH_LEVELS)
    for name, entry in index["files"].items():
        assert sha256_file(tmp_path / name) == entry["sha256"], name


def rated(row: Any) -> Iterator[tuple[int | None, Verdict]]:
    """Each rating of a PRM800K-like row, with the oracle's verdict on the step."""
    problem, prefix = read_again(row["question"]["problem"]), list[str]()
    for step in row["label"]["steps"]:
        for completion in step["completions"]:
            verdict = assess_all(problem, [*prefix, completion["text"]])[-1]
            assert verdict is not None
            yield completion["rating"], verdict
        chosen = step["chosen_completion"]
        if chosen is not None:
            prefix.append(step["completions"][chosen]["text"])
        elif step["human_completion"]:
            prefix.append(step["human_completion"]["text"])


def rows_of(folder: Path) -> list[Any]:
    return [row for name in TRAINING for _, row in read_jsonl(folder / "prm800k" / f"{name}.jsonl.gz")]


def test_prm800k_shape_and_ratings(corpus: Path) -> None:
    ratings: Counter[Any] = Counter()
    reasons: Counter[str] = Counter()
    disagreements = 0
    for row in rows_of(corpus):
        assert {"labeler", "timestamp", "generation", "question", "label"} <= set(row)
        reasons[row["label"]["finish_reason"]] += 1
        assert row["question"]["ground_truth_answer"] == str(read_again(row["question"]["problem"]).answer)
        for rating, verdict in rated(row):
            ratings[rating] += 1
            disagreements += rating not in (None, verdict.rating)
    assert set(ratings) >= {-1, 0, 1}
    assert set(reasons) == {"solution", "found_error"}
    assert 0 < disagreements < 0.06 * sum(ratings.values())


def test_without_instructions_the_shipped_files_are_written_byte_for_byte(world: Path, tmp_path: Path) -> None:
    """``phase1_test`` repeats problems that the policy solved, so it needs the policy."""
    recipe = load_recipe("quickstart", ROOT / RECIPES)
    few = {"phase2_train": 1, "mistral": 1, "processbench": 2, "prmbench": 3, "search": 2}
    write_corpus(tmp_path, recipe.corpus.model_copy(update=few), no_policy, recipe.levels)
    for name in ("phase1_train", "phase2_test"):
        path = f"prm800k/{name}.jsonl.gz"
        assert sha256_file(tmp_path / path) == sha256_file(world / path), name
    assert read_json(tmp_path / "world.json")["config"].keys() == read_json(world / "world.json")["config"].keys()


@pytest.fixture(scope="module")
def instructed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus whose raters always follow the instructions and make no mistakes."""
    folder = tmp_path_factory.mktemp("instructed")
    always = Instructions(unchecked=1, dead_end=1, circling=1, planning=1)
    exact = {"instructions": always, "wrong_minus": 0.0, "wrong_plus": 0.0, "null_ratings": 0.0}
    write_corpus(folder, SMALL.model_copy(update=exact), no_policy)
    return folder


def test_a_rater_who_follows_the_instructions_is_told_apart_from_the_truth(instructed: Path) -> None:
    found: Counter[tuple[str | None, int | None, int]] = Counter()
    for row in rows_of(instructed):
        for rating, verdict in rated(row):
            assert verdict.is_correct or verdict.instructed is None
            assert rating == (INSTRUCTED[verdict.instructed] if verdict.instructed else verdict.rating)
            found[verdict.instructed, rating, verdict.rating] += 1
    kinds = {("unchecked", -1, 1), ("dead_end", -1, 1), ("circling", -1, 0), ("planning", 1, 0)}
    assert found.keys() == kinds | {(None, rating, rating) for rating in (-1, 0, 1)}
    assert read_json(instructed / "world.json")["config"]["instructions"] == dict.fromkeys(INSTRUCTED, 1)
    part = count(instructed)["PRM800K, train"]
    assert {key.partition(", ")[::2] for key in part.instructed} == {(k, f"{r}") for k, r in INSTRUCTED.items()}
    assert part.labels_as_the_oracle["-1"] < part.labels["-1"], "the oracle still knows the correct steps"
    assert part.labels_as_the_oracle["0"] == part.labels["0"]


def test_a_rate_changes_ratings_and_no_other_draw(corpus: Path, tmp_path: Path) -> None:
    """Half of the circling steps get -1. Solutions differ only where the choice among rated steps does."""
    instructions = Instructions(circling=0.5)
    write_corpus(tmp_path, SMALL.model_copy(update={"instructions": instructions}), no_policy)
    ratings = Counter(r for row in rows_of(tmp_path) for r, v in rated(row) if v.instructed == "circling")
    assert 0.35 < ratings[-1] / ratings.total() < 0.65
    before, after = rows_of(corpus)[0]["label"]["steps"][0], rows_of(tmp_path)[0]["label"]["steps"][0]
    assert [c["text"] for c in before["completions"]] == [c["text"] for c in after["completions"]]
    files = [read_json(folder / "world.json")["files"] for folder in (corpus, tmp_path)]
    differ = {name for name, entry in files[0].items() if entry != files[1][name]}
    assert differ == {f"prm800k/{name}.jsonl.gz" for name in TRAINING}


def test_mistral_conversations(corpus: Path) -> None:
    marks: Counter[str] = Counter()
    for _, row in read_jsonl(corpus / "mistral" / "mistral.jsonl.gz"):
        turns = row["conversations"]
        assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
        found = re.match(r"(.*?)Step 1:(.*)", turns[0]["content"], re.DOTALL)
        assert found
        read_again(found[1].strip())
        assert all(turn["content"].startswith(f"Step {i}: ") for i, turn in enumerate(turns[2::2], start=2))
        marks.update(turn["content"] for turn in turns[1::2])
    assert set(marks) == {"+", "-"}


def test_overlap_is_only_what_was_planted(corpus: Path) -> None:
    training: set[str] = set()
    for path in sorted((corpus / "prm800k").glob("*.gz")):
        training.update(problem_id(row["question"]["problem"]) for _, row in read_jsonl(path))
    for _, row in read_jsonl(corpus / "mistral" / "mistral.jsonl.gz"):
        training.add(problem_id(row["conversations"][0]["content"].split(" Step 1:")[0]))
    tests: set[str] = set()
    for name in LEVELS:
        tests.update(problem_id(row["problem"]) for row in read_json(corpus / "processbench" / f"{name}.json"))
    for folder, key in (("prmbench", "question"), ("search", "question")):
        for path in sorted((corpus / folder).glob("*.jsonl")):
            tests.update(problem_id(row.get(key, row.get("problem"))) for _, row in read_jsonl(path))
    planted = read_json(corpus / "world.json")["planted"]["overlap_with_benchmarks"]
    assert len(planted) == SMALL.overlap * (len(LEVELS) + len(SEARCH_LEVELS))
    assert training & tests == {problem_id(text) for text in planted}


def test_upstream_keys_match_the_real_files(corpus: Path, mirror: Path) -> None:
    """Our rows have the keys of the real records."""
    real = json.loads((mirror / "prm800k" / "raw_sample_phase2.json").read_text())
    ours = next(read_jsonl(corpus / "prm800k" / "phase2_train.jsonl.gz"))[1]
    assert set(ours) == set(real)
    assert set(ours["question"]) == set(real["question"])
    assert set(ours["label"]) == set(real["label"])
    assert set(ours["label"]["steps"][0]) == set(real["label"]["steps"][0])
    real = read_json(mirror / "processbench" / "gsm8k.json")[0]
    assert set(read_json(corpus / "processbench" / "gsm8k.json")[0]) == set(real)
    real = next(read_jsonl(mirror / "prmbench" / "prm800k_train_p1_first400_4o_circular.jsonl"))[1]
    assert set(next(read_jsonl(corpus / "prmbench" / "small_world_circular.jsonl"))[1]) == set(real)
    for ours_name, real_name in (("amc23", "search/amc23"), ("aime24", "search/aime24"), ("math", "search/math500")):
        real = next(read_jsonl(mirror / f"{real_name}.jsonl"))[1]
        assert set(next(read_jsonl(corpus / "search" / f"{ours_name}.jsonl"))[1]) == set(real)
    for name in ("college_math", "minerva_math", "olympiadbench"):
        real = next(read_jsonl(mirror / "format-examples" / f"{name}.jsonl"))[1]
        assert set(next(read_jsonl(corpus / "search" / f"{name}.jsonl"))[1]) == set(real)
