"""Recompute the steps from the judge's journal to a training example, and name the first step that differs.

Each link compares one table with the tables before it: the answers with the journal, the label with the answers, the
filter's decision with the label, the build's decision with the filter's decision, and the branch of the tree with all
of them.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from extras.records.upstream_line import NOT_YET
from ground.io import parse_json
from pathfinder.core.labels import CORRECTNESS, CRITERIA, STEP_LABELS, UNASKED, correctness, drop_reason, given_scores
from pathfinder.core.params import Preset
from pathfinder.core.records import LABELS
from pathfinder.judge.parsing import read_scores

SAME, NOT_ASKED = "the same", "the judge gave no answer"
_SHOWN = 60
Row = Mapping[str, Any]


def journal_link(answers: Sequence[Row], folder: Path) -> str:
    """Compare the answers with those that the journals below ``folder`` received from the judge."""
    given = sorted((row for row in answers if row["answer"] is not None), key=lambda row: int(row["attempt"]))
    wanted = {f"{row['prompt_digest']}:{row['attempt']}": row for row in given}
    if not wanted:
        return NOT_ASKED
    found: dict[str, list[str]] = {key: [] for key in wanted}
    for journal in sorted(folder.glob("*/journal.jsonl")):
        for key in wanted:
            found[key] += _entries(journal, key)
    if missing := next((row for key, row in wanted.items() if not found[key]), None):
        return f"no journal on this machine has answer {missing['attempt']}"
    for key, row in wanted.items():
        if row["answer"] not in found[key]:
            return f"differs: the journal has another answer {row['attempt']}: {found[key][0][:_SHOWN]!r}"
    return SAME


def _entries(journal: Path, key: str) -> list[str]:
    """The text that a journal has for a key, if any; the search does not read the file into memory."""
    if not journal.stat().st_size:
        return []
    mark = f'"key": "{key}"'.encode()
    with journal.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(mark)
        if at < 0:
            return []
        line = content[content.rfind(b"\n", 0, at) + 1 : content.find(b"\n", at)]
    value = parse_json(line, f"{journal}: key {key}")["value"]
    return [str(value["text"])] if "text" in value else []


def label_link(step: Row, answers: Sequence[Row], label: Row | None, preset: Preset) -> str:
    """Compare the label with the rating or, if the judge was asked, with its last answer, parsed again."""
    if label is None:
        return NOT_YET
    given = given_scores(step["source"], step["rating"])
    if given is not None:
        return _compared("label", label, {"outcome": "given", **given.named}, "the rating implies")
    if not answers:
        expected = dict.fromkeys(CRITERIA)
        if label["outcome"] in UNASKED:
            return _compared("label", label, expected, "no judge was asked, which implies")
        return f"differs: the label has outcome {label['outcome']}, but there is no answer"
    last = max(answers, key=lambda answer: int(answer["attempt"]))
    scores, outcome = None, last["outcome"]
    if last["answer"] is not None and outcome in ("parsed", "unparsed"):
        scores, _ = read_scores(last["answer"], preset, cut=False)
        if outcome == "unparsed":
            scores = None  # an answer that reached the token limit is not read
        elif scores is None:
            return "differs: the last answer is parsed in the table, but it has no readable scores"
    implied = scores.named if scores else dict.fromkeys(CRITERIA)
    expected = {"outcome": outcome, "attempts": len(answers), **implied}
    return _compared("label", label, expected, "the judge's last answer implies")


def filter_link(step: Row, label: Row | None, clean: Row | None, drop: Row | None) -> str:
    """Compare the filter's decision with the rules, applied to the label in the table."""
    if label is None or (clean is None and drop is None):
        return NOT_YET
    if clean is not None and drop is not None:
        return "differs: the record is among the clean records and among the dropped ones"
    row = pl.DataFrame([{**label, "source": step["source"], "rating": step["rating"]}], schema=_LABELLED)
    reason, correct = row.select(drop_reason().alias("reason"), correctness().alias("correct")).row(0)
    if drop is not None:
        found = f"dropped it ({drop['reason']})"
        return SAME if drop["reason"] == reason else f"differs: filter {found}, the rules {_verdict(reason)}"
    if reason is not None or clean is None:
        return f"differs: filter kept it, the rules {_verdict(reason)}"
    expected = {name: correct if name == CORRECTNESS else label[name] for name in STEP_LABELS}
    return _compared("clean record", clean, expected, "the label implies")


def build_link(clean: Row | None, drop: Row | None, decision: Row | None, has_run: bool) -> str:
    """Compare the records in the build's decisions with the records that the filter kept."""
    if not has_run or (clean is None and drop is None):
        return NOT_YET
    if clean is None:
        return SAME if decision is None else "differs: build decided on a record that the filter dropped"
    return SAME if decision is not None else "differs: build has no decision on a record that the filter kept"


def branch_link(clean: Row | None, decision: Row | None, found: tuple[str, Row, Row] | None, has_run: bool) -> str:
    """Compare the branch in the tree with the decision and the clean record."""
    if not has_run:
        return NOT_YET
    side = None if decision is None else decision["side"]
    if found is None:
        return SAME if side is None else f"differs: build put it in the {side} set, but no tree there has it"
    if side is None:
        dropped = None if decision is None else decision["reason"]
        reason = f"dropped it ({dropped})" if dropped else "has no side for it"
        return f"differs: it is in the {found[0]} set, but build {reason}"
    if found[0] != side:
        return f"differs: it is in the {found[0]} set, build put it in the {side} set"
    if clean is None:
        return "differs: it is in a tree, but not among the clean records"
    return _compared("branch", found[2], {name: clean[name] for name in STEP_LABELS}, "the clean record has")


def first_break(links: Mapping[str, str]) -> str:
    """The first link that differs, as a text; "nowhere" if there is none."""
    return next((f"{name}: {link}" for name, link in links.items() if link.startswith("differs")), "nowhere")


_LABELLED: dict[str, Any] = {**LABELS, "source": pl.String(), "rating": pl.Int8()}


def _verdict(reason: str | None) -> str:
    return "keep it" if reason is None else f"drop it ({reason})"


def _compared(name: str, row: Row, expected: Row, says: str) -> str:
    differ = {key: value for key, value in expected.items() if row[key] != value}
    if not differ:
        return SAME
    values = ", ".join(f"{key} {row[key]}" for key in differ)
    return f"differs: the {name} has {values}; {says} {', '.join(f'{key} {value}' for key, value in differ.items())}"
