"""The published conversions of PRM800K and of Monte-Carlo conversations into records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from ground.io import text_digest
from tests.published.sources import Differs, Source

HUMAN = "src/data_generation/load_data.py"
MISTRAL = "src/data_generation/load_data_mistral.py"
TEXTS = ("a", "b\nc", "", " ", "\n\n", "so 4\n\n# Answer\n\n4", "x\u2028y", "½ ≤ {context}", "Step 2: d")
FIRST_TURNS = ("Q? Step 1: a", "Q?\n Step 1:  a\nStep 2: b ", "no caption", "Q step 1: a", "Q? Step 1:")
PRM800K_CASES, MISTRAL_CASES = 60, 48


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The records of one solution or of one small file a case, with the digest of the judge's context."""
    source = sources["declare-lab/PathFinder-PRM"]
    human, mistral = source.module(HUMAN), source.module(MISTRAL)

    def of_prm800k(solution: dict[str, Any]) -> Any:
        human.create_new_dataset([solution], "out")
        return _kept("out/processed_dataset.json", "human_score")

    def of_mistral(dataset: list[Any]) -> Any:
        Path("given.json").write_text(json.dumps(dataset))
        mistral.process_mistral_dataset(mistral.load_mistral_dataset("given.json"), "out")
        return _kept("out/processed_mistral_dataset.json", "mistral_score")

    solutions = [*(_solution(Random(number)) for number in range(PRM800K_CASES)), *_odd_solutions()]
    conversations = [
        *(_conversations(Random(number), number) for number in range(MISTRAL_CASES)),
        *_odd_conversations(),
    ]
    return [
        source.recorded(HUMAN, "create_new_dataset", of_prm800k, solutions),
        source.recorded(MISTRAL, "process_mistral_dataset", of_mistral, conversations),
    ]


def _kept(file: str, score: str) -> list[dict[str, Any]]:
    records = json.loads(Path(file).read_text(encoding="utf-8"))
    return [
        {key: each[key] for key in ("question", "prev_steps", "curr_step", score)}
        | {"context": text_digest(each["context"])}
        for each in records
    ]


def _solution(rng: Random) -> dict[str, Any]:
    steps = []
    for _ in range(rng.randint(0, 4)):
        completions: list[dict[str, Any]] = []
        for _ in range(rng.randint(0, 3)):
            completion = {"text": rng.choice(TEXTS), "rating": rng.choice((-1, 0, 1, 1, None))}
            if rng.random() < 0.1:
                del completion[rng.choice(("text", "rating"))]
            completions.append(completion)
        chosen = rng.choice((None, 0, 0, 1, 2, -1, 5))
        human = rng.choice((None, None, {"text": rng.choice(TEXTS), "rating": None}, {"rating": 1}))
        step = {"completions": completions, "chosen_completion": chosen, "human_completion": human}
        if rng.random() < 0.1:
            del step[rng.choice(tuple(step))]
        steps.append(step)
    return _wrapped(steps)


def _wrapped(steps: list[Any]) -> dict[str, Any]:
    return {"question": {"problem": "How many?"}, "label": {"steps": steps, "finish_reason": "solution"}}


def _odd_solutions() -> list[Any]:
    """Odd completions, each before a plain step."""
    after = {"completions": [{"text": "z", "rating": 1}], "chosen_completion": 0}
    plain = {"text": "a", "rating": 1}
    null = "docs/data.md: PRM800K: null `text`, chosen or not"
    return [
        _wrapped([{"completions": [plain], "human_completion": {}}, after]),
        _wrapped([{"completions": None, "human_completion": {"text": "h"}}, after]),
        Differs(
            _wrapped([{"completions": [{"text": "a", "rating": 2}]}, after]),
            "docs/data.md: rating other than -1, 0, 1, null",
        ),
        Differs(_wrapped([{"completions": [{"text": None}, plain], "chosen_completion": 1}, after]), null),
        Differs(_wrapped([{"completions": [{"text": None}], "chosen_completion": 0}, after]), null),
        Differs(_wrapped([{"completions": [plain], "human_completion": {"text": None}}, after]), null),
    ]


def _conversations(rng: Random, number: int) -> list[Any]:
    """Two conversations of one form: objects with ``conversations``, or bare lists of turns."""
    found = []
    for _ in range(2):
        turns = [{"role": "user", "content": rng.choice(FIRST_TURNS)}]
        for _ in range(rng.randint(0, 4)):
            turns.append({"role": "assistant", "content": rng.choice(("+", "+", "-", "?", " +", "", "＋"))})
            turns.append({"role": "user", "content": rng.choice((*TEXTS, "Step 2: b", "Step 3: c\nStep 4: d"))})
        if rng.random() < 0.7:
            turns.append({"role": "assistant", "content": "-"})
        if rng.random() < 0.25 and len(turns) > 2:
            del turns[rng.randrange(1, len(turns))]["content"]
        found.append(turns)
    return found if number % 2 else [{"conversations": turns} for turns in found]


def _odd_conversations() -> list[Any]:
    """Broken examples and mixed forms before a whole example."""
    whole = [{"role": "user", "content": "Q? Step 1: a"}, {"role": "assistant", "content": "+"}]
    nameless = [{"content": "Q? Step 1: a"}, {"content": "+"}]
    wrapped = {"conversations": whole}
    turn, null = (
        "docs/data.md: conversations: a turn that is no object",
        "docs/data.md: conversations: null content of a later turn",
    )
    mixed, empty = "docs/data.md: each item decides for itself", "docs/data.md: conversations: no question before"
    return [
        [],
        [whole[:1], whole],
        [[], whole],
        [nameless, whole],
        [[{"role": "user"}, whole[1]], whole],
        [[{"role": "user", "content": None}, whole[1]], whole],
        [wrapped, {"other": 1}],
        [wrapped, {"conversations": "x"}],
        Differs([[{"role": "user", "content": "Step 1: a"}, whole[1]], whole], empty),
        Differs([[{"role": "user", "content": ""}, whole[1]], whole], empty),
        Differs([[*whole, "x"], whole], turn),
        Differs([[*whole, 1, *whole], whole], turn),
        Differs([[*whole, {"role": "user", "content": None}], whole], null),
        Differs([wrapped, whole], mixed),
        Differs([whole, wrapped], mixed),
        Differs([{"other": 1}, wrapped], mixed),
    ]
