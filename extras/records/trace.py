"""Trace one record from its upstream line to its training example, or to the stage that excluded it.

Everything is verified again: the line is parsed, the judge's prompt is rebuilt, and its answers are parsed. A stage
that has not run shows "not yet" in its part. Tables are scanned lazily, so one record of a million
takes about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from extras.records import chain
from extras.records.upstream_line import (
    ARTIFACTS,
    NOT_YET,
    Identity,
    compared,
    exclusion,
    metrics_of,
    parse_identity,
    quarantined_line,
    row_of,
    rows_of,
    upstream_line,
)
from ground.io import DataError, read_json, sha256_of, text_digest
from ground.text import normalise
from pathfinder.core.labels import STEP_LABELS
from pathfinder.core.params import Preset
from pathfinder.core.prompts import LABEL_TOKENS, user_turn
from pathfinder.data.export import paper_rows
from pathfinder.data.upstream import Reading
from pathfinder.judge.parsing import CUT, read_scores
from pathfinder.judge.prompts import FOREIGN_SPECIALS, step_prompt
from pathfinder.models.folders import special_texts
from pathfinder.models.tokens import neutralise

Trace = dict[str, Any]
"""A JSON value; its keys follow the order of the pipeline."""

_SUGGESTIONS = 5
_TABLES = ("labels/answers", "labels/labels", "clean/clean", "clean/drops", "decisions")
Tables = dict[str, Any]
"""The rows of one record in each of these tables; ``None`` for a table that does not exist."""
_GATES = {"before the build": "validation", "before the training": "validation_train"}
_DECISIONS = {
    None: "kept: the judge does not contradict the rating",
    "disagrees": "dropped: the judge contradicted the rating on every attempt",
    "unrated": "dropped: the source gives no rating",
    "not_sampled": "dropped: only the judge could label it, and the profile asks the judge about a sample of the steps",
    "unparsed": "dropped: none of the judge's answers could be parsed",
    "too_long": "dropped: the prompt exceeds the judge's context",
    "refused": "dropped: the server refused the prompt",
    "engine_error": "dropped: the judge failed",
}
_BUILD_REASONS = {
    "excluded": "build excluded it by the list of exclusions",
    "overlap": "build excluded its tree because a benchmark contains the problem",
    "mix": "build did not choose its tree for the largest mix",
    "limit": "build did not choose its tree within the limit",
}


def trace_record(text: str) -> Trace:
    """The trace of a record, or of a line's records; raises ``DataError``, which suggests ids, if there is none."""
    identity = parse_identity(text)
    if not (ARTIFACTS / "raw").is_dir() and not (ARTIFACTS / "steps").is_dir():
        raise DataError(f"{ARTIFACTS}: no data here; run the pipeline first (`pathfinder run`)")
    trajectory = row_of("steps/trajectories", "trajectory_id", identity.trajectory)
    upstream, reading = upstream_line(identity, trajectory)
    if identity.position is None:
        return _trace_line(identity, trajectory, upstream, reading)
    step = row_of("steps/steps", "id", text)
    if step is None or trajectory is None:
        if (reason := exclusion(identity, reading)) is None:
            raise DataError(_unknown(identity))
        return {"id": text, "in short": reason, "upstream": upstream}
    problem, prefix = trajectory["problem"], trajectory["steps"][: step["step_index"]]
    tables = {table: rows_of(table, "id", text) for table in _TABLES}
    found = _branch(text, identity.trajectory)
    decision = _filter(tables)
    split = _split(tables, found and found[0], decision)
    again = compared(identity, reading, trajectory, step)
    links = {"line to record": again} | _links(tables, step, found)
    breaks = chain.first_break(links)
    return {
        "id": text,
        "in short": _in_short(decision, split) + ("" if breaks == "nowhere" else f"; but {breaks}"),
        "chain": links | {"breaks at": breaks},
        "upstream": upstream,
        "record": {
            "source": step["source"],
            "trajectory": step["trajectory_id"],
            "problem id": trajectory["problem_id"],
            "problem": problem,
            "prefix": prefix,
            "step": step["step"],
            "rating": step["rating"],
            "read again from the line": again,
        },
        "judge": _judge(tables, problem, prefix, step),
        "label": _without_id(tables["labels/labels"]),
        "truth": _truth(problem, prefix, step["step"]),
        "filter": decision,
        "gates": {title: _gate(identity, Path(f"reports/{name}/validation.json")) for title, name in _GATES.items()},
        "split": split,
        "training example": _example(found),
        "contamination": _contamination(trajectory, step),
    }


def _without_id(rows: list[dict[str, Any]] | None) -> Any:
    return {key: value for key, value in rows[0].items() if key != "id"} if rows else NOT_YET


