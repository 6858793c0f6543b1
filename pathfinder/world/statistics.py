"""What a generated world holds, counted from its files by the oracle: faults, labels, misconceptions, and leakage.

Nothing is taken from the generator: stories are read back from their text, and every step is judged anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, read_json, read_jsonl
from pathfinder.world.story import SIGN, TRICKY, Claim, Event, Problem, State, Verdict, assess, begin, parse, split_of

PARTS = {
    "PRM800K, train": ("prm800k/*_train.jsonl.gz", "train"),
    "PRM800K, test": ("prm800k/*_test.jsonl.gz", "train"),
    "Mistral": ("mistral/*.jsonl.gz", "train"),
    "ProcessBench": ("processbench/*.json", "benchmark"),
    "PRMBench": ("prmbench/*.jsonl", "benchmark"),
    "search": ("search/*.jsonl", "search"),
}
"""Parts of a world: their files, and the split (by digest of the text) that their stories come from."""
_HEAD = re.compile(r"(\w+) has (\d+) (\w+)\.")
_EVENT = re.compile(rf"\d+\) (\w+) ({'|'.join(SIGN)}) (them|\d+)\.")
_TURN = re.compile(r"(?s)(?:(?P<story>.*\?) )?Step \d+: (?P<step>.*)")


def read_story(text: str) -> Problem:
    """The story that a text tells, without its level; raises ``DataError`` where it is none."""
    head, *events, _ = [*text.split("\n"), ""]
    found, told = _HEAD.fullmatch(head), [_EVENT.fullmatch(line) for line in events[:-1]]
    if found is not None and all(told):
        read = tuple(Event(m[1], m[2], 2 if m[3] == "them" else int(m[3])) for m in told if m)
        story = Problem("", found[1], found[3], int(found[2]), read)
        if story.text == text:
            return story
    raise DataError(f"{text!r} is no story of this world; make the corpora again")


@dataclass(frozen=True, slots=True)
class Step:
    """A step as the files have it: what it stands on, what was recorded about it, and the oracle's verdict."""

    problem: Problem
    before: State
    text: str
    label: str
    verdict: Verdict | None


@dataclass(slots=True)
class Part:
    """The counts of one part."""

    problems: dict[str, Problem] = field(default_factory=dict)
    items: int = 0
    steps: int = 0
    unread: int = 0  # steps outside the grammar
    sound: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    agreeing: Counter[str] = field(default_factory=Counter)  # of them with what the oracle would have said
    faults: Counter[str] = field(default_factory=Counter)
    tricky_steps: int = 0  # claims about the hero's "takes back" and "gives back" events
    misread: int = 0
    outside: int = 0  # stories of another split than the part's

    @property
    def tricky(self) -> list[int]:
        """For each story the number of the hero's events that are commonly misread."""
        return [sum(e.actor == p.hero and e.verb in TRICKY for e in p.events) for p in self.problems.values()]


def count(folder: Path) -> dict[str, Part]:
    """Every part of the world in ``folder`` (shaped as ``data/``)."""
    return {name: _count(folder, name) for name in PARTS}


def shared(parts: dict[str, Part]) -> dict[tuple[str, str], set[str]]:
    """For each two parts the stories, by their text, that both hold."""
    return {
        (one, other): parts[one].problems.keys() & parts[other].problems.keys() for one, other in combinations(parts, 2)
    }


def planted(folder: Path) -> set[str]:
    """The stories that are in two parts on purpose, so that the search for overlap has something to find."""
    return set(read_json(folder / "world.json")["planted"]["overlap_with_benchmarks"])


def _count(folder: Path, name: str) -> Part:
    pattern, split = PARTS[name]
    files = sorted(folder.glob(pattern))
    if not files:
        raise DataError(f"{folder / pattern}: no such file; name a folder that is shaped as data/")
    part = Part()
    for path in files:
        rows = read_json(path) if path.suffix == ".json" else [row for _, row in read_jsonl(path)]
        for row in rows:
            part.items += 1
            problem = read_story(_text_of(row))
            part.problems[problem.text] = problem
            for step in _steps(name, problem, row):
                _add(part, step)
    part.outside = sum(split_of(problem) != split for problem in part.problems.values())
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
    said = parse(step.text)
    if step.verdict is None or said is None:
        part.unread += 1
        return
    part.sound += step.verdict.sound
    part.faults.update(step.verdict.faults or ("none",))
    part.agreeing[step.label] += step.label == _truth(step, step.verdict)
    body = said.body
    if isinstance(body, Claim) and body.verb in TRICKY:
        part.tricky_steps += 1
        part.misread += "misreading" in step.verdict.faults


def _truth(step: Step, verdict: Verdict) -> str:
    """What an exact annotator of the same kind would have recorded."""
    if step.label in ("+", "-"):
        after, problem = verdict.state, step.problem
        early = after.ended and step.before.done < len(problem.events)
        return "+" if after.value == problem.values[after.done] and not early else "-"
    if step.label in ("sound", "first wrong"):
        return "sound" if verdict.sound else "first wrong"
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
        steps, wrong = row["modified_process"], set(row["error_steps"])
        yield from _chain(
            problem, steps, ["error" if place in wrong else "no error" for place in range(1, len(steps) + 1)]
        )


def _chain(problem: Problem, texts: list[str], labels: list[str]) -> Iterator[Step]:
    state: State | None = begin(problem)
    for text, label in zip(texts, labels, strict=True):
        before = state or begin(problem)
        verdict = assess(problem, before, text) if state is not None else None
        yield Step(problem, before, text, label, verdict)
        state = verdict.state if verdict else None


def _rated(problem: Problem, steps: list[Any]) -> Iterator[Step]:
    """Every alternative of every step; the next step stands on the chosen one."""
    state = begin(problem)
    for step in steps:
        for completion in step["completions"]:
            rating = completion["rating"]
            verdict = assess(problem, state, completion["text"])
            yield Step(problem, state, completion["text"], "none" if rating is None else str(rating), verdict)
        chosen = (
            step["human_completion"]
            if step["chosen_completion"] is None
            else step["completions"][step["chosen_completion"]]
        )
        after = assess(problem, state, chosen["text"]) if chosen is not None else None
        if after is None:
            return
        state = after.state
