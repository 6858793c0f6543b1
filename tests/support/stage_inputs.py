"""Small inputs in the upstream formats, and parameters, for tests that run stages in a temporary folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from ground.io import write_jsonl

ROOT = Path(__file__).resolve().parents[2]


def write_params(folder: Path, **sections: dict[str, Any]) -> None:
    """Write ``params.yaml``: the full-size profile with these values changed. The list of exclusions is empty."""
    content = yaml.safe_load((ROOT / "infra" / "profiles" / "paper.yaml").read_text(encoding="utf-8"))
    for section, values in sections.items():
        content[section] |= values
    (folder / "params.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    (folder / "exclusions.jsonl").touch()


def prm800k_line(problem: str, *steps: list[tuple[Any, Any]]) -> dict[str, Any]:
    """A line with (text, rating) alternatives per step; the last one is chosen."""
    return {
        "labeler": None,
        "question": {"problem": problem, "ground_truth_answer": "2"},
        "is_quality_control_question": False,
        "label": {
            "steps": [
                {
                    "completions": [{"text": text, "rating": rating, "flagged": False} for text, rating in step],
                    "human_completion": None,
                    "chosen_completion": len(step) - 1,
                }
                for step in steps
            ],
            "finish_reason": "solution",
        },
    }


def conversation(problem: str, *steps: tuple[str, str]) -> dict[str, Any]:
    """A conversation of (text, mark) steps."""
    turns = []
    for number, (text, mark) in enumerate(steps, start=1):
        content = f"{problem} Step 1: {text}" if number == 1 else f"Step {number}: {text}"
        turns += [{"content": content, "role": "user"}, {"content": mark, "role": "assistant"}]
    return {"conversations": turns}


def write_raw(folder: Path, lines: int = 6) -> None:
    """Raw files of both sources below ``folder``/artifacts/raw, with 9 records per pair of upstream lines."""
    raw = folder / "artifacts" / "raw"
    human = [
        prm800k_line(
            f"What is {n} + 1?",
            [(f"{n} + 1 = {n}", -1), (f"We add 1 to {n}.", 1)],
            [(f"So it is {n}.", -1), ("We said that.", 0), (f"So it is {n + 1}.", 1)],
        )
        for n in range(lines)
    ]
    write_jsonl(raw / "prm800k" / "phase1_train.jsonl", human)
    talks = [
        conversation(f"What is {n} + 2?", (f"{n} + 2", "+"), (f"{n} + 2 = {n}", "-"), (f"It is {n}", "-"), ("End", "+"))
        for n in range(lines)
    ]
    (raw / "mistral").mkdir(parents=True)
    (raw / "mistral" / "data.json").write_text(json.dumps(talks), encoding="utf-8")
