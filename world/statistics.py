"""Statistics of a generated world: faults, labels, misreadings and leakage.

They are counted from the files: stories are parsed from their text, and the oracle labels each step again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import combinations
from pathlib import Path
from typing import Any

from ground.io import DataError, read_json, read_jsonl
from world.oracle import State, Verdict, assess, begin, is_on_track, verb_of
from world.story import TRICKY, Problem, read_story, split_of

PARTS = {
    "PRM800K, train": ("prm800k/*_train.jsonl.gz", "train"),
    "PRM800K, test": ("prm800k/*_test.jsonl.gz", "train"),
    "Mistral": ("mistral/*.jsonl.gz", "train"),
    "ProcessBench": ("processbench/*.json", "benchmark"),
    "PRMBench": ("prmbench/*.jsonl", "benchmark"),
    "search": ("search/*.jsonl", "search"),
}
"""The files of each part of a world, and the split of its stories."""
_TURN = re.compile(r"(?s)(?:(?P<story>.*\?) )?Step \d+: (?P<step>.*)")


@dataclass(slots=True)
class Part:
    """The counts of one part, named as in statistics.json."""

    problems: dict[str, Problem] = field(default_factory=dict)
    items: int = 0
    steps: int = 0
    outside_the_grammar: int = 0
    sound: int = 0  # correct steps
    labels: Counter[str] = field(default_factory=Counter)
    labels_as_the_oracle: Counter[str] = field(default_factory=Counter)  # recorded labels that equal the oracle's
    faults: Counter[str] = field(default_factory=Counter)
    instructed: Counter[str] = field(default_factory=Counter)  # correct steps by "kind, label", kinds of INSTRUCTED
    steps_about_tricky_events: int = 0
    misread: int = 0  # of the steps about tricky events
    stories_of_another_split: int = 0

    @property
    def tricky(self) -> list[int]:
        """The number of the hero's tricky events in each story."""
        return [sum(e.actor == p.hero and e.verb in TRICKY for e in p.events) for p in self.problems.values()]

    def add(self, problem: Problem, before: State | None, step: str, label: str) -> None:
        """Count a step with its recorded label; ``before`` is ``None`` after a step outside the grammar."""
        self.steps += 1
        self.labels[label] += 1
        verdict = assess(problem, before, step) if before else None
        if verdict is None:
            self.outside_the_grammar += 1
            return
        self.sound += verdict.is_correct
        self.faults.update(verdict.faults or ("none",))
        self.instructed.update([f"{verdict.instructed}, {label}"] if verdict.instructed else [])
        self.labels_as_the_oracle[label] += label == _true_label(problem, verdict, label)
        if verb_of(problem, verdict) in TRICKY:
            self.steps_about_tricky_events += 1
            self.misread += "misreading" in verdict.faults

    def figures(self) -> dict[str, Any]:
        """The counts as JSON."""
        counts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "problems"}
        tricky = self.tricky
        return counts | {
            "stories": len(self.problems),
            "tricky_events": sum(tricky),
            "stories_with_a_tricky_event": sum(n > 0 for n in tricky),
        }


def count(folder: Path) -> dict[str, Part]:
    """Count the parts of a world; raises ``DataError`` if a file is missing or not readable as stories."""
    return {name: _count(folder, name) for name in PARTS}


def shared(parts: dict[str, Part]) -> dict[tuple[str, str], set[str]]:
    """The texts of the stories that two parts share, for each pair of parts."""
    return {(a, b): parts[a].problems.keys() & parts[b].problems.keys() for a, b in combinations(parts, 2)}


def planted(folder: Path) -> set[str]:
    """The stories that are in two parts on purpose, for testing the overlap search."""
    return set(read_json(folder / "world.json")["planted"]["overlap_with_benchmarks"])


def _count(folder: Path, name: str) -> Part:
    pattern, split = PARTS[name]
    files = sorted(folder.glob(pattern))
    if not files:
        raise DataError(f"{folder / pattern}: no such file; name a folder with the layout of data/")
    part = Part()
    for path in files:
        rows = read_json(path) if path.suffix == ".json" else [row for _, row in read_jsonl(path)]
        for row in rows:
            problem = read_story(_text_of(row))
            part.items += 1
            part.problems[problem.text] = problem
            state: State | None = begin(problem)
            for rated, chosen in _places(name, row):
                for text, label in rated:
                    part.add(problem, state, text, label)
                verdict = assess(problem, state, chosen) if state and chosen else None
                state = verdict.after if verdict else None
    part.stories_of_another_split = sum(split_of(problem) != split for problem in part.problems.values())
    return part


def _text_of(row: Any) -> str:
    if "conversations" in row:
        found = _TURN.fullmatch(row["conversations"][0]["content"])
        return str(found["story"] if found else "")
    asked = row.get("question", row.get("problem"))
    return str(asked["problem"] if isinstance(asked, dict) else asked)


def _true_label(problem: Problem, verdict: Verdict, label: str) -> str:
    """The label that an exact annotator of the same kind would have recorded."""
    if label in ("+", "-"):
        return "+" if is_on_track(problem, verdict) else "-"
    if label in ("sound", "first wrong"):
        return "sound" if verdict.is_correct else "first wrong"
    if label in ("error", "no error"):
        return "no error" if verdict.rating == 1 else "error"
    return str(verdict.rating)


def _places(name: str, row: Any) -> Iterator[tuple[list[tuple[str, str]], str | None]]:
    """For each place of a solution, its steps with their labels, and the step that the solution continues from."""
    if name.startswith("PRM800K"):
        for place in row["label"]["steps"]:
            rated = [(each["text"], str(each["rating"]).lower()) for each in place["completions"]]
            chosen, human = place["chosen_completion"], place["human_completion"]
            yield rated, human and human["text"] if chosen is None else rated[chosen][0]
        return
    steps: list[str] = row.get("steps", row.get("modified_process", []))
    labels: list[str] = []
    if name == "Mistral":
        turns = [turn["content"] for turn in row["conversations"]]
        steps, labels = [match["step"] for turn in turns[::2] if (match := _TURN.fullmatch(turn))], turns[1::2]
    elif name == "ProcessBench":
        steps = steps if row["label"] < 0 else steps[: row["label"] + 1]
        labels = ["first wrong" if place == row["label"] else "sound" for place in range(len(steps))]
    elif name == "PRMBench":
        labels = ["error" if place in row["error_steps"] else "no error" for place, _ in enumerate(steps, start=1)]
    yield from (([pair], pair[0]) for pair in zip(steps, labels, strict=True))
