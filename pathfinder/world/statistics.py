"""Statistics of a generated world, counted from its files: faults, labels, misreadings and leakage.

Nothing is taken from the generator: stories are parsed from their text, and the oracle labels each step again.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import combinations
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, read_json, read_jsonl
from pathfinder.world.oracle import Claim, State, Verdict, assess, begin, is_on_track, parse
from pathfinder.world.story import TRICKY, Problem, read_story, split_of

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
    steps_about_tricky_events: int = 0
    misread: int = 0  # of the steps about tricky events
    stories_of_another_split: int = 0

    @property
    def tricky(self) -> list[int]:
        """The number of the hero's tricky events in each story."""
        return [sum(e.actor == p.hero and e.verb in TRICKY for e in p.events) for p in self.problems.values()]

    def add(self, problem: Problem, before: State | None, step: str, label: str) -> State | None:
        """Count a step with its recorded label; returns the state after it, ``None`` from the first unknown one on."""
        self.steps += 1
        self.labels[label] += 1
        verdict, parsed = assess(problem, before, step) if before is not None else None, parse(step)
        if before is None or verdict is None or parsed is None:
            self.outside_the_grammar += 1
            return None
        self.sound += verdict.is_correct
        self.faults.update(verdict.faults or ("none",))
        self.labels_as_the_oracle[label] += label == _true_label(problem, before, verdict, label)
        if isinstance(parsed.body, Claim) and parsed.body.verb in TRICKY:
            self.steps_about_tricky_events += 1
            self.misread += "misreading" in verdict.faults
        return verdict.state

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
    """Count every part of the world in ``folder``, which has the layout of ``data/``.

    Raises ``DataError`` if a file is missing or contains a text that is not a story.
    """
    return {name: _count(folder, name) for name in PARTS}


def shared(parts: dict[str, Part]) -> dict[tuple[str, str], set[str]]:
    """The texts of the stories that two parts share, for each pair of parts."""
    return {(a, b): parts[a].problems.keys() & parts[b].problems.keys() for a, b in combinations(parts, 2)}


def planted(folder: Path) -> set[str]:
    """The stories that are in two parts on purpose, to test the search for overlap."""
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
            part.items += 1
            problem = read_story(_text_of(row))
            part.problems[problem.text] = problem
            _add_steps(part, name, problem, row)
    part.stories_of_another_split = sum(split_of(problem) != split for problem in part.problems.values())
    return part


def _text_of(row: Any) -> str:
    if "conversations" in row:
        found = _TURN.fullmatch(row["conversations"][0]["content"])
        return str(found["story"] if found else "")
    asked = row.get("question", row.get("problem"))
    return str(asked["problem"] if isinstance(asked, dict) else asked)


def _true_label(problem: Problem, before: State, verdict: Verdict, label: str) -> str:
    """The label that an exact annotator of the same kind would have recorded."""
    if label in ("+", "-"):
        return "+" if is_on_track(problem, before, verdict.state) else "-"
    if label in ("sound", "first wrong"):
        return "sound" if verdict.is_correct else "first wrong"
    if label in ("error", "no error"):
        return "no error" if verdict.rating == 1 else "error"
    return str(verdict.rating)


def _add_steps(part: Part, name: str, problem: Problem, row: Any) -> None:
    if name.startswith("PRM800K"):
        _add_rated(part, problem, row["label"]["steps"])
    elif name == "Mistral":
        turns = row["conversations"]
        texts = [found["step"] for turn in turns[::2] if (found := _TURN.fullmatch(turn["content"]))]
        _add_chain(part, problem, texts, [turn["content"] for turn in turns[1::2]])
    elif name == "ProcessBench":
        end = len(row["steps"]) if row["label"] < 0 else row["label"] + 1
        labels = ["first wrong" if place == row["label"] else "sound" for place in range(end)]
        _add_chain(part, problem, row["steps"][:end], labels)
    elif name == "PRMBench":
        steps, errors = row["modified_process"], row["error_steps"]
        labels = ["error" if place in errors else "no error" for place in range(1, len(steps) + 1)]
        _add_chain(part, problem, steps, labels)


def _add_chain(part: Part, problem: Problem, texts: list[str], labels: list[str]) -> None:
    state: State | None = begin(problem)
    for text, label in zip(texts, labels, strict=True):
        state = part.add(problem, state, text, label)


def _add_rated(part: Part, problem: Problem, steps: list[Any]) -> None:
    """Every alternative of every step; the next step follows the chosen one."""
    state: State | None = begin(problem)
    for step in steps:
        ratings = ["none" if each["rating"] is None else str(each["rating"]) for each in step["completions"]]
        texts = [each["text"] for each in step["completions"]]
        after = [part.add(problem, state, text, rating) for text, rating in zip(texts, ratings, strict=True)]
        if step["chosen_completion"] is not None:
            state = after[step["chosen_completion"]]
        else:
            human = step["human_completion"]
            verdict = assess(problem, state, human["text"]) if human and state else None
            state = verdict.state if verdict else None
        if state is None:
            return
