"""Explain a decision of a trained run: the records that support and oppose it, with scores.

A score is the derivative of the decision's output with respect to the record's weight in training, times the sign of
the output. Removing only this record lowers the decision's log-odds by about its score, in nats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ground.io import DataError, digest_of, parse_json, read_json, read_jsonl, sha256_file, write_json
from ground.show import table
from pathfinder.benchmarks.readers import ProcessBenchItem, read_processbench
from pathfinder.core.labels import STEP_LABELS
from pathfinder.core.runs import parse_run

STATE, PREDICTIONS = Path(".pathfinder/why"), Path("artifacts/predictions/processbench")
MODELS, METRICS, BENCHMARK = Path("models"), Path("metrics/train"), Path("artifacts/raw/processbench")
BASE, TRAIN = Path("artifacts/raw/models/base"), Path("artifacts/train/train.parquet")
ESTIMATOR = "derivative of the whole training run with respect to each record's weight (MAGIC, AdamW)"
_VERSION = 1
_SUGGESTIONS = 5
PLAUSIBLE = 2.0
"""In nats. A larger score for one record shows that the training amplifies small changes without bound."""
LONGEST = 0.02
"""The sum of the learning rates of all steps. AdamW moves a weight by at most about the rate in a step, so the sum
bounds its path. With longer paths, the measured trainings amplified small changes (README.md)."""
REMOVED_SHARE = 0.05
"""The share of the records that a proof removes."""


def why(
    name: str, run: str = "full", step: int | None = None, top: int = 10, prove: bool = False, anyway: bool = False
) -> dict[str, Any]:
    """The explanation of a run's decision on a ProcessBench item, a JSON value.

    ``step`` counts from 0; the default is the first step with a reward below one half or, if there is none, the step
    with the lowest reward. ``prove`` trains twice more: without the records that support the decision most, and without
    the same number of random records. A training that is too long for scores is repeated only with ``anyway`` or
    ``prove``; otherwise, the result names similar training steps.
    Raises ``DataError`` for an unknown item or step, and if the run's training cannot be repeated here.
    """
    item = item_named(name)
    if step is not None and not 0 <= step < len(item.steps):
        raise DataError(f"{name}: no step {step}; its steps are 0 to {len(item.steps) - 1}")
    folder = MODELS / parse_run(run).name
    if not (prove or anyway) and (way := _way(folder)) > LONGEST:
        return _without_scores(item, run, step, top, way)
    answer = _answer(item, run, folder, step)
    sign = 1 if answer["decision"]["log_odds"] >= 0 else -1
    scores = {identity: sign * value for identity, value in answer["derivatives"].items()}
    ranked = sorted(scores, key=lambda identity: (-scores[identity], identity))
    found = _explanation(item, run, answer["decision"], len(ranked)) | {
        "strongest score": (strongest := max(abs(score) for score in scores.values())),
        "reliable": strongest <= PLAUSIBLE,
        "supports": [_described(identity, scores[identity]) for identity in ranked[:top] if scores[identity] > 0],
        "opposes": [_described(identity, scores[identity]) for identity in ranked[::-1][:top] if scores[identity] < 0],
        "estimator": {"method": ESTIMATOR, "largest difference of a repeated weight": answer["difference"]},
    }
    return found | ({"proof": _proof(item, run, folder, answer, ranked)} if prove else {})


def _explanation(item: ProcessBenchItem, run: str, decision: Mapping[str, Any], records: int) -> dict[str, Any]:
    """An explanation without scores, with all its keys."""
    return {
        "item": {"subset": item.subset, "id": item.id, "first error": item.label},
        "run": run,
        "decision": decision,
        "records": records,
        "strongest score": None,
        "reliable": False,
        "supports": [],
        "opposes": [],
        "estimator": {"method": ESTIMATOR, "largest difference of a repeated weight": None},
        "measured": measured(),
    }


def item_named(name: str) -> ProcessBenchItem:
    """The ProcessBench item with an id, or SUBSET/ID. Raises ``DataError`` with similar ids if there is none."""
    if not BENCHMARK.is_dir():
        raise DataError(f"{BENCHMARK}: no benchmark here; run the download stage first (`dvc repro download`)")
    items = read_processbench(BENCHMARK).items
    found = [item for item in items if name in (item.id, f"{item.subset}/{item.id}")]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{item.subset}/{item.id}" for item in found)
        raise DataError(f"{name}: several subsets have this item; name one of {names}")
    import difflib

    near = difflib.get_close_matches(name, [item.id for item in items], _SUGGESTIONS, 0)
    raise DataError(f"{name[:80]!r}: no such item of ProcessBench in {BENCHMARK}; similar ids: {', '.join(near)}")


def measured() -> dict[str, Any]:
    """The measured quality of explanations, from the campaign ``tests.campaigns.influence.proof``."""
    return dict(parse_json(Path(__file__).with_name("measured.json").read_bytes(), "measured.json"))


def _answer(item: ProcessBenchItem, run: str, folder: Path, step: int | None) -> dict[str, Any]:
    """The decision and the derivative of every record; from the cache, if it has them."""
    files = [TRAIN, *(path for of in (folder, BASE) for path in sorted(of.glob("*")) if path.is_file())]
    for path in (TRAIN, folder / "pathfinder.json", BASE / "config.json"):
        if not path.exists():
            raise DataError(f"{path}: no such file; run the pipeline first (`dvc repro train@{folder.name}`)")
    identity = {"version": _VERSION, "item": [item.problem, item.steps], "step": step, "run": run}
    path = STATE / f"{digest_of(identity | {'files': [sha256_file(file) for file in files]})}.json"
    if not path.exists():
        write_json(path, _explain(item, run, folder, step))
    return dict(read_json(path))


def _way(folder: Path) -> float:
    """The sum of the learning rates of a run's training; 0 if this machine lacks the training's log."""
    path = METRICS / f"{folder.name}_log.json"
    return sum(float(row["learning_rate"]) for row in read_json(path)) if path.exists() else 0.0


def _without_scores(item: ProcessBenchItem, run: str, step: int | None, top: int, way: float) -> dict[str, Any]:
    """The decision, and the training steps that resemble the step; there are no scores."""
    from extras.why.alike import alike, records_of

    folder = MODELS / parse_run(run).name
    if (decision := _predicted(item, folder, step)) is None:
        from extras.why.trained import open_reader

        _, decision = _decision(*open_reader(folder), item, step)
    labels = {name: value >= 0.5 for name, value in decision["labels"].items()}
    labels["correctness"] = decision["verdict"] == "correct"
    found = alike(decision["text"], records_of(parse_run(run), TRAIN), labels)
    near = [row for row in found if row[1]]
    same_kind = [row for row in near if row[2]]
    return _explanation(item, run, decision, len(found)) | {
        "refused": f"the learning rates of this training add up to {way:.3f}, more than {LONGEST:g}: it amplifies "
        "small changes too much for scores of single records",
        "nearest": [_described(name, value) for name, value, _ in near[:top]],
        "same kind": [_described(name, value) for name, value, _ in same_kind[:top]],
        "records of this kind": sum(is_kind for *_, is_kind in found),
    }


def _predicted(item: ProcessBenchItem, folder: Path, step: int | None) -> dict[str, Any] | None:
    """The decision in the evaluation's file, without log-odds; ``None`` if the evaluation did not read the item."""
    path = PREDICTIONS / f"{folder.name}.jsonl"
    rows = [row for _, row in read_jsonl(path)] if path.exists() else []
    row: dict[str, Any] = next(
        (row for row in rows if (row["subset"], row["id"]) == (item.subset, item.id)), {"steps": []}
    )
    rewards = [each["reward"] for each in row["steps"]]
    if len(rewards) != len(item.steps) or None in rewards:
        return None
    wrong = next((n for n, reward in enumerate(rewards) if reward < 0.5), rewards.index(min(rewards)))
    at = wrong if step is None else step
    labels = {name: row["steps"][at].get(name) for name in STEP_LABELS}
    return _decided(item, at, rewards[at], {name: value for name, value in labels.items() if value is not None})


