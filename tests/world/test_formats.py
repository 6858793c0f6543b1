"""The generated corpora in the upstream formats: shapes, label noise, overlap, and identical bytes per seed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from ground.io import read_json, read_jsonl, sha256_file
from pathfinder.core.records import problem_id
from tests.support.stories import SMALL, no_policy, read_again
from world.formats import write_corpus
from world.oracle import assess_all
from world.problem_sets import CLASSES, SEARCH_LEVELS
from world.story import LEVELS


def test_corpus_repeats_byte_for_byte(corpus: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path, SMALL, no_policy)
    index = read_json(corpus / "world.json")
    assert index == read_json(tmp_path / "world.json")
    assert len(index["files"]) == 4 + 1 + 4 + len(CLASSES) + len(SEARCH_LEVELS)
    for name, entry in index["files"].items():
        assert sha256_file(tmp_path / name) == entry["sha256"], name


def test_prm800k_shape_and_ratings(corpus: Path) -> None:
    ratings: Counter[Any] = Counter()
    reasons: Counter[str] = Counter()
    disagreements = 0
    for name in ("phase1_train", "phase1_test", "phase2_train", "phase2_test"):
        for _, row in read_jsonl(corpus / "prm800k" / f"{name}.jsonl.gz"):
            assert {"labeler", "timestamp", "generation", "question", "label"} <= set(row)
            reasons[row["label"]["finish_reason"]] += 1
            problem, prefix = read_again(row["question"]["problem"]), list[str]()
            assert row["question"]["ground_truth_answer"] == str(problem.answer)
            for step in row["label"]["steps"]:
                for completion in step["completions"]:
                    verdict = assess_all(problem, [*prefix, completion["text"]])[-1]
                    assert verdict is not None
                    ratings[completion["rating"]] += 1
                    disagreements += completion["rating"] not in (None, verdict.rating)
                chosen = step["chosen_completion"]
                if chosen is not None:
                    prefix.append(step["completions"][chosen]["text"])
                elif step["human_completion"]:
                    prefix.append(step["human_completion"]["text"])
    assert set(ratings) >= {-1, 0, 1}
    assert set(reasons) == {"solution", "found_error"}
    assert 0 < disagreements < 0.06 * sum(ratings.values())


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
