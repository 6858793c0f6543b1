"""A small project whose records meet every reason for a drop, run by the real stages from prepare to the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import yaml

from ground.io import sha256_file, write_json, write_jsonl, write_parquet
from pathfinder.core.records import ANSWERS, LABELS
from pathfinder.data.exclusions import EXCLUSIONS
from pathfinder.policy.choosing import RULES
from stages import build, prepare, report, train
from stages import filter as filter_stage
from tests.support.models import plain_tokenizer, small_model
from tests.support.stage_inputs import conversation, prm800k_line, write_params
from tests.support.training import settings

HUMAN = Path("artifacts/raw/prm800k/phase1_train.jsonl")
LINES = 24
LONG = "zq " * 3000
_JUDGED = ("disagrees", "too_long", "unparsed", "refused", "engine_error", "not_sampled")
"""The fates of the first records rated -1; the judge contradicts none of the later ones."""


def problem(number: int) -> str:
    """A problem that is near none of the others."""
    return f"Person {number} has {number} apples and buys {number + 1} more on day {number}. How many now, {number}?"


def human_lines() -> list[dict[str, Any]]:
    """Lines of PRM800K; the first three have what prepare leaves out, one of eight has a step that is too long."""
    lines = []
    for n in range(LINES):
        steps: list[list[tuple[Any, Any]]] = [[(f"{n} is less.", -1), (f"We add {n}.", 1)], [(f"It is {n}.", 0)]]
        if n % 8 == 7:
            steps.append([(f"{LONG}{n}", 1)])
        lines.append(prm800k_line(problem(n), *steps) | {"labeler": f"rater-{n % 3}"})
    lines[0]["label"]["steps"][0]["completions"].insert(0, {"text": None, "rating": 1})
    lines[0]["label"]["steps"][0]["chosen_completion"] = 2
    lines[1]["label"]["steps"][0]["chosen_completion"] = None
    lines[2] = prm800k_line(problem(2), [("Unrated.", None)]) | {"labeler": "rater-2"}
    return [*lines, {"question": {}}]


def write_project(folder: Path) -> None:
    """Sources, benchmarks, parameters and a random base model below ``folder``, the working directory."""
    write_params(folder)
    params = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    params["prepare"]["max_quarantined_share"] = 0.5
    params["build"] |= {"test_share": 0.3, "prm800k_records": 0, "mistral_records": 9, "max_records": 60}
    params["build"]["remove_overlap"] = True
    params["mixes"] = [{"name": "400k", "share": 1.0}, {"name": "200k", "share": 0.5}]
    params["train"] = settings(epochs=2.0, token_budget=8192).model_dump()
    params["search"]["sets"] = ["math"]
    params |= {"runs": ["full"], "baselines": [], "critics": [], "comparisons": []}
    Path("params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    Path("dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    write_jsonl(EXCLUSIONS, [])
    write_jsonl(HUMAN, human_lines())
    talks = [conversation(problem(100 + n), (f"{n} + 2", "+"), (f"It is {n}", "-"), ("End", "-")) for n in range(8)]
    talks[0]["conversations"][2]["content"] = ""
    write_jsonl(Path("artifacts/raw/mistral/data.jsonl"), talks)
    _write_benchmarks()
    tokenizer = plain_tokenizer()
    base = Path("artifacts/raw/models/base")
    small_model(tokenizer).save_pretrained(base)
    tokenizer.save_pretrained(base)


def _write_benchmarks() -> None:
    item = {"id": "gsm8k-0", "generator": "g", "problem": problem(5).upper(), "steps": ["one", "two"], "label": -1}
    write_json(Path("artifacts/raw/processbench/gsm8k.json"), [item | {"final_answer_correct": True}])
    row: dict[str, Any] = {
        "idx": "r0",
        "original_question": "Q",
        "modified_question": "Q",
        "question": "Q",
        "reason": "",
    }
    row |= {"original_process": ["a"], "modified_process": ["b", "c"], "modified_steps": [1], "error_steps": [2]}
    write_jsonl(Path("artifacts/raw/prmbench/circular.jsonl"), [row | {"classification": "circular"}])
    write_jsonl(Path("artifacts/raw/search/math.jsonl"), [{"problem": "What is 5 + 6?", "answer": "11"}])


def run_stages() -> None:
    """Everything from prepare to the index; the labels are given."""
    manifest = {
        source: {
            "kind": "shipped",
            "location": f"data/{source}",
            "revision": None,
            "licence": licence,
            "files": {
                path.name: {"sha256": sha256_file(path), "bytes": path.stat().st_size}
                for path in sorted(Path("artifacts/raw", source).iterdir())
            },
        }
        for source, licence in (("prm800k", "MIT"), ("mistral", "Apache-2.0"))
    }
    write_json(Path("artifacts/raw/manifest.json"), manifest)
    prepare.main([])
    _write_labels()
    filter_stage.main([])
    write_json(Path("metrics/validate.json"), {"success": True})
    build.main([])
    train.main(["full"])
    _write_predictions()
    report.main(["index"])


def _write_labels() -> None:
    steps = pl.read_parquet("artifacts/steps/steps.parquet")
    labels: list[Any] = []
    answers: list[Any] = []
    fates = iter(_JUDGED)
    for name, source, rating in steps.select("id", "source", "rating").iter_rows():
        if rating is None:
            labels.append((name, None, None, None, "none", "unrated", 0))
        elif source == "prm800k" and rating >= 0:
            labels.append((name, 1, 1, rating, "rating", "given", 0))
        else:
            fate = next(fates, "parsed") if source == "prm800k" else "parsed"
            is_right = rating == 1 or fate == "disagrees"
            scores = (int(is_right), 1, 1) if fate in ("parsed", "disagrees") else (None, None, None)
            outcome = "parsed" if fate == "disagrees" else fate
            labels.append((name, *scores, "judge" if scores[0] is not None else "none", outcome, 1))
            text = f"Score A: {int(is_right)}\nScore B: 1\nScore C: 1" if outcome == "parsed" else None
            if fate != "not_sampled":
                answers.append((name, 0, 0, "0" * 64, text, outcome))
    for table, rows, columns in (("labels", labels, LABELS), ("answers", answers, ANSWERS)):
        write_parquet(Path(f"artifacts/labels/{table}.parquet"), pl.DataFrame(rows, schema=columns, orient="row"))


def _write_predictions() -> None:
    """One row of each kind of prediction file, as the stages write them."""
    folder = Path("artifacts/predictions")
    steps = [{"reward": 0.9}, {"reward": 0.2}]
    first = {"subset": "gsm8k", "id": "gsm8k-0", "prediction": 1, "label": -1, "steps": steps}
    write_jsonl(folder / "processbench/full.jsonl", [first])
    scores = {"step_level_validity_labels": [True, False]}
    second = {"idx": "circular_r0", "classification": "circular", "scores": scores, "steps": steps}
    write_jsonl(folder / "prmbench/full.jsonl", [second])
    turns = [
        {"candidates_info": [{"reward": 0.1}, {"reward": 0.7}], "chosen_step_index": 1},
        {"candidates_info": [], "chosen_step_index": None},
    ]
    found = {"set": "math", "id": "0", "gt_answer": "11"}
    searched = found | {"pred_answer": "12", "correct": False, "iteration_history": turns}
    write_jsonl(folder / "search/full.jsonl", [searched])
    chosen = {"rewards": [[0.5], [0.8, 0.6]], "chosen": dict.fromkeys(RULES, 1), "right": dict.fromkeys(RULES, True)}
    write_jsonl(folder / "best_of_n/full.jsonl", [{"set": "math", "id": "0"} | chosen])
    write_jsonl(folder / "sample.jsonl", [found | {"majority": "11", "majority_right": True, "right": [True]}])