def _decided(
    item: ProcessBenchItem, at: int, reward: float, labels: Mapping[str, float], log_odds: float | None = None
) -> dict[str, Any]:
    verdict = "correct" if reward >= 0.5 else "incorrect"
    decision = {"step": at, "text": item.steps[at], "verdict": verdict, "reward": reward, "labels": labels}
    return decision | {"log_odds": log_odds}


def _decision(network: Any, prompter: Any, item: ProcessBenchItem, step: int | None) -> tuple[Any, dict[str, Any]]:
    """The explained step, laid out, and the network's decision about it, a JSON value."""
    from extras.why.decision import decisive, rewards, step_of
    from pathfinder.core.steps import Solution

    solution = Solution(item.id, item.problem, item.steps)
    laid_out = [step_of(prompter, solution, number) for number in range(len(item.steps))]
    found = rewards(network, prompter, laid_out)
    at = decisive(found) if step is None else step
    return laid_out[at], _decided(item, at, found[at].reward, found[at].labels, found[at].log_odds)


def _explain(item: ProcessBenchItem, run: str, folder: Path, step: int | None) -> dict[str, Any]:
    from extras.why.decision import output_gradient
    from extras.why.trained import distance, open_learner, repeat, settings_of
    from extras.why.unroll import unroll
    from ground.progress import Progress

    learner = open_learner(parse_run(run), folder, BASE, TRAIN)
    with Progress("why", 2 * learner.steps, "optimiser steps") as progress:
        trajectory = repeat(learner, settings_of(folder), folder, progress.advance)
        learner.set(trajectory.final)
        explained, decision = _decision(learner.network, learner.prompter, item, step)
        gradient = output_gradient(learner.network, learner.prompter, explained)
        (derivatives,) = unroll(learner, trajectory, [gradient], len(learner.ids), progress.advance)
    return {
        "decision": decision,
        "difference": distance(learner, trajectory, folder),
        "derivatives": dict(zip(learner.ids, derivatives.tolist(), strict=True)),
    }


