"""The figures and files of the published ProcessBench runner over whole subsets."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.published.runners import BAD, GOOD, PROCESSBENCH, SUBSETS, arguments
from tests.published.scripted import Model, Tokenizer, loaded
from tests.published.sources import Source, absent

RUNS = 16


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """A run over four small subsets a case: the rows of its files, without their texts, and its figures."""
    source = sources["declare-lab/PathFinder-PRM"]
    with absent("datasets"):
        script = source.module(PROCESSBENCH)

    def run(given: dict[str, Any]) -> Any:
        said = [
            [BAD if place == item["predicted"] else GOOD] * 2
            for name in SUBSETS
            for item in given[name]
            for place in range(item["predicted"] + 1 if item["predicted"] >= 0 else len(item["steps"]))
        ]
        script.load_dataset = lambda _, split: given[split]
        script.AutoTokenizer, script.AutoModelForCausalLM = loaded(Tokenizer()), loaded(Model(iter(said)))
        shutil.rmtree("out", ignore_errors=True)
        with arguments("--model_path", "prm", "--output_dir", "out"):
            script.main()
        figures = [{key: _number(value) for key, value in line.items()} for line in _lines(Path("out/results.jsonl"))]
        rows = {path.name: list(map(_answer, _lines(path))) for path in sorted(Path("out").glob("*_*.jsonl"))}
        return {"files": rows, "results": figures}

    return [source.recorded(PROCESSBENCH, "main", run, [_subsets(Random(number)) for number in range(RUNS)])]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("id", "label", "prediction", "match")}


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _subsets(rng: Random) -> dict[str, Any]:
    """Up to four solutions a subset; in some runs all are correct, all wrong, or no prediction is right."""
    kinds = rng.choice(((-1, 0, 1, 2), (-1,), (0, 1, 2), (-1, 0)))
    found = {}
    for name in SUBSETS:
        items = []
        for number in range(rng.randint(1, 4)):
            label = rng.choice(kinds)
            predicted = label if rng.random() < 0.5 else rng.choice((-1, 0, 1, 2))
            item = {"id": f"{name}-{number}", "problem": "Q?", "steps": ["a", "b", "c"], "label": label}
            items.append(item | {"final_answer_correct": label == -1, "predicted": predicted})
        found[name] = items
    return found
