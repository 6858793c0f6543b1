"""One record's whole life: from its upstream line to its training example, or to the place where it was left out.

Nothing is recounted from memory: the line is found again in the raw file and read again, the judge's prompt is built
again and its digest compared, the judge's answers are parsed again. A part of the pipeline that has not run is "not
yet". Tables are scanned lazily, so that a record of a million is found in a second or so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from pathfinder.core.io import DataError, read_json
from pathfinder.core.labels import HUMAN
from pathfinder.core.prompts import (
    BAD,
    GOOD,
    LABEL_TOKENS,
    MASK,
    VARIANTS,
    Mark,
    assistant_turn,
    judge_prompt,
    user_turn,
)
from pathfinder.core.records import normalise
from pathfinder.data.upstream import Reading
from pathfinder.lineage.upstream_line import (
    ARTIFACTS,
    NOT_YET,
    Identity,
    compared,
    metrics_of,
    never_a_record,
    one_of,
    parse_identity,
    quarantined_line,
    rows_of,
    upstream_line,
)
from pathfinder.models.tokens import neutralise

Life = dict[str, Any]
"""A JSON value whose keys stand in the order of the record's life."""

_NEAR = 5
_GATES = {"before the build": "validation", "before the training": "validation_train"}
_SAID = {
    None: "kept: judge and rating do not contradict each other",
    "disagrees": "dropped: judge and rating contradict each other, and stayed so over every re-ask",
    "unrated": "dropped: the source gives no rating",
    "not_sampled": "dropped: its label would be the judge's to give, and the profile asks the judge about a part only",
    "unparsed": "dropped: no answer of the judge could be read",
    "too_long": "dropped: the prompt is longer than the judge's context",
    "refused": "dropped: the server refused the prompt",
    "engine_error": "dropped: the judge failed",
}


def life_of(text: str) -> Life:
    """The life of the record, or of all records of the trajectory, whose id is ``text``.

    Raises ``DataError`` for an id that is none, or that nothing here knows; the error names ids that are near.
    """
    identity = parse_identity(text)
    if not (ARTIFACTS / "raw").is_dir() and not (ARTIFACTS / "steps").is_dir():
        raise DataError(f"{ARTIFACTS}: no data here yet; run the pipeline first (`pathfinder run`)")
    trajectory = one_of("steps/trajectories", "trajectory_id", identity.trajectory)
    upstream, reading = upstream_line(identity, trajectory)
    if identity.position is None:
        return _line_life(identity, trajectory, upstream, reading)
    step = one_of("steps/steps", "id", text)
    fate = None if step else never_a_record(identity, reading)
    if step is None and fate is None:
        raise DataError(_unknown(identity))
    life: Life = {"id": text, "upstream": upstream}
    if step is None or trajectory is None:
        return {"id": text, "in short": fate, "upstream": upstream}
    prefix = trajectory["steps"][: step["step_index"]]
    life["record"] = {
        "source": step["source"],
        "trajectory": step["trajectory_id"],
        "problem id": trajectory["problem_id"],
        "problem": trajectory["problem"],
        "prefix": prefix,
        "step": step["step"],
        "rating": step["rating"],
        "read again from the line": compared(identity, reading, trajectory, step),
    }
    life["judge"] = _judge(text, trajectory["problem"], prefix, step)
    life["label"] = _label(text)
    life["truth"] = _truth(trajectory["problem"], prefix, step["step"])
    life["filter"] = _filter(text)
    life["gates"] = _gates(text)
    life["split"] = _split(text, trajectory, life["filter"])
    life["training example"] = _example(text, identity.trajectory)
    life["contamination"] = _contamination(trajectory, step)
    return {"id": text, "in short": _in_short(life)} | life


def _truth(problem: str, prefix: Sequence[str], step: str) -> Any:
    from pathfinder.world.truth import verdict_of  # with its statistics, half a second to load

    verdict = verdict_of(problem, prefix, step)
    if verdict is None:
        return "not known: no story of a generated world, or a step outside its grammar"
    scores = {"math": verdict.math, "consistency": verdict.consistency, "optimality": verdict.optimality}
    return scores | {"faults": list(verdict.faults) or "none"}


def _judge(text: str, problem: str, prefix: Sequence[str], step: dict[str, Any]) -> Any:
    answers = rows_of("labels/answers", "id", text)
    if answers is None:
        return NOT_YET
    preset = metrics_of("label").get("preset", "repaired")
    if not answers:
        return "not asked" if rows_of("labels/labels", "id", text) else NOT_YET
    digests = _prompt_digests(problem, prefix, step, preset == "official")
    return {
        "prompt digest": digests[0],
        "answers": [
            {
                "attempt": answer["attempt"],
                "round": answer["round"],
                "outcome": answer["outcome"],
                "scores": _scores(answer["answer"], preset, answer["outcome"]),
                "prompt": "as built again"
                if answer["prompt_digest"] in digests
                else f"differs: {answer['prompt_digest']}",
                "answer": answer["answer"],
            }
            for answer in sorted(answers, key=lambda answer: int(answer["attempt"]))
        ],
    }


