"""Ask the judge about every step that its source leaves open.

Reads   artifacts/steps, artifacts/raw/models/judge; params: label
Writes  artifacts/labels/{labels,answers}.parquet, metrics/label.json
Run     python -m stages.label

Answers are kept in .pathfinder/label/<digest>/journal.jsonl as they come. The same command after a kill goes on from
there and ends with the same bytes; so does a run whose server was away for a while (exit status 75: try again).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stages.core.io import DataError, digest_of, read_parquet, sha256_file, transient_status, write_json, write_parquet
from stages.core.journal import Journal
from stages.core.judge import Judge, open_judge
from stages.core.labelling import Labelling, Prompts, Verdict, choose
from stages.core.labels import disagrees
from stages.core.params import Label, load_params
from stages.core.prompts import DIGESTS
from stages.core.records import ANSWERS, LABELS, STEPS, TRAJECTORIES
from stages.core.tables import table_writer
from stages.lineage.record import recorded

STEPS_FOLDER = Path("artifacts/steps")
JUDGE_FOLDER = Path("artifacts/raw/models/judge")
LABELS_FOLDER = Path("artifacts/labels")
METRICS = Path("metrics/label.json")
STATE = Path(".pathfinder/label")


def state_folder(judge: Judge, params: Label) -> Path:
    """Where the journal of this judge lies: one folder for everything that determines its answers.

    A server's answers are worth keeping across tables and samples. In process, a row's neighbours enter through
    rounding, so there the table and the choice of rows count too.
    """
    said = params.model_dump(include={"temperature", "top_p", "max_tokens", "max_model_len"})
    identity: dict[str, Any] = {"judge": judge.identity, "prompt": DIGESTS["JUDGE_PROMPT"], "sampling": said}
    if params.engine == "transformers":
        tables = [STEPS_FOLDER / "steps.parquet", STEPS_FOLDER / "trajectories.parquet"]
        chosen = {"parse_attempts", "disagreement_rounds", "prm800k_limit", "mistral_per_rating", "seed"}
        identity["tables"] = [sha256_file(table) for table in tables]
        identity["choice"] = params.model_dump(include=chosen)
    return STATE / digest_of(identity)[:32]


def labels_of(steps: pl.DataFrame, verdicts: list[Verdict]) -> pl.DataFrame:
    """The label table, one row a step, in the order of ``steps``."""
    columns: dict[str, list[Any]] = {
        "id": steps["id"].to_list(),
        "math": [v.scores.math if v.scores else None for v in verdicts],
        "consistency": [v.scores.consistency if v.scores else None for v in verdicts],
        "optimality": [v.scores.optimality if v.scores else None for v in verdicts],
        "origin": [_origin(v) for v in verdicts],
        "outcome": [v.outcome for v in verdicts],
        "attempts": [len(v.attempts) for v in verdicts],
    }
    return pl.DataFrame(columns, schema=LABELS)


def write_answers(path: Path, labelling: Labelling, verdicts: list[Verdict]) -> dict[str, Any]:
    """Write every answer to every step; returns the figures about them."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    calls: dict[str, int] = {}
    with table_writer(path, ANSWERS) as table:
        for row, identity in enumerate(labelling.steps["id"]):
            for attempt in verdicts[row].attempts:
                answer = labelling.answer(row, attempt)
                digest = labelling.prompts.digest_of[row]
                table.add(identity, attempt, answer.round, digest, answer.text, answer.outcome)
                outcomes[answer.outcome] += 1
                if answer.outcome == "unparsed":
                    reasons[answer.detail] += 1
                calls[labelling.prompts.key(row, attempt)] = answer.tokens
    total = outcomes.total()
    return {
        "answers": total,
        "calls": len(calls),
        "tokens": sum(calls.values()),
        "answer_outcomes": dict(outcomes),
        "unparsed_reasons": dict(reasons),
        "parsed_share": outcomes["parsed"] / total if total else None,
    }


def agreement(steps: pl.DataFrame, verdicts: list[Verdict]) -> dict[str, dict[str, Any]]:
    """Per source and rating: steps judged, and the share whose scores do not contradict the rating."""
    judged: Counter[tuple[str, int]] = Counter()
    agreed: Counter[tuple[str, int]] = Counter()
    for (source, rating), verdict in zip(steps.select("source", "rating").iter_rows(), verdicts, strict=True):
        if verdict.outcome == "parsed" and verdict.scores is not None:
            judged[source, rating] += 1
            agreed[source, rating] += not disagrees(source, rating, verdict.scores)
    return {
        f"{source}:{rating:+d}": {"judged": judged[source, rating], "share": agreed[source, rating] / count}
        for (source, rating), count in sorted(judged.items())
    }


def _origin(verdict: Verdict) -> str:
    if verdict.outcome == "given":
        return "rating"
    return "judge" if verdict.scores is not None else "none"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    params = load_params().label
    if params.max_tokens >= params.max_model_len:
        raise DataError(f"label.max_tokens {params.max_tokens} leaves no room in max_model_len {params.max_model_len}")
    with transient_status(), recorded("label"):
        steps = read_parquet(STEPS_FOLDER / "steps.parquet", STEPS)
        trajectories = read_parquet(STEPS_FOLDER / "trajectories.parquet", TRAJECTORIES)
        judge = open_judge(JUDGE_FOLDER, params)
        chosen = choose(steps, params)
        prompts = Prompts(steps, trajectories, [row for row, verdict in enumerate(chosen) if verdict is None], judge)
        with Journal(state_folder(judge, params) / "journal.jsonl") as journal:
            labelling = Labelling(steps, prompts, judge, journal, params, chosen)
            verdicts = labelling.run()
            figures = write_answers(LABELS_FOLDER / "answers.parquet", labelling, verdicts)
        labels = labels_of(steps, verdicts)
        write_parquet(LABELS_FOLDER / "labels.parquet", labels)
        outcomes = Counter(verdict.outcome for verdict in verdicts)
        kept = outcomes["given"] + outcomes["parsed"]
        dropped = {name: count for name, count in outcomes.items() if name not in ("given", "parsed")}
        accounting = {"read": len(steps), "kept": kept, "dropped": dropped, "quarantined": {}}
        figures |= {"outcomes": dict(outcomes), "agreement": agreement(steps, verdicts), "engine": params.engine}
        write_json(METRICS, accounting | figures)


if __name__ == "__main__":
    main()
