"""Statistics of a generated world, counted from its files: faults, labels, misreadings and leakage.

Nothing is taken from the generator: stories are parsed from their text, and the oracle labels each step again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the files: the state before it, the label recorded for it, and the oracle's verdict."""

    problem: Problem
    before: State
    text: str
    label: str
    verdict: Verdict | None


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
            for step in _steps(name, problem, row):
                _add(part, step)
    part.stories_of_another_split = sum(split_of(problem) != split for problem in part.problems.values())
    return part


def _text_of(row: Any) -> str:
    if "conversations" in row:
        found = _TURN.fullmatch(row["conversations"][0]["content"])
        return str(found["story"] if found else "")
    asked = row.get("question", row.get("problem"))
    return str(asked["problem"] if isinstance(asked, dict) else asked)


def _add(part: Part, step: Step) -> None:
    part.steps += 1
    part.labels[step.label] += 1
    parsed = parse(step.text)
    if step.verdict is None or parsed is None:
        part.outside_the_grammar += 1
        return
    part.sound += step.verdict.is_correct
    part.faults.update(step.verdict.faults or ("none",))
    part.labels_as_the_oracle[step.label] += step.label == _true_label(step, step.verdict)
    if isinstance(parsed.body, Claim) and parsed.body.verb in TRICKY:
        part.steps_about_tricky_events += 1
        part.misread += "misreading" in step.verdict.faults


def _true_label(step: Step, verdict: Verdict) -> str:
    """The label that an exact annotator of the same kind would have recorded."""
    if step.label in ("+", "-"):
        return "+" if is_on_track(step.problem, step.before, verdict.state) else "-"
    if step.label in ("sound", "first wrong"):
        return "sound" if verdict.is_correct else "first wrong"
    if step.label in ("error", "no error"):
        return "no error" if verdict.rating == 1 else "error"
    return str(verdict.rating)


def _steps(name: str, problem: Problem, row: Any) -> Iterator[Step]:
    if name.startswith("PRM800K"):
        yield from _rated(problem, row["label"]["steps"])
    elif name == "Mistral":
        turns = row["conversations"]
        texts = [found["step"] for turn in turns[::2] if (found := _TURN.fullmatch(turn["content"]))]
        yield from _chain(problem, texts, [turn["content"] for turn in turns[1::2]])
    elif name == "ProcessBench":
        end = len(row["steps"]) if row["label"] < 0 else row["label"] + 1
        labels = ["first wrong" if place == row["label"] else "sound" for place in range(end)]
        yield from _chain(problem, row["steps"][:end], labels)
    elif name == "PRMBench":
        steps, errors = row["modified_process"], row["error_steps"]
        labels = ["error" if place in errors else "no error" for place in range(1, len(steps) + 1)]
        yield from _chain(problem, steps, labels)


def _chain(problem: Problem, texts: list[str], labels: list[str]) -> Iterator[Step]:
    state: State | None = begin(problem)
    for text, label in zip(texts, labels, strict=True):
        before = state or begin(problem)
        verdict = assess(problem, before, text) if state is not None else None
        yield Step(problem, before, text, label, verdict)
        state = verdict.state if verdict else None


def _rated(problem: Problem, steps: list[Any]) -> Iterator[Step]:
    """Every alternative of every step; the next step follows the chosen one."""
    state = begin(problem)
    for step in steps:
        for completion in step["completions"]:
            rating = completion["rating"]
            verdict = assess(problem, state, completion["text"])
            yield Step(problem, state, completion["text"], "none" if rating is None else str(rating), verdict)
        place = step["chosen_completion"]
        chosen = step["human_completion"] if place is None else step["completions"][place]
        after = assess(problem, state, chosen["text"]) if chosen is not None else None
        if after is None:
            return
        state = after.state