def _prompt_digests(problem: str, prefix: Sequence[str], step: dict[str, Any], official: bool) -> list[str]:
    """sha256 of the prompt built again, as for a judge behind a server and as for an embedded one.

    They differ where the text holds a special token of the embedded judge's tokenizer that no server is kept from.
    """
    from pathfinder.judge.judge import FOREIGN_SPECIALS  # with the client, a second to load: most records need neither

    indent = (16 if step["source"] == HUMAN else 20) if official else 0
    digests = []
    for specials in (FOREIGN_SPECIALS, (*FOREIGN_SPECIALS, *_tokenizer_specials())):
        clean = [neutralise(part, specials) for part in (problem, *prefix, step["step"])]
        digests.append(hashlib.sha256(judge_prompt(clean[0], clean[1:-1], clean[-1], indent).encode()).hexdigest())
    return digests


def _tokenizer_specials() -> tuple[str, ...]:
    path = ARTIFACTS / "raw/models/judge/tokenizer.json"
    added = read_json(path).get("added_tokens", []) if path.exists() else []
    special = {str(token["content"]) for token in added if token.get("special")} | set(LABEL_TOKENS)
    return tuple(sorted(special, key=lambda token: (-len(token), token)))


def _scores(answer: str | None, preset: str, outcome: str) -> Any:
    """The answer parsed again, as the label stage does under its preset."""
    if answer is None:
        return "no answer"
    from pathfinder.judge.labelling import CUT, read_scores

    scores, why = read_scores(answer, preset, cut=False)
    if scores is not None and outcome == "unparsed":
        return CUT  # nothing else keeps readable scores from counting
    return why if scores is None else asdict(scores)


def _label(text: str) -> Any:
    rows = rows_of("labels/labels", "id", text)
    if not rows:
        return NOT_YET
    return {key: value for key, value in rows[0].items() if key != "id"}


def _filter(text: str) -> Any:
    kept, dropped = rows_of("clean/clean", "id", text), rows_of("clean/drops", "id", text)
    if kept:
        return {"decision": _SAID[None]} | {key: value for key, value in kept[0].items() if key != "id"}
    if dropped:
        reason = dropped[0]["reason"]
        return {"decision": _SAID.get(reason, f"dropped: {reason}"), "reason": reason}
    return NOT_YET


def _gates(text: str) -> Any:
    return {said: _gate(text, Path(f"reports/{folder}/validation.json")) for said, folder in _GATES.items()}


def _gate(text: str, path: Path) -> Any:
    if not path.exists():
        return NOT_YET
    outcome = read_json(path)
    failed = [gate for gate in outcome["gates"] if not gate["passed"]]
    if not failed:
        return f"all {len(outcome['gates'])} gates passed"
    mine = [gate["says"] for gate in failed if any(text in example for example in gate["examples"])]
    return {"failed": [gate["says"] for gate in failed], "with this record as an example": mine}


def _split(text: str, trajectory: dict[str, Any], decision: Any) -> Any:
    if decision == NOT_YET or not (ARTIFACTS / "train/train.parquet").exists():
        return NOT_YET
    if "reason" in decision:
        return "none: the filter left it out"
    for side in ("train", "test"):
        if _branch(side, text, trajectory["trajectory_id"]) is not None:
            return {"side": side, "tree": trajectory["trajectory_id"]}
    if rows_of("overlap/removed", "tree_id", trajectory["trajectory_id"]):
        return "none: build left its tree out because a benchmark holds the same problem"
    reasons = list(metrics_of("build").get("dropped", {}))
    return f"none: build left its tree out ({' or '.join(reasons) or 'no reason on record'})"


def _branch(side: str, text: str, tree_id: str) -> dict[str, Any] | None:
    tree = one_of(f"train/{side}", "tree_id", tree_id)
    return (
        next((branch | {"tree": tree} for branch in tree["branches"] if branch["id"] == text), None) if tree else None
    )


