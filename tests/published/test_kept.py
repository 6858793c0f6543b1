"""The kept answers are whole: where each comes from, how many there are, and no published text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pathfinder.core import prompts
from pathfinder.judge.critic_prompts import PUBLISHED
from tests.published.kept import CASES
from tests.published.make import TOPICS
from tests.published.sources import PINS

COMPARISONS = 500


def functions() -> list[dict[str, Any]]:
    return [each for topic in TOPICS for each in json.loads((CASES / f"{topic}.json").read_text(encoding="utf-8"))]


def test_every_topic_has_cases_of_a_pinned_commit() -> None:
    assert {*TOPICS} <= {path.stem for path in CASES.iterdir()}
    for each in functions():
        assert each["commit"] == PINS[each["repository"]]
        assert re.fullmatch(r"\d+-\d+", each["lines"])
        assert each["cases"]
    assert sum(len(each["cases"]) for each in functions()) >= COMPARISONS


def test_every_deliberate_difference_names_its_page(root: Path) -> None:
    reasons = {case["differs"] for each in functions() for case in each["cases"] if "differs" in case}
    assert reasons
    for reason in reasons:
        page, _, words = reason.partition(": ")
        assert words in (root / page).read_text(encoding="utf-8"), reason


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_no_published_text_is_copied(path: Path) -> None:
    kept = path.read_text(encoding="utf-8")
    texts = [getattr(prompts, name) for name in prompts.DIGESTS] + list(PUBLISHED.values())
    lines = {line.strip() for text in texts for line in text.splitlines() if len(line.strip()) > 40}
    assert lines
    assert not [line for line in lines if line in kept]
