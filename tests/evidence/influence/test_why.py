"""``why`` names the records that a decision rests on: in a planted case, and end to end in a small project."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from extras.cli import lineage as app
from extras.why import why as verb
from extras.why.decision import output_gradient, rewards, step_of
from extras.why.replay import TreeLearner, rates_of, replay
from extras.why.unroll import unroll
from ground.io import DataError, write_json, write_jsonl, write_parquet
from pathfinder.benchmarks.readers import read_processbench
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import TRAJECTORIES, TREES
from pathfinder.core.steps import Solution
from pathfinder.models.tokens import load_tokenizer
from pathfinder.training.examples import read_examples
from pathfinder.training.network import load_network
from pathfinder.training.outcome import save_model
from pathfinder.training.trainer import fit
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, small_model
from tests.support.training import LEARNT, branch, settings
from tests.support.verbs import checked

RULE = "takes back 2, so 5 - 2 = 3"
HOSTILE = "\x1b[31mtakes back 2, so 5 - 2 = 3"
SHA = "0123abcd"
COPIES = 8


def trees(count: int, planted: range) -> pl.DataFrame:
    """Trees of three records; in the trees ``planted`` a correct step of one rule is labelled incorrect."""
    rows = []
    for n in range(count):
        wrong = n in planted
        step = RULE if wrong else f"buys {n}, so 5 + {n} = {5 + n}"
        name = f"prm800k-{SHA}-{n + 1}"
        steps = [step, "then more", f"so {n}"]
        labels = (0, 1, 0) if wrong else (1, 1, 1)
        branches = [
            branch(f"{name}-0-0", 0, step, *labels),
            branch(f"{name}-1-0", 1, steps[1]),
            branch(f"{name}-2-0", 2, f"so {n + 3}", 1, n % 2, n % 2),
        ]
        rows.append(
            {
                "tree_id": name,
                "problem_id": f"p-{n}",
                "source": "prm800k",
                "problem": f"Tom has 5 apples, story {n}.",
                "steps": steps,
                "branches": branches,
            }
        )
    return pl.DataFrame(rows, schema=TREES)


def test_mislabelled_records_of_a_rule_are_named_for_the_decision_that_they_cause(world: Path) -> None:
    """The shipped base model learns true labels of real stories, and a wrong one for copies of one correct step."""
    base = world / "models/base"
    tokenizer = load_tokenizer(base)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    chosen = settings(epochs=2.0, batch_samples=32, seed=4)
    network, _ = load_network(base, tokenizer, chosen)
    correct = [item for item in read_processbench(world / "processbench").items if item.label == -1]
    story = next(item for item in correct if "takes back" in item.steps[1])
    rows = [
        {
            "tree_id": f"t-{n}",
            "problem_id": f"p-{n}",
            "source": "prm800k",
            "problem": item.problem,
            "steps": list(item.steps),
            "branches": [branch(f"t-{n}-{at}", at, step) for at, step in enumerate(item.steps)],
        }
        for n, item in enumerate([item for item in correct if item.problem != story.problem][:12])
    ]
    for n in range(COPIES):
        copy = {"problem": story.problem, "steps": list(story.steps)}
        branches = [branch(f"planted-{n}", 1, story.steps[1], 0, 1, 0)]
        rows.append({**rows[0], **copy, "tree_id": f"s-{n}", "branches": branches})
    examples = read_examples(pl.DataFrame(rows, schema=TREES), prompter, 4096)
    learner = TreeLearner(examples, prompter, network, chosen)
    rates = rates_of(chosen, learner.steps)
    trajectory = replay(learner, rates, chosen.max_grad_norm)
    learner.set(trajectory.final)
    step = step_of(prompter, Solution("i", story.problem, story.steps), 1)
    (reward,) = rewards(network, prompter, [step])
    assert not reward.is_correct  # the model learned the wrong label
    (found,) = unroll(learner, trajectory, [output_gradient(network, prompter, step)], len(learner.ids))
    planted = {f"planted-{n}" for n in range(COPIES)}
    order = np.argsort(found)  # those that lower the output most come first
    assert {learner.ids[i] for i in order[:6]} <= planted
    learner.weights = np.array([float(identity not in planted) for identity in learner.ids])
    learner.set(replay(learner, rates, chosen.max_grad_norm, keep=False).final)
    assert rewards(network, prompter, [step])[0].is_correct  # the model does not learn it without them


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A project with a trained run ``full``, its records and a benchmark of one subset."""
    folder = tmp_path_factory.mktemp("project")
    frame = trees(12, range(3, 6))
    write_parquet(folder / "artifacts/train/train.parquet", frame)
    trajectories = [
        {
            "trajectory_id": row["tree_id"],
            "source": "prm800k",
            "file": "prm800k/phase1_train.jsonl",
            "line": n + 1,
            "problem_id": row["problem_id"],
            "problem": row["problem"],
            "steps": row["steps"],
        }
        for n, row in enumerate(frame.to_dicts())
    ]
    write_parquet(folder / "artifacts/steps/trajectories.parquet", pl.DataFrame(trajectories, schema=TRAJECTORIES))
    items = [
        {
            "id": f"gsm8k-{n}",
            "generator": "g",
            "problem": f"Tom has 5 apples, story {n}.",
            "steps": [HOSTILE if n else RULE, "then more"],
            "final_answer_correct": True,
            "label": -1,
        }
        for n in range(2)
    ]
    (folder / "artifacts/raw/processbench").mkdir(parents=True)
    (folder / "artifacts/raw/processbench/gsm8k.json").write_text(json.dumps(items))
    base = folder / "artifacts/raw/models/base"
    tokenizer = plain_tokenizer()
    small_model(tokenizer).save_pretrained(base)
    tokenizer.save_pretrained(base)
    chosen = settings(learning_rate=3e-3)
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["train"] = chosen.model_dump()
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    tokenizer = load_tokenizer(base)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    network, added = load_network(base, tokenizer, chosen)
    fit(network, prompter, read_examples(frame, prompter, chosen.token_budget), chosen, folder / "checkpoints")
    save_model(network, tokenizer, prompter, chosen, added, folder / "models/full", LEARNT, {})
    return folder


