"""The report's inputs, made from invented scores by the stages' own metric code."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ground.io import read_json, write_json, write_jsonl
from pathfinder.benchmarks import accuracy, prmbench, processbench
from pathfinder.benchmarks.paper import SIZES
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.core.params import Report
from pathfinder.policy.choosing import RULES

HOSTILE = "<script>alert('x')</script> | `code` <+> {0} \x07 \u202e \\boxed{1} [a](http://evil)"
REPORT = Report(bootstrap_samples=50, seed=1)
SKILL = {"full": 0.9, "no_error_categories": 0.8, "no_subtasks": 0.3, "plain_error": 0.8, "autoregressive": 0.85}
RUNS = ("full", "no_error_categories", "no_subtasks")
SEEDED = ("full", "no_subtasks", "autoregressive", "full-prm800k", "full-550k", "full-s2", "no_subtasks-s2")


def write_project(root: Path, profile: str, runs: Sequence[str] = RUNS) -> None:
    text = re.sub(r"(?m)^runs: \[.*?\]", f"runs: [{', '.join(runs)}]", (root / "params.yaml").read_text())
    mixes = ", ".join(f"{{name: {name}, share: 1.0}}" for name in ("prm800k", "400k", "550k"))
    text = re.sub(r"(?m)^mixes: \[.*?\]", f"mixes: [{mixes}]", text)
    Path("params.yaml").write_text(
        re.sub(
            r"bootstrap_samples: \d+",
            "bootstrap_samples: 50",
            re.sub(r"(?m)^profile: .*$", f"profile: {profile}", text),
        )
    )


def write_benchmarks() -> None:
    rng = random.Random(3)
    for subset in ("gsm8k", "math"):
        items = [
            {
                "id": f"{subset}-{i}",
                "generator": "g",
                "problem": f"{HOSTILE} {i}",
                "steps": [f"{HOSTILE} step {n}" for n in range(3)],
                "final_answer_correct": True,
                "label": rng.randint(-1, 2),
            }
            for i in range(30)
        ]
        write_json(Path(f"artifacts/raw/processbench/{subset}.json"), items)
    rows = [
        {
            "original_question": f"q {i}",
            "modified_question": f"q {i}",
            "original_process": ["a", "b", "c"],
            "modified_process": ["a", "x", "c"],
            "modified_steps": [2],
            "error_steps": [2],
            "reason": "r",
            "idx": f"circular_{i}",
            "question": f"q {i}",
            "classification": "circular",
        }
        for i in range(20)
    ]
    write_jsonl(Path("artifacts/raw/prmbench/circular.jsonl"), rows)


def step_scores(count: int, first_wrong: int) -> list[dict[str, float]]:
    return [
        {"math": value, "consistency": 0.95, "reward": value}
        for place in range(count)
        for value in [0.1 + place / 100 if place == first_wrong else 0.9]
    ]


def write_evaluation(run: str) -> None:
    rng = random.Random(run)
    variant = run.split("-")[0]

    def skilled() -> bool:
        return rng.random() < SKILL[variant]

    items = read_processbench(Path("artifacts/raw/processbench")).items
    predictions = {(i.subset, i.id): i.label if skilled() else rng.randint(-1, 2) for i in items}
    found = processbench.with_interval(items, predictions, REPORT)
    first_step = dict.fromkeys(predictions, 0)  # another rule, so that nothing confuses the two unnoticed
    pass1 = processbench.with_interval(items, first_step, REPORT)
    metrics = found | {"readings": {"soundness": found, "quality": pass1}, "reading": "soundness", "preset": "default"}
    metrics |= {"official": pass1, "baselines": processbench.trivial_predictors(items, REPORT)}
    metrics["generators"] = processbench.by_generator(items, predictions)
    one = {"threshold": 0.5, "mean_f1": 61.0, "subsets": {"gsm8k": 60.0, "math": 62.0}}
    never = one | {"threshold": None}
    metrics["thresholds"] = {"fixed": one, "oracle_upper_bound": never, "curve": [[0.0, 1.0], [0.5, 61.0]]}
    write_json(Path(f"metrics/processbench/{run}.json"), metrics)
    write_jsonl(
        Path(f"artifacts/predictions/processbench/{run}.jsonl"),
        [
            {"subset": i.subset, "id": i.id, "prediction": predictions[i.subset, i.id], "label": i.label}
            | {"prediction_quality": first_step[i.subset, i.id]}
            | {"steps": step_scores(len(i.steps), predictions[i.subset, i.id])}
            for i in items
        ],
    )
    typed = read_prmbench(Path("artifacts/raw/prmbench")).items
    labels = {i.idx: [(n + 1 in i.error_steps) != skilled() for n in range(len(i.steps))] for i in typed}
    scores = prmbench.with_interval(typed, labels, REPORT)
    flipped = {idx: [not label for label in given] for idx, given in labels.items()}
    official = prmbench.with_interval(typed, flipped, REPORT)
    readings = {"definition": scores, "soundness": scores, "quality": scores, "official": official}
    metrics = scores | {"readings": readings, "reading": "definition", "official": official}
    metrics |= {"preset": "default", "baselines": prmbench.trivial_predictors(typed, REPORT)}
    write_json(Path(f"metrics/prmbench/{run}.json"), metrics)
    write_jsonl(
        Path(f"artifacts/predictions/prmbench/{run}.jsonl"),
        [
            {"idx": idx}
            | {
                "scores": {
                    "step_level_validity_labels": given,
                    "step_level_validity_labels_official": flipped[idx],
                }
            }
            | {"steps": [{"reward": 0.9 if correct else 0.2} for correct in given]}
            for idx, given in labels.items()
        ],
    )
    write_search(run, skilled)
    held_out = {"held_out_loss_math": 0.4, "held_out_accuracy_math": 0.9}
    log = [{"step": s, "loss": 1 / s, "learning_rate": 0.1} | (held_out if s % 4 == 0 else {}) for s in range(1, 9)]
    write_json(Path(f"metrics/train/{run}_log.json"), log)
    sources = {"prm800k": 700, "rlhflow_mistral": {"prm800k": 0, "550k": 400}.get(run.split("-")[-1], 100)}
    figures = {"train_records": 7, "optimiser_steps": 8, "final_loss": 0.125, "sources": sources}
    figures["test_labels"] = {"math": {"n": 9, "accuracy": 0.5, "majority_accuracy": 0.4, "auc": 0.75}}
    write_json(Path(f"metrics/train/{run}.json"), figures)


def write_search(name: str, right: Callable[[], bool]) -> None:
    rows = [{"set": s, "id": i, "correct": right()} for s in ("math", "amc23") for i in range(25)]
    means, average, bounds = accuracy.by_set([str(r["set"]) for r in rows], [float(r["correct"]) for r in rows], REPORT)
    sets = {s: {"prm@8": means.get(s, average), "n": n} for s, n in SIZES["search"].items()}
    found = {"sets": sets, "average": average, "interval": bounds}
    halved = {"sets": {s: row | {"prm@8": row["prm@8"] / 2} for s, row in sets.items()}, "average": average / 2}
    gradings = {"repaired": found, "official": halved, "preset": "default"}
    write_json(Path(f"metrics/search/{name}.json"), found | gradings)
    write_jsonl(Path(f"artifacts/predictions/search/{name}.jsonl"), rows)


def write_best_of_n(run: str) -> None:
    rows = [
        {"set": s, "id": i, "right": dict.fromkeys(RULES, False) | {"min": i % 2 == 0, "last": True}}
        for s in ("math", "amc23")
        for i in range(25)
    ]
    write_jsonl(Path(f"artifacts/predictions/best_of_n/{run}.jsonl"), rows)
    path = Path(f"metrics/search/{run}.json")
    found = {"sets": {"math": {"min": 52.0}}, "average": {"min": 52.0, "product": 0.0, "last": 100.0, "mean": 0.0}}
    write_json(path, read_json(path) | {"best_of_n": found})


def write_published(name: str) -> None:
    """A published PRM that makes no mistake."""
    items = read_processbench(Path("artifacts/raw/processbench")).items
    predictions = {(i.subset, i.id): i.label for i in items}
    found = processbench.with_interval(items, predictions, REPORT)
    never = processbench.with_interval(items, dict.fromkeys(predictions, -1), REPORT)
    metrics = found | {"rules": {"authors": found, "benchmark": never}, "titles": ["Math-Shepherd-7B"]}
    write_json(Path(f"metrics/processbench/{name}.json"), metrics)
    rows = [{"subset": i.subset, "id": i.id, "prediction": i.label, "steps": []} for i in items]
    write_jsonl(Path(f"artifacts/predictions/processbench/{name}.jsonl"), rows)


def counted(read: int, kept: int, dropped: dict[str, int], quarantined: dict[str, int] | None = None) -> dict[str, Any]:
    return {"read": read, "kept": kept, "dropped": dropped, "quarantined": quarantined or {}}


def write_data_stages() -> None:
    """Two sources with 120 records; 60 of them reach training."""
    human, machine = "prm800k", "rlhflow_mistral"
    stages: dict[str, dict[str, Any]] = {
        "prepare": counted(120, 100, {"after_unchosen_step": 19}, {HOSTILE: 1})
        | {"lines": {"read": 30, "quarantined": 2}}
        | {
            "sources": {human: counted(90, 70, {"after_unchosen_step": 19}, {HOSTILE: 1}), machine: counted(30, 30, {})}
        },
        "label": counted(100, 96, {"unrated": 4})
        | {"sources": {human: counted(70, 66, {"unrated": 4}), machine: counted(30, 30, {})}},
        "filter": counted(100, 90, {"unrated": 4, "disagrees": 6})
        | {"sources": {human: counted(70, 66, {"unrated": 4}), machine: counted(30, 24, {"disagrees": 6})}},
        "validate": counted(90, 90, {}),
        "validate_train": counted(80, 80, {}),
    }
    row = {"exact_problems": 2, "near_problems": 1, "exact_steps": 4, "near_steps": 3}
    hits = {"items": 10, "steps": 40} | row | {"sources": {human: row, machine: row | {"near_steps": 0}}}
    stages["build"] = counted(90, 80, {"overlap": 10}) | {
        "train": {"records": 60, "trees": 9, "problems": 9, "sources": {human: 50, machine: 10}},
        "test": {"records": 20, "trees": 4, "problems": 4, "sources": {human: 16, machine: 4}},
        "overlap": {"processbench/math": hits},
        "removed": {"processbench/math": {"problems": 3, "records": 10}},
    }
    for name, metrics in stages.items():
        write_json(Path(f"metrics/{name}.json"), metrics)
    rate = {"value": 86.1, "interval": [85.1, 87.2]}
    truth = {"steps": 4500, "kept": 3787} | dict.fromkeys(("wrong", "error_recall", "error_precision"), rate)
    truth |= dict.fromkeys(("false_alarms", "labels_right", "labels_right_kept"), rate)
    truth["labels_right_dropped"] = {"value": None, "interval": None}
    groups = {"prm800k:-1": truth, "rlhflow_mistral:+1": truth}
    write_json(Path("metrics/truth.json"), {"judged": 4600, "all": truth, "groups": groups})


def write_everything(runs: Sequence[str] = RUNS) -> None:
    write_benchmarks()
    for run in runs:
        write_evaluation(run)
    write_search("random", lambda: False)
    write_data_stages()
