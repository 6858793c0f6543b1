"""The world's oracle, its writers, and the corpus in the upstream formats."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pathfinder.core.io import read_json, read_jsonl, sha256_file
from pathfinder.core.labels import Scores
from pathfinder.core.prompts import STEP_SEPARATOR
from pathfinder.core.records import problem_id
from pathfinder.judge.parsing import parse_scores
from pathfinder.world.formats import renew_index, write_corpus
from pathfinder.world.judging import judge_answer
from pathfinder.world.lessons import words_of
from pathfinder.world.problem_sets import CLASSES, SEARCH_LEVELS, WorldConfig
from pathfinder.world.steps import Habits, fault_step, write_solution
from pathfinder.world.story import (
    CONSISTENCY_FAULTS,
    LEVELS,
    MATH_FAULTS,
    SUBOPTIMAL,
    Event,
    Problem,
    assess,
    assess_all,
    begin,
    sample_problem,
    split_of,
)

SMALL = WorldConfig(
    phase1_train=30, phase1_test=25, phase2_train=40, phase2_test=5, mistral=40, processbench=20, prmbench=6, search=5
)
STORY = Problem(
    "math",
    "Tom",
    "apples",
    5,
    (Event("Tom", "buys", 7), Event("Ann", "sells", 6), Event("Tom", "takes back", 2), Event("Tom", "doubles", 2)),
)


def test_story_text_and_truth() -> None:
    assert STORY.text == (
        "Tom has 5 apples.\n1) Tom buys 7.\n2) Ann sells 6.\n3) Tom takes back 2.\n4) Tom doubles them.\n"
        "How many apples does Tom have?"
    )
    assert STORY.values == (5, 12, 12, 14, 28)


@pytest.mark.parametrize(
    ("done", "step", "labels", "faults"),
    [
        (0, "1) buys 7, so 5 + 7 = 12 apples.", (1, 1, 1), ()),
        (0, "1) buys 7, so clearly 5 + 7 = 13 apples.", (0, 1, 1), ("arithmetic",)),
        (0, "1) buys 7, so 5 - 7 = 2 apples.", (0, 1, 1), ("operation", "arithmetic")),
        (0, "1) buys 7, hence 5 + 6 = 11 apples.", (0, 1, 1), ("operand",)),
        (0, "1) buys 6, so 5 + 6 = 11 apples.", (1, 0, 1), ("amount",)),
        (0, "1) sells 4, so 5 - 4 = 1 apples.", (1, 0, 1), ("verb",)),
        (0, "1) buys 7, so 4 + 7 = 11 apples.", (1, 0, 1), ("carried",)),
        (0, "1) buys 7, so 5 + 7 = 12 pears.", (1, 0, 1), ("unit",)),
        (0, "1) is about Tom, so still 5 apples.", (1, 0, 1), ("person",)),
        (1, "2) is about Ann, so still 12 apples.", (1, 1, 1), ()),
        (1, "2) is about Bob, so still 12 apples.", (1, 0, 1), ("name",)),
        (1, "2) sells 6, so 12 - 6 = 6 apples.", (1, 0, 1), ("person",)),
        (1, "3) takes back 2, so 12 + 2 = 14 apples.", (1, 0, 1), ("skipped",)),
        (1, "1) buys 7, so 12 + 7 = 19 apples.", (1, 0, 1), ("contradiction",)),
        (1, "1) buys 7, which makes 5 + 7 = 12 apples.", (1, 1, 0), ("repetition",)),
        (1, "So far that is 12 apples.", (1, 1, 0), ("restatement",)),
        (1, "If that is 12 apples, then 12 apples it is.", (1, 1, 0), ("circular",)),
        (1, "Next we read 2).", (1, 1, 0), ("planning",)),
        (1, "Next we read 4).", (1, 0, 0), ("planning", "event")),
        (1, "7) buys 7, so 12 + 7 = 19 apples.", (1, 0, 1), ("event",)),
        (2, "3) takes back 2, so 12 - 2 = 10 apples.", (0, 1, 1), ("misreading",)),
        (3, "4) doubles them, so 14 * 2 = 28 apples.", (1, 1, 1), ()),
        (3, "The answer is \\boxed{14}.", (1, 0, 1), ("early",)),
        (4, "The answer is \\boxed{28}.", (1, 1, 1), ()),
        (4, "The answer is \\boxed{27}.", (1, 0, 1), ("answer",)),
    ],
)
def test_oracle_labels(done: int, step: str, labels: tuple[int, int, int], faults: tuple[str, ...]) -> None:
    right = [w.text for w in write_solution(STORY, random.Random(0), Habits(flourish=0))]
    verdict = assess_all(STORY, [*right[:done], step])[-1]
    assert verdict is not None
    assert (verdict.math, verdict.consistency, verdict.optimality) == labels
    assert verdict.faults == faults


@pytest.mark.parametrize(
    "step", ["", "1) buys 07, so 5 + 7 = 12 apples.", "<extra>", "1) buys 7, so 5 + 7 = 12 apples. "]
)
def test_text_outside_the_grammar_has_no_label(step: str) -> None:
    assert assess(STORY, begin(STORY), step) is None


def test_every_fault_can_be_planted_alone_and_words_agree() -> None:
    rng = random.Random("faults")
    planted: Counter[str] = Counter()
    for _ in range(60):
        problem = sample_problem(rng, LEVELS["olympiadbench"])
        assert all(0 <= value <= LEVELS["olympiadbench"].largest for value in problem.values)
        for written in write_solution(problem, rng, Habits(misread=0.5, slip=0.2, idle=0.1)):
            for fault in (*MATH_FAULTS, *CONSISTENCY_FAULTS, *SUBOPTIMAL):
                text = fault_step(problem, written.before, fault, rng)
                verdict = assess(problem, written.before, text) if text else None
                if text and verdict:
                    assert verdict.faults == (fault,)
                    words = words_of(text, verdict)
                    assert "".join(word for word, _ in words) == text
                    assert any(holds is False for _, holds in words) == (fault not in SUBOPTIMAL[1:])
                    planted[fault] += 1
    missing = {*MATH_FAULTS, *CONSISTENCY_FAULTS, *SUBOPTIMAL} - set(planted) - {"event"}
    assert not missing


def test_judge_answer_recomputes_and_scores() -> None:
    step = "1) buys 7, so 5 + 7 = 13 apples."
    verdict = assess(STORY, begin(STORY), step)
    assert verdict is not None
    answer = "".join(text for text, _ in judge_answer(STORY, begin(STORY), step, verdict))
    assert "5 + 7 = 12 no." in answer
    scores = parse_scores(answer.removesuffix("<|im_end|>"))
    assert scores == Scores(0, 1, 1)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_corpus(folder, SMALL)
    return folder


def _solution_labels(problem_text: str, steps: list[str]) -> list[bool | None]:
    problem = _read_story(problem_text)
    return [None if verdict is None else verdict.sound for verdict in assess_all(problem, steps)]


def _read_story(text: str) -> Problem:
    """The story behind its text: an independent reader of what ``Problem.text`` wrote."""
    head, *lines, _ = text.split("\n")
    name, _, start, noun = head.rstrip(".").split(" ")
    events = []
    for line in lines:
        found = re.fullmatch(r"\d\) (\w+) (.+) (\d+|them)\.", line)
        assert found, line
        events.append(Event(found[1], found[2], 2 if found[3] == "them" else int(found[3])))
    return Problem("any", name, noun, int(start), tuple(events))


def test_corpus_repeats_byte_for_byte(corpus: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path, SMALL)
    index = read_json(corpus / "world.json")
    assert index == read_json(tmp_path / "world.json")
    assert len(index["files"]) == 4 + 1 + 4 + len(CLASSES) + len(SEARCH_LEVELS)
    for name, entry in index["files"].items():
        assert sha256_file(tmp_path / name) == entry["sha256"], name
    renew_index(corpus)
    assert read_json(corpus / "world.json") == index


def test_prm800k_shape_and_ratings(corpus: Path) -> None:
    ratings: Counter[Any] = Counter()
    reasons: Counter[str] = Counter()
    disagreements = 0
    for name in ("phase1_train", "phase1_test", "phase2_train", "phase2_test"):
        for _, row in read_jsonl(corpus / "prm800k" / f"{name}.jsonl.gz"):
            assert {"labeler", "timestamp", "generation", "question", "label"} <= set(row)
            reasons[row["label"]["finish_reason"]] += 1
            problem, prefix = _read_story(row["question"]["problem"]), list[str]()
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
        _read_story(found[1].strip())
        assert all(turn["content"].startswith(f"Step {i}: ") for i, turn in enumerate(turns[2::2], start=2))
        marks.update(turn["content"] for turn in turns[1::2])
    assert set(marks) == {"+", "-"}


def test_processbench_labels_are_exact(corpus: Path) -> None:
    for name in LEVELS:
        rows = read_json(corpus / "processbench" / f"{name}.json")
        assert len(rows) == SMALL.processbench
        for row in rows:
            sound = _solution_labels(row["problem"], row["steps"])
            assert row["label"] == (sound.index(False) if False in sound else -1)
            answer = f"\\boxed{{{_read_story(row['problem']).answer}}}"
            assert row["final_answer_correct"] == (answer in row["steps"][-1])
        assert any(row["label"] >= 0 and row["final_answer_correct"] for row in rows)


def test_prmbench_classes(corpus: Path) -> None:
    for name, faults in CLASSES.items():
        rows = [row for _, row in read_jsonl(corpus / "prmbench" / f"small_world_{name}.jsonl")]
        assert {row["classification"] for row in rows} == {name}
        for row in rows:
            verdicts = assess_all(_read_story(row["modified_question"]), row["modified_process"])
            wrong = [i for i, v in enumerate(verdicts, start=1) if v is not None and v.faults]
            assert [i for i in row["error_steps"] if i <= len(verdicts)] == wrong
            assert all(f in faults for v in verdicts if v is not None for f in v.faults)
            originals = assess_all(_read_story(row["original_question"]), row["original_process"])
            assert all(v is not None and not v.faults for v in originals)
    beyond = read_jsonl(corpus / "prmbench" / "small_world_step_contradiction.jsonl")
    assert sum(max(row["error_steps"]) > len(row["modified_process"]) for _, row in beyond) == 1


def test_search_sets_keep_their_answer_keys(corpus: Path) -> None:
    rows = {name: next(read_jsonl(corpus / "search" / f"{name}.jsonl"))[1] for name in SEARCH_LEVELS}
    truth = {name: _read_story(row.get("problem", row.get("question"))).answer for name, row in rows.items()}
    assert rows["amc23"]["answer"] == float(truth["amc23"])
    assert rows["math"]["answer"] == str(truth["math"])
    assert rows["college_math"]["answer"] == f"${truth['college_math']}$"
    assert rows["olympiadbench"]["final_answer"] == [str(truth["olympiadbench"])]
    assert "answer" not in rows["minerva_math"]
    assert f"\\boxed{{{truth['minerva_math']}}}" in rows["minerva_math"]["solution"]


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


def test_splits_are_by_text() -> None:
    rng = random.Random("splits")
    parts = Counter(split_of(sample_problem(rng, LEVELS["math"])) for _ in range(400))
    assert set(parts) == {"train", "benchmark", "search", "held_out"}
    assert split_of(STORY) == split_of(_read_story(STORY.text))


def test_upstream_keys_match_the_real_files(corpus: Path, mirror: Path) -> None:
    """Our rows have the keys of the real records (which are read for their shape alone)."""
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


def test_steps_survive_the_published_separator() -> None:
    solution = [w.text for w in write_solution(STORY, random.Random(1), Habits())]
    assert STEP_SEPARATOR.join(solution).split(STEP_SEPARATOR) == solution