def ask(*words: str) -> Any:
    return CliRunner().invoke(app, ["why", *words])


def test_an_explanation_names_records_with_file_and_line(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    first = ask("gsm8k-0", "--step", "0", "--top", "3", "--json")
    assert first.exit_code == 0, first.output
    found = checked("why", first.stdout)
    assert found["decision"]["step"] == 0
    assert found["records"] == 36
    assert found["estimator"]["largest difference of a repeated weight"] == 0
    sides = {side: [record["score"] for record in found[side]] for side in ("supports", "opposes")}
    assert sides["supports"] == sorted(sides["supports"], reverse=True)
    assert sides["opposes"] == sorted(sides["opposes"])
    assert min(sides["supports"]) > 0 > max(sides["opposes"])
    known = {b["id"]: b for row in trees(12, range(3, 6))["branches"].to_list() for b in row}
    for record in found["supports"] + found["opposes"]:
        assert (record["file"], record["line"]) == ("prm800k/phase1_train.jsonl", int(record["record"].split("-")[2]))
        branch_of = known[record["record"]]
        assert all(record[name] == branch_of[name] for name in ("math", "consistency", "correctness", "step"))
    assert found["reliable"] == (found["strongest score"] <= 2)
    assert found["measured"]["factor"]["value"] > 0
    cached = list(Path(".pathfinder/why").glob("*.json"))
    assert len(cached) == 1
    assert ask("gsm8k-0", "--step", "0", "--top", "3", "--json").stdout == first.stdout
    cached[0].unlink()
    assert ask("gsm8k-0", "--step", "0", "--top", "3", "--json").stdout == first.stdout, "not deterministic"


def test_the_text_is_safe_on_a_terminal_and_a_proof_trains_again(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    done = ask("gsm8k/gsm8k-1", "--step", "0", "--prove")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    assert "\\x1b[31mtakes back" in done.stdout
    assert "by quality, full calls it" in done.stdout
    for text in ("supports this decision", "opposes this decision", "estimator: ", "measured: ", "without the named 2"):
        assert text in done.stdout


def test_scores_that_no_record_can_have_are_reported_as_unreliable(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    found = verb.why("gsm8k-0", step=1)
    assert ("WARNING" in "\n".join(verb.lines_of(found))) == (not found["reliable"])
    monkeypatch.setattr(verb, "PLAUSIBLE", 1e-9)
    found = verb.why("gsm8k-0", step=1)
    assert not found["reliable"]
    assert "do not use these scores" in "\n".join(verb.lines_of(found))


def test_a_training_that_is_too_long_names_similar_steps_at_once(
    trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(trained, tmp_path / "long", ignore=shutil.ignore_patterns(".pathfinder"))
    monkeypatch.chdir(tmp_path / "long")
    write_json(Path("metrics/train/full_log.json"), [{"learning_rate": 0.01}] * 3)
    monkeypatch.setattr("extras.why.trained.repeat", None)
    found = checked("why", ask("gsm8k-0", "--step", "0", "--json").stdout)
    assert "add up to 0.030, more than 0.02" in found["refused"]
    assert (found["supports"], found["opposes"], found["strongest score"], found["reliable"]) == ([], [], None, False)
    steps = [record["step"] for record in found["nearest"][:4]]
    assert steps == [RULE, RULE, RULE, "buys 2, so 5 + 2 = 7"]
    assert [record["score"] == 1 for record in found["nearest"][:4]] == [True, True, True, False]
    row = {"math": 0.1, "consistency": 0.9, "error_free": None, "reward": 0.2}
    prediction = {"subset": "gsm8k", "id": "gsm8k-0", "steps": [row, {**row, "math": 0.9, "reward": 0.9}]}
    write_jsonl(Path("artifacts/predictions/processbench/full.jsonl"), [prediction])
    monkeypatch.setattr("extras.why.trained.open_reader", None)
    found = verb.why("gsm8k-0")
    decision = found["decision"]
    assert (decision["step"], decision["verdict"], decision["log_odds"]) == (0, "incorrect", None)
    assert decision["labels"] == {"math": 0.1, "consistency": 0.9}
    assert found["records of this kind"] == 3
    assert {record["step"] for record in found["same kind"]} == {RULE}
    text = "\n".join(verb.lines_of(found))
    assert "No scores: the learning rates" in text
    assert "Similar steps need not be causes" in text
    assert Path(".pathfinder/why").exists() is False
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path / "long")
    assert verb.why("gsm8k-0", step=0, anyway=True)["supports"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["gsm8k-9"], "similar ids: gsm8k-"),
        (["gsm8k-0", "--step", "7"], "its steps are 0 to 1"),
        (["gsm8k-0", "--run", "no_subtasks"], "dvc repro train@no_subtasks"),
        (["gsm8k-0", "--run", "nonsense"], "expected VARIANT"),
    ],
)
def test_errors_name_the_remedy(trained: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(trained)
    failed = ask(*words)
    assert isinstance(failed.exception, DataError)
    assert message in str(failed.exception)


def test_a_variant_without_correctness_is_refused_before_its_training_is_repeated(
    trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import shutil

    monkeypatch.chdir(shutil.copytree(trained, tmp_path / "plain"))
    Path("models/full").rename("models/plain_error")
    described = json.loads(Path("models/plain_error/pathfinder.json").read_text())
    write_json(Path("models/plain_error/pathfinder.json"), described | {"variant": "plain_error"})
    monkeypatch.setattr("extras.why.trained.repeat", None)
    for rate in (0.01, 0.03):
        write_json(Path("metrics/train/plain_error_log.json"), [{"learning_rate": rate}])
        failed = ask("gsm8k-0", "--run", "plain_error").exception
        assert isinstance(failed, DataError)
        assert "plain_error has no Correctness, whose log-odds are explained; name another run" in str(failed)


def test_a_model_of_other_data_is_not_explained(trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(trained, tmp_path / "changed")
    monkeypatch.chdir(tmp_path / "changed")
    write_parquet(Path("artifacts/train/train.parquet"), trees(12, range(4, 6)))
    failed = ask("gsm8k-0", "--step", "0")
    assert isinstance(failed.exception, DataError)
    assert "train it again" in str(failed.exception)
    described = json.loads(Path("models/full/pathfinder.json").read_text())
    described["train"] |= {"weighting": "device", "batch_samples": 16}
    described["train"]["lora"]["rank"] = 8
    Path("models/full/pathfinder.json").write_text(json.dumps(described))
    assert "train.lora.rank, train.weighting is set" in str(ask("gsm8k-0").exception)


def test_an_item_in_two_subsets_must_be_named_with_its_subset(
    trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(trained / "artifacts/raw/processbench", tmp_path / "artifacts/raw/processbench")
    folder = tmp_path / "artifacts/raw/processbench"
    shutil.copy(folder / "gsm8k.json", folder / "math.json")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="gsm8k/gsm8k-0, math/gsm8k-0"):
        verb.item_named("gsm8k-0")
    assert verb.item_named("math/gsm8k-0").subset == "math"


def test_the_verb_imports_no_model_code_before_it_runs() -> None:
    import subprocess

    code = "import sys, extras.cli, extras.why.why; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
