"""The PRMBench kit: its loader, its metric, the files that it writes, and the table of ``results_prm_bench.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from accelerate import Accelerator

from tests.published.sources import Source, absent

TASK = "mr_eval/tasks/prmtest_classified/task.py"
TABLE = "src/evaluation/results_prm_bench.py"
CLASSES = (
    "redundency", "circular", "counterfactual", "step_contradiction", "domain_inconsistency", "confidence",
    "missing_condition", "deception", "multi_solutions",
)  # fmt: skip
CASES, WITH_FILES = 40, 8


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The files and figures that the kit makes of predictions, and the table made of them."""
    kit, source = sources["ssmisya/PRMBench"], sources["declare-lab/PathFinder-PRM"]
    (kit.folder / "mr_eval/scripts/logs/generated").mkdir(parents=True, exist_ok=True)
    Accelerator()  # the kit's main function begins so; its loggers need one
    names = ("loguru", "requests", "PIL", "PIL.Image", "peft")
    with absent(*names, box={"Box": dict}):
        task = kit.package("", "mr_eval.tasks.prmtest_classified.task")
        base = kit.package("", "mr_eval.tasks.base_dataset.base_evaluation_dataset")
    score = source.parts(TABLE, ["get_score"]).get_score
    return [kit.recorded(TASK, "evaluate_function", lambda given: _evaluated(task, base, score, given), _runs())]


def _evaluated(task: Any, base: Any, score: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Load the rows, store the results as a model does, evaluate, read the files back, and make the table."""
    data, checkpoint, output = Path("data"), Path("checkpoint.jsonl"), Path("output.jsonl")
    data.mkdir(exist_ok=True)
    checkpoint.write_text("")
    (data / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given["rows"]))
    task.task_config["dataset_path"] = str(data)
    dataset = base.BaseEvalDataset(
        task.load_data_function,
        getitem_function=None,
        evaluate_function=task.evaluate_function,
        task_config={"task_name": "prmtest_classified"},
        task_args=SimpleNamespace(resume_from_ckpt={}, save_to_ckpt={"prmtest_classified": str(checkpoint)}),
        model_args=SimpleNamespace(model="reasoneval"),
    )
    for result in given["results"]:
        dataset.store_results(result)
    output.unlink(missing_ok=True)
    figures = dataset.evaluate()
    dataset.save_result_item_into_log(figures, output)  # as the kit's evaluator appends it
    files = {"checkpoint": checkpoint, "log": output} if given["has_files"] else {}
    classes = [name for name in CLASSES if name in figures["hallucination_type_results"]["f1"]]
    del figures["detailed_logs"]
    return {
        "items": dataset.full_data,
        "figures": figures,
        "table": {name or "overall": score(name, figures) for name in (*classes, None)},
        "files": {name: [json.loads(line) for line in path.open()] for name, path in files.items()},
    }


def _runs() -> list[dict[str, Any]]:
    return [_run(Random(number), number) for number in range(CASES)]


def _run(rng: Random, number: int) -> dict[str, Any]:
    """A few rows of some classes, and results with every defect that a file can have."""
    classes = rng.sample(CLASSES, rng.randint(1, 4) if number < CASES - 1 else 9) + ["redundency"] * (number % 2)
    rows, results = [], []
    for place, name in enumerate(classes):
        steps, idx = rng.randint(1, 4), str(rng.randint(0, 1))
        wrong = sorted(rng.sample(range(1, 6), rng.randint(0, 2)))
        row = {"idx": idx, "classification": name, "original_question": "o", "modified_question": "m"}
        texts = {"original_process": ["a"] * rng.randint(1, 3), "modified_process": ["b"] * steps}
        rows.append(row | texts | {"error_steps": wrong})
        results.append(_result(rng, f"{name}_{idx}", steps, name in ("redundency", "circular") or not place))
        if name == "redundency":
            results.append(_result(rng, f"correct_{idx}", rng.randint(0, 3), False))
    rng.shuffle(results)
    if number % 5 == 0:
        results.append(_result(rng, "circular_99", 2, True))  # no such item
    if number % 6 == 0:
        results.append(dict(results[0]))
    if number % 7 == 0 and len(results) > 1:
        del results[rng.randrange(len(results))]
    return {"rows": rows, "results": results if number != CASES - 1 else [], "has_files": number < WITH_FILES}


def _result(rng: Random, idx: str, steps: int, has_redundancy: bool) -> dict[str, Any]:
    if rng.random() < 0.12:
        return {"idx": idx, "scores": {}, "validity": False}
    share, length = rng.choice((0.0, 0.5, 0.8, 1.0)), max(0, steps + rng.choice((0, 0, 0, -1, 1)))
    scores = {"step_level_validity_labels": [rng.random() < share for _ in range(length)]}
    if has_redundancy and rng.random() < 0.6:
        scores["step_level_redundancy_labels"] = [rng.random() < share for _ in range(length)]
    return {"idx": idx, "scores": scores} | ({"validity": True} if rng.random() < 0.2 else {})