def _truth(problem: str, prefix: Sequence[str], step: str) -> Any:
    try:
        from world.truth import verdict_of  # takes half a second to load
    except ModuleNotFoundError:
        return "unknown: only the repository, not the package, contains the world's generator"
    verdict = verdict_of(problem, prefix, step)
    if verdict is None:
        return "unknown: the problem is not from the generated world, or the step is outside its grammar"
    return verdict.scores | {"faults": list(verdict.faults) or "none"}


def _judge(tables: Tables, problem: str, prefix: Sequence[str], step: dict[str, Any]) -> Any:
    answers = tables["labels/answers"]
    if not answers:
        return "not asked" if answers is not None and tables["labels/labels"] else NOT_YET
    preset = metrics_of("label").get("preset", "repaired")
    model = ARTIFACTS / "raw/models/judge"
    embedded = special_texts(model) if (model / "tokenizer.json").exists() else ()
    # The prompt differs if the text contains a special token that only the judge's own tokenizer has.
    prompts = (
        step_prompt(step["source"], problem, prefix, step["step"], specials, preset)
        for specials in (FOREIGN_SPECIALS, (*FOREIGN_SPECIALS, *embedded))
    )
    digests = [sha256_of(prompt.encode()) for prompt in prompts]
    return {
        "prompt digest": digests[0],
        "answers": [
            {
                "attempt": answer["attempt"],
                "round": answer["round"],
                "outcome": answer["outcome"],
                "scores": _scores(answer["answer"], preset, answer["outcome"]),
                "prompt": "as rebuilt" if answer["prompt_digest"] in digests else f"differs: {answer['prompt_digest']}",
                "answer": answer["answer"],
            }
            for answer in sorted(answers, key=lambda answer: int(answer["attempt"]))
        ],
    }


def _scores(answer: str | None, preset: Preset, outcome: str) -> Any:
    """The answer parsed as the label stage does under its preset."""
    if answer is None:
        return "no answer"
    scores, why = read_scores(answer, preset, cut=False)
    if scores is not None and outcome == "unparsed":
        return CUT  # the only reason for which readable scores do not count
    return why if scores is None else scores.named


def _filter(tables: Tables) -> Any:
    if kept := tables["clean/clean"]:
        return {"decision": _DECISIONS[None]} | _without_id(kept)
    if dropped := tables["clean/drops"]:
        reason = dropped[0]["reason"]
        return {"decision": _DECISIONS.get(reason, f"dropped: {reason}"), "reason": reason}
    return NOT_YET


def _gate(identity: Identity, path: Path) -> Any:
    if not path.exists():
        return NOT_YET
    gates = read_json(path)["gates"]
    failed = [gate for gate in gates if not gate["passed"]]
    if not failed:
        return f"all {len(gates)} gates passed"
    own = [gate["says"] for gate in failed if {identity.text, identity.trajectory} & {*gate["examples"]}]
    return {"failed": [gate["says"] for gate in failed], "with this record as an example": own}


def _branch(text: str, tree_id: str) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """The side of the split, the tree and the branch of the record."""
    for side in ("train", "test"):
        if tree := row_of(f"train/{side}", "tree_id", tree_id):
            for branch in tree["branches"]:
                if branch["id"] == text:
                    return side, tree, branch
    return None


def _links(
    tables: Tables, step: dict[str, Any], found: tuple[str, dict[str, Any], dict[str, Any]] | None
) -> dict[str, str]:
    """Each link from the judge's journal to the training example, recomputed from the earlier tables."""
    answers, has_built = tables["labels/answers"] or [], tables["decisions"] is not None
    label, clean, drop, decision = (next(iter(tables[name] or ()), None) for name in _TABLES[1:])
    return {
        "journal to answers": chain.journal_link(answers, Path(".pathfinder/label")),
        "answer to label": chain.label_link(step, answers, label, metrics_of("label").get("preset", "repaired")),
        "label to filter": chain.filter_link(step, label, clean, drop),
        "filter to build": chain.build_link(clean, drop, decision, has_built),
        "build to branch": chain.branch_link(clean, decision, found, has_built),
    }


def _split(tables: Tables, side: str | None, decision: Any) -> Any:
    """The side of the record, or the build's reason for excluding it."""
    if decision == NOT_YET or not (ARTIFACTS / "train/train.parquet").exists():
        return NOT_YET
    if "reason" in decision:
        return "none: the filter dropped it"
    decided = next(iter(tables["decisions"] or ()), None)
    if side is not None:
        return {"side": side, "group of near duplicates": decided["group"] if decided else "no decision recorded"}
    if decided is None:
        return "none: it is in no tree, and build recorded no decision on it; re-run build"
    if decided["reason"] is None:
        return f"none: it is in no tree, but build put it in the {decided['side']} set; re-run build"
    why = _BUILD_REASONS.get(decided["reason"], decided["reason"])
    return f"none: {why}" + (f" ({decided['detail']})" if decided["detail"] else "")