def _example(text: str, tree_id: str) -> Any:
    """The two samples of the published training, as texts: the tree holds them without writing them out."""
    branch = _branch("train", text, tree_id) or _branch("test", text, tree_id)
    if branch is None:
        return "none" if (ARTIFACTS / "train/train.parquet").exists() else NOT_YET
    tree = branch["tree"]
    texts = [neutralise(part, LABEL_TOKENS) for part in (tree["problem"], *tree["steps"], branch["step"])]
    prefix, step = texts[1 : 1 + branch["step_index"]], texts[-1]
    variant = VARIANTS["full"]
    first = [(mark.caption, _token(branch, mark)) for mark in variant.first]
    second = [(mark.caption, _token(branch, mark)) for mark in variant.second]
    samples = []
    for given, asked in (([], first), (first, second)):
        masked = [(caption, MASK) for caption, _ in asked]
        samples.append(
            {
                "inputs": assistant_turn(prefix, step, [*given, *masked]),
                "labels": assistant_turn(prefix, step, [*given, *asked]),
            }
        )
    labels = {name: branch[name] for name in ("math", "consistency", "correctness")}
    return {"labels": labels, "user turn": user_turn(texts[0]), "samples": samples}


def _token(branch: dict[str, Any], mark: Mark) -> str:
    return GOOD if branch[mark.label] == 1 else BAD


def _contamination(trajectory: dict[str, Any], step: dict[str, Any]) -> Any:
    digest = hashlib.sha256(normalise(step["step"]).encode()).hexdigest()[:16]
    tables = {
        "problem": ("overlap/overlap", "problem_id", trajectory["problem_id"]),
        "step": ("overlap/steps", "step_digest", digest),
        "removed": ("overlap/removed", "tree_id", trajectory["trajectory_id"]),
    }
    found = {name: rows_of(*where) for name, where in tables.items()}
    return {name: NOT_YET if rows is None else rows or "none" for name, rows in found.items()}


def _line_life(identity: Identity, trajectory: dict[str, Any] | None, upstream: Any, reading: Reading | None) -> Life:
    rows = rows_of("steps/steps", "trajectory_id", identity.text) or []
    refused = quarantined_line(identity, reading)
    if trajectory is None and reading is None and not refused:
        raise DataError(_unknown(identity))
    ids = [row["id"] for row in rows]
    fates = _fates(ids)
    life: Life = {"id": identity.text, "upstream": upstream}
    if refused:
        return life | {"quarantined": f"{refused[0]['reason']} ({refused[0]['detail']})"}
    if trajectory is None:
        return life | {"records": NOT_YET if not rows else []}
    life |= {key: trajectory[key] for key in ("source", "problem", "steps")}
    return life | {
        "records": [{"id": row["id"], "rating": row["rating"], "fate": fates[row["id"]]} for row in rows],
        "quarantined": [
            {key: row[key] for key in ("id", "reason")}
            for row in rows_of("steps/quarantine", "file", trajectory["file"]) or []
            if row["line"] == identity.line
        ],
    }


def _fates(ids: Sequence[str]) -> dict[str, str]:
    """For each id where it stands: how far it came."""
    fates = dict.fromkeys(ids, NOT_YET)
    for name, said in (("clean/clean", "consistent"), ("clean/drops", "")):
        path = ARTIFACTS / f"{name}.parquet"
        if path.exists():
            for row in pl.scan_parquet(path).filter(pl.col("id").is_in(list(ids))).collect().iter_rows(named=True):
                fates[row["id"]] = said or f"dropped: {row['reason']}"
    for side in ("train", "test"):
        tree = one_of(f"train/{side}", "tree_id", ids[0].rsplit("-", 2)[0]) if ids else None
        fates |= {branch["id"]: side for branch in tree["branches"]} if tree else {}
    return fates


def _unknown(identity: Identity) -> str:
    path = ARTIFACTS / "steps/steps.parquet"
    said = f"{identity.text}: no such record"
    if not path.exists():
        return f"{said}; nothing is prepared yet (`pathfinder run prepare`)"
    steps = pl.scan_parquet(path).select("id", "trajectory_id")
    place = f"{identity.dataset}-{identity.sha}-"
    of_line = pl.col("trajectory_id") == identity.trajectory
    of_file = pl.col("trajectory_id").str.starts_with(place)
    apart = (pl.col("trajectory_id").str.strip_prefix(place).cast(pl.Int64, strict=False) - identity.line).abs()
    for where, order in ((of_line, None), (of_file, apart), (pl.lit(True), None)):
        near = steps.filter(where)
        ids = (near if order is None else near.sort(order, maintain_order=True)).head(_NEAR).collect()["id"].to_list()
        if ids:
            return f"{said}; there is {', '.join(ids)}"
    return f"{said}; {path} is empty"


def _in_short(life: Life) -> str:
    for part in ("filter", "split"):
        said = life[part]
        if said == NOT_YET:
            return f"prepared; {part}: {NOT_YET}"
        if isinstance(said, str):
            return said
        if "reason" in said:
            return str(said["decision"])
    return f"in the {life['split']['side']} set"