def _proof(
    item: ProcessBenchItem, run: str, folder: Path, answer: dict[str, Any], ranked: Sequence[str]
) -> dict[str, Any]:
    """Train without the records that support the decision most, and without the same number of random records."""
    import numpy as np

    from extras.why.decision import rewards, step_of
    from extras.why.replay import rates_of, replay
    from extras.why.trained import open_learner, settings_of
    from pathfinder.core.steps import Solution

    learner, settings = open_learner(parse_run(run), folder, BASE, TRAIN), settings_of(folder)
    count = round(REMOVED_SHARE * len(ranked))
    drawn = np.random.default_rng(settings.seed).permutation(len(ranked))[:count]
    solution = Solution(item.id, item.problem, item.steps)
    out: dict[str, Any] = {"removed records": count}
    for title, removed in (("without the named", ranked[:count]), ("without others", [ranked[i] for i in drawn])):
        gone = set(removed)
        learner.weights = np.array([0.0 if identity in gone else 1.0 for identity in learner.ids])
        final = replay(learner, rates_of(settings, learner.steps), settings.max_grad_norm, keep=False).final
        learner.set(final)
        (reward,) = rewards(
            learner.network, learner.prompter, [step_of(learner.prompter, solution, answer["decision"]["step"])]
        )
        verdict = "correct" if reward.is_correct else "incorrect"
        out[title] = {"verdict": verdict, "reward": reward.reward, "log_odds": reward.log_odds}
    return out


def _described(identity: str, score: float) -> dict[str, Any]:
    """A record with its upstream file and line, its labels and its step."""
    from extras.records.upstream_line import parse_identity, row_of

    trajectory = row_of("steps/trajectories", "trajectory_id", parse_identity(identity).trajectory) or {}
    tree = row_of("train/train", "tree_id", parse_identity(identity).trajectory) or {"branches": []}
    branch: dict[str, Any] = next((branch for branch in tree["branches"] if branch["id"] == identity), {})
    labels = {name: branch.get(name) for name in STEP_LABELS}
    place = {"file": trajectory.get("file"), "line": parse_identity(identity).line}
    return {"record": identity, "score": score, **place, **labels, "step": branch.get("step")}


def lines_of(found: dict[str, Any]) -> Iterator[str]:
    """An explanation as lines of text."""
    decision, item = found["decision"], found["item"]
    labels = ", ".join(f"{name} {value:.3f}" for name, value in decision["labels"].items())
    yield f"{item['subset']} {item['id']}, step {decision['step']}: {' '.join(decision['text'].split())}"
    odds = "" if decision["log_odds"] is None else f", log-odds {decision['log_odds']:+.2f}"
    truth = "no error" if item["first error"] == -1 else f"first error at step {item['first error']}"
    yield (
        f"by quality, {found['run']} calls it {decision['verdict']}: reward {decision['reward']:.3f}"
        f"{f' ({labels})' if labels else ''}{odds}; the benchmark says {truth}"
    )
    if "refused" in found:
        yield from _similar(found)
        return
    if not found["reliable"]:
        yield ""
        yield (
            f"WARNING: the strongest score is {found['strongest score']:,.0f} nats, more than one record can change. "
            "This training amplifies small changes too much for its derivative: do not use these scores "
            "(extras/why/README.md)"
        )
    for title in ("supports", "opposes"):
        yield ""
        yield f"{title} this decision, the strongest of {found['records']:,} training records:"
        yield from table([_row(record) for record in found[title]])
    yield ""
    yield "score: how many nats the log-odds of this decision lose, as estimated, if only this record is removed"
    yield f"estimator: {found['estimator']['method']}"
    yield f"measured: {found['measured']['in short']}"
    if "proof" in found:
        yield ""
        for title in ("without the named", "without others"):
            after = found["proof"][title]
            yield (
                f"trained again {title} {found['proof']['removed records']}: {after['verdict']}, reward "
                f"{after['reward']:.3f}, log-odds {after['log_odds']:+.2f}"
            )


def _similar(found: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"No scores: {found['refused']} (extras/why/README.md). `--anyway` computes them, in minutes.")
    kind = f"{found['records of this kind']:,} records with the labels of this decision"
    for key, title in (("nearest", f"{found['records']:,} training records"), ("same kind", kind)):
        yield from ("", f"the most similar steps of {title}:{'' if found[key] else ' none shares three words'}")
        yield from table([{**_row(record), "score": f"{record['score']:.2f}"} for record in found[key]])
    yield from ("", "score: the share of common runs of three words. Similar steps need not be causes of the decision.")


def _row(record: dict[str, Any]) -> dict[str, Any]:
    labels = "".join("-" if record[name] is None else str(record[name]) for name in STEP_LABELS)
    return {
        "score": f"{record['score']:+.4f}",
        "record": record["record"],
        "labels": labels,
        "file:line": f"{record['file'] or '?'}:{record['line']}",
        "step": " ".join((record["step"] or "").split())[:80],
    }