def _example(found: tuple[str, dict[str, Any], dict[str, Any]] | None) -> Any:
    """The two samples of the published training as texts; the tree stores them implicitly."""
    if found is None:
        return "none" if (ARTIFACTS / "train/train.parquet").exists() else NOT_YET
    _, tree, branch = found
    problem, *steps, step = (
        neutralise(text, LABEL_TOKENS) for text in (tree["problem"], *tree["steps"], branch["step"])
    )
    rows = paper_rows({**tree, "problem": problem, "steps": steps, "branches": [{**branch, "step": step}]})
    samples = [{"inputs": inputs[1]["content"], "labels": labels[1]["content"]} for inputs, labels, _ in rows]
    labels = {name: branch[name] for name in STEP_LABELS}
    return {"labels": labels, "user turn": user_turn(problem), "samples": samples}


def _contamination(trajectory: dict[str, Any], step: dict[str, Any]) -> Any:
    found = {
        "problem": rows_of("overlap/overlap", "problem_id", trajectory["problem_id"]),
        "step": rows_of("overlap/steps", "step_digest", text_digest(normalise(step["step"]))),
        "removed": rows_of("overlap/removed", "tree_id", trajectory["trajectory_id"]),
    }
    return {name: NOT_YET if rows is None else rows or "none" for name, rows in found.items()}


def _trace_line(identity: Identity, trajectory: dict[str, Any] | None, upstream: Any, reading: Reading | None) -> Trace:
    quarantined = quarantined_line(identity, reading)
    if trajectory is None and reading is None and not quarantined:
        raise DataError(_unknown(identity))
    trace: Trace = {"id": identity.text, "upstream": upstream}
    if quarantined:
        return trace | {"quarantined": f"{quarantined[0]['reason']} ({quarantined[0]['detail']})"}
    if trajectory is None:
        return trace | {"records": NOT_YET}
    rows = rows_of("steps/steps", "trajectory_id", identity.text) or []
    fates = _fates([row["id"] for row in rows], identity.text)
    records = [{"id": row["id"], "rating": row["rating"], "fate": fates[row["id"]]} for row in rows]
    others = rows_of("steps/quarantine", "file", trajectory["file"]) or []
    quarantined = [{key: row[key] for key in ("id", "reason")} for row in others if row["line"] == identity.line]
    about = {key: trajectory[key] for key in ("source", "problem", "steps")}
    return trace | about | {"records": records, "quarantined": quarantined}


def _fates(ids: list[str], tree_id: str) -> dict[str, str]:
    """The last stage that each record reached."""
    fates = dict.fromkeys(ids, NOT_YET)
    fates |= {row["id"]: "consistent" for row in rows_of("clean/clean", "id", ids) or []}
    fates |= {row["id"]: f"dropped: {row['reason']}" for row in rows_of("clean/drops", "id", ids) or []}
    fates |= {row["id"]: f"build: {row['reason']}" for row in rows_of("decisions", "tree_id", tree_id) or []}
    for side in ("train", "test"):
        tree = row_of(f"train/{side}", "tree_id", tree_id)
        fates |= {branch["id"]: side for branch in tree["branches"]} if tree else {}
    return fates


def _unknown(identity: Identity) -> str:
    path = ARTIFACTS / "steps/steps.parquet"
    message = f"{identity.text}: no such record"
    if not path.exists():
        return f"{message}; no data is prepared yet (`pathfinder run prepare`)"
    steps = pl.scan_parquet(path).select("id", "trajectory_id")
    file = f"{identity.dataset}-{identity.sha}-"
    same_line = pl.col("trajectory_id") == identity.trajectory
    same_file = pl.col("trajectory_id").str.starts_with(file)
    distance = (pl.col("trajectory_id").str.strip_prefix(file).cast(pl.Int64, strict=False) - identity.line).abs()
    for rows in (steps.filter(same_line), steps.filter(same_file).sort(distance, maintain_order=True), steps):
        if ids := rows.head(_SUGGESTIONS).collect()["id"].to_list():
            return f"{message}; similar ids are {', '.join(ids)}"
    return f"{message}; {path} is empty"


def _in_short(decision: Any, split: Any) -> str:
    for part, outcome in (("filter", decision), ("split", split)):
        if outcome == NOT_YET:
            return f"prepared; {part}: {NOT_YET}"
        if isinstance(outcome, str):
            return outcome
        if "reason" in outcome:
            return str(outcome["decision"])
    return f"in the {split['side']} set"
