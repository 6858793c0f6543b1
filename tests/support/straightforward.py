"""A straightforward conversion of PRM800K into a training set: whole JSON files in memory, one dict per record.

It works like the published scripts (``load_data.py``, ``build_dataset.py``): each step reads one list and writes one
list, and each record repeats its problem and the steps before it. Plain loops make the same checks as the stages;
"near" finds near duplicates with one MinHash per text. ``tests/data/test_scale.py`` runs and measures
``python -m tests.support.straightforward STEP`` in a folder with ``artifacts/``.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

from ground.text import normalise

RAW = Path("artifacts/raw")
HERE = Path("straightforward")


def _load(name: str) -> Any:
    with (HERE / f"{name}.json").open(encoding="utf-8") as handle:
        return json.load(handle)


def _dump(name: str, value: Any) -> None:
    HERE.mkdir(exist_ok=True)
    with (HERE / f"{name}.json").open("w", encoding="utf-8") as handle:
        json.dump(value, handle)


def prepare() -> None:
    """Make a record of every completion, with its problem and the steps before it."""
    records = []
    for file in sorted((RAW / "prm800k").glob("*.jsonl")):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
        with file.open(encoding="utf-8") as handle:
            lines = [json.loads(line) for line in handle]
        for number, line in enumerate(lines, start=1):
            problem, previous = line["question"]["problem"], list[str]()
            key = hashlib.sha256(normalise(problem).encode()).hexdigest()[:16]
            for position, step in enumerate(line["label"]["steps"]):
                completions = step["completions"] or []
                for index, completion in enumerate(completions):
                    text = completion["text"]
                    if isinstance(text, str) and text.strip() and completion["rating"] in (-1, 0, 1, None):
                        records.append(
                            {
                                "id": f"prm800k-{digest}-{number}-{position}-{index}",
                                "trajectory": f"prm800k-{digest}-{number}",
                                "problem_id": key,
                                "problem": problem,
                                "previous": list(previous),
                                "step": text,
                                "rating": completion["rating"],
                            }
                        )
                chosen, human = step["chosen_completion"], step["human_completion"]
                followed = human if chosen is None else completions[chosen]
                if not followed:
                    break
                previous.append(followed["text"])
    _dump("records", records)


def filter_() -> None:
    """Keep the records whose labels do not contradict the rating."""
    records = _load("records")
    labels = {label["id"]: label for label in _load("labels")}
    clean, drops = [], []
    for record in records:
        label = labels[record["id"]]
        ones = label["math"] == label["consistency"] == label["optimality"] == 1
        if label["math"] is None or (record["rating"] == -1 and ones):
            drops.append({"id": record["id"], "reason": label["outcome"] if label["math"] is None else "disagrees"})
        else:
            clean.append(
                record | {"math": label["math"], "consistency": label["consistency"], "correctness": int(ones)}
            )
    _dump("clean", clean)
    _dump("drops", drops)


def validate() -> None:
    """Check every record, label and answer, and every kept or dropped record; the first violation raises."""
    records, labels, answers = _load("records"), _load("labels"), _load("answers")
    by_id = {record["id"]: record for record in records}
    assert len(by_id) == len(records) == len(labels) == len({label["id"] for label in labels})
    asked: dict[str, int] = {}
    for answer in answers:
        assert answer["outcome"] in ("parsed", "unparsed")
        assert len(answer["prompt_digest"]) == 64
        asked[answer["id"]] = asked.get(answer["id"], 0) + 1
    for record in records:
        assert record["problem_id"] == hashlib.sha256(normalise(record["problem"]).encode()).hexdigest()[:16]
        assert 0 < len(record["step"]) <= 200_000
        assert 0 < len(record["problem"]) <= 200_000
        assert record["rating"] in (-1, 0, 1, None)
        assert record["id"].startswith(record["trajectory"] + "-")
    by_label = {}
    for label in labels:
        rating = by_id[label["id"]]["rating"]
        scores = (label["math"], label["consistency"], label["optimality"])
        assert all(score in (0, 1, None) for score in scores)
        assert label["attempts"] == asked.get(label["id"], 0)
        if rating in (0, 1):
            assert scores == (1, 1, rating)
            assert label["origin"] == "rating"
        by_label[label["id"]] = label
    clean, drops = _load("clean"), {drop["id"] for drop in _load("drops")}
    for record in clean:
        label = by_label[record["id"]]
        assert record["id"] not in drops
        assert (record["math"], record["consistency"]) == (label["math"], label["consistency"])
        assert record["correctness"] == int(record["rating"] == 1)
    assert len(clean) + len(drops) == len(labels)


def build() -> None:
    """Train and test records, split by problem, and how many benchmark problems and steps they contain."""
    clean = _load("clean")
    problems = sorted({record["problem_id"] for record in clean})
    random.Random(0).shuffle(problems)
    held_out = set(problems[: len(problems) // 20])
    _dump("train", [record for record in clean if record["problem_id"] not in held_out])
    _dump("test", [record for record in clean if record["problem_id"] in held_out])
    known = set(problems)
    steps = {normalise(text) for record in clean for text in (record["step"], *record["previous"])}
    found = {"problems": 0, "steps": 0}
    for file in sorted((RAW / "processbench").glob("*.json")):
        for item in json.loads(file.read_text(encoding="utf-8")):
            found["problems"] += hashlib.sha256(normalise(item["problem"]).encode()).hexdigest()[:16] in known
            found["steps"] += sum(normalise(step) in steps for step in item["steps"])
    _dump("overlap", found)


def near() -> None:
    """Count problems near one another, and problems and steps near the benchmarks' own. Runs after ``build``."""
    from datasketch import MinHash, MinHashLSH  # must not slow the other steps down

    from tests.data.test_near_duplicates import jaccard, shingles

    def signature(pieces: frozenset[str]) -> MinHash:
        made = MinHash(num_perm=120, seed=1)
        made.update_batch([piece.encode() for piece in pieces])
        return made

    def index(texts: set[str]) -> tuple[MinHashLSH, dict[str, frozenset[str]]]:
        lsh, pieces = MinHashLSH(num_perm=120, params=(20, 6)), {text: shingles(text) for text in sorted(texts)}
        for text, own in pieces.items():
            lsh.insert(text, signature(own))
        return lsh, pieces

    clean = _load("clean")
    problems = {record["problem"] for record in clean}
    steps = {text for record in clean for text in (record["step"], *record["previous"]) if len(text.split()) >= 10}
    benchmarks: dict[str, set[str]] = {"problems": set(), "steps": set()}
    for file in sorted((RAW / "processbench").glob("*.json")):
        for item in json.loads(file.read_text(encoding="utf-8")):
            benchmarks["problems"].add(item["problem"])
            benchmarks["steps"] |= set(item["steps"])
    for file in sorted((RAW / "prmbench").glob("*.jsonl")):
        with file.open(encoding="utf-8") as handle:
            for item in map(json.loads, handle):
                benchmarks["problems"].add(item["question"])
                benchmarks["steps"] |= set(item["modified_process"])
    found = {}
    for kind, ours, others in (
        ("problems", problems, problems),
        ("benchmark problems", problems, benchmarks["problems"]),
        ("benchmark steps", steps, benchmarks["steps"]),
    ):
        lsh, pieces = index(others)
        found[kind] = 0
        for text in ours:
            own = shingles(text)
            near = (other for other in lsh.query(signature(own)) if other != text)
            found[kind] += any(jaccard(own, pieces[other]) >= 0.8 for other in near)
    _dump("near", found)


STEPS = {"prepare": prepare, "filter": filter_, "validate": validate, "build": build, "near": near}

if __name__ == "__main__":
    STEPS[sys.argv[1]]()
