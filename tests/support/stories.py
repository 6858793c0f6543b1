"""A story, an independent reader of stories, and the configuration of a small corpus."""

from __future__ import annotations

import re

from world.recipes import CorpusConfig
from world.story import Event, Problem

SMALL = CorpusConfig(
    phase1_train=30, phase1_test=25, phase2_train=40, phase2_test=5, mistral=40, processbench=20, prmbench=6, search=5
)
STORY = Problem(
    "math",
    "Tom",
    "apples",
    5,
    (Event("Tom", "buys", 7), Event("Ann", "sells", 6), Event("Tom", "takes back", 2), Event("Tom", "doubles", 2)),
)


def no_policy(problems: list[Problem], purpose: str) -> list[list[str]]:
    """A solver that solves nothing."""
    return []


def read_again(text: str) -> Problem:
    """Parse the text of a story, independently of ``world.story``."""
    head, *lines, _ = text.split("\n")
    name, _, start, noun = head.rstrip(".").split(" ")
    events = []
    for line in lines:
        found = re.fullmatch(r"\d\) (\w+) (.+) (\d+|them)\.", line)
        assert found, line
        events.append(Event(found[1], found[2], 2 if found[3] == "them" else int(found[3])))
    return Problem("any", name, noun, int(start), tuple(events))
