"""Ask the judge about every step that its source leaves open.

Reads   artifacts/steps, artifacts/raw/models/judge; params: label
Writes  artifacts/labels/{labels,answers}.parquet, metrics/label.json
Run     python -m stages.label

Answers are kept in .pathfinder/label/<digest>/journal.jsonl as they come. The same command after a kill goes on from
there and ends with the same bytes; so does a run whose server was away for a while (exit status 75: try again) or
whose budget is spent (exit status 69: raise it). docs/judge.md tells the whole.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pathfinder.core.io import (
    DataError,
    digest_of,
    read_parquet,
    sha256_file,
    write_json,
    write_parquet,
)
from pathfinder.core.labels import Scores, disagrees
from pathfinder.core.params import Label, load_params
from pathfinder.core.prompts import DIGESTS
from pathfinder.core.records import ANSWERS, LABELS, STEPS, TRAJECTORIES
from pathfinder.core.tables import table_writer
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Budget, Meter
from pathfinder.judge.judge import Judge, open_judge
from pathfinder.judge.labelling import Labelling, Prompts, Verdicts, choose
from pathfinder.models.footprint import require
from pathfinder.provenance.stage import stage

STEPS_FOLDER = Path("artifacts/steps")
JUDGE_FOLDER = Path("artifacts/raw/models/judge")
LABELS_FOLDER = Path("artifacts/labels")
METRICS = Path("metrics/label.json")
STATE = Path(".pathfinder/label")
KEPT = ("given", "parsed")


def state_folder(judge: Judge, params: Label) -> Path:
    """Where the journal of this judge lies: one folder for everything that determines its answers.

    A server's answers are worth keeping across tables and samples. In process, a row's neighbours enter through
    rounding, so there the table and the choice of rows count too.
    """
    said = params.model_dump(include={"temperature", "top_p", "max_tokens", "max_model_len"})
    identity: dict[str, Any] = {"judge": judge.identity, "prompt": DIGESTS["JUDGE_PROMPT"], "sampling": said}
    if params.engine == "transformers":
        tables = [STEPS_FOLDER / "steps.parquet", STEPS_FOLDER / "trajectories.parquet"]
        chosen = {"preset", "parse_attempts", "disagreement_rounds", "prm800k_limit", "mistral_per_rating", "seed"}
        identity["tables"] = [sha256_file(table) for table in tables]
        identity["choice"] = params.model_dump(include=chosen)
    return STATE / digest_of(identity)[:32]


def labels_of(steps: pl.DataFrame, verdicts: Verdicts) -> pl.DataFrame:
    """The label table, one row a step, in the order of ``steps``."""
    outcomes = verdicts.names()
    scores = {name: verdicts.scores[:, at] for at, name in enumerate(("math", "consistency", "optimality"))}
    attempts = np.bitwise_count(verdicts.asked).astype(np.int64)
    frame = pl.DataFrame({"id": steps["id"], **scores, "outcome": outcomes, "attempts": attempts})
    scored = pl.col("math") >= 0
    origin = pl.when(pl.col("outcome") == "given").then(pl.lit("rating")).when(scored).then(pl.lit("judge"))
    absent = [pl.when(scored).then(name).alias(name) for name in scores]
    whole = frame.with_columns(*absent, origin.otherwise(pl.lit("none")).alias("origin"))
    return whole.select(pl.col(name).cast(kind) for name, kind in LABELS.items())


def write_answers(path: Path, labelling: Labelling) -> dict[str, Any]:
    """Write every answer to every step; returns the figures about them."""
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    not_binary = 0
    paid: Counter[str] = Counter()
    prompts, verdicts = labelling.prompts, labelling.verdicts
    counted = np.zeros(len(prompts), np.uint64)  # the answers of each distinct prompt, at its first place
    with table_writer(path, ANSWERS) as table:
        for place, row in enumerate(prompts.rows.tolist()):
            identity, first = labelling.steps["id"][row], prompts.place(prompts.key(place, 0))
            for attempt in verdicts.attempts(row):
                answer, bit = labelling.answer(place, attempt), np.uint64(1 << attempt)
                table.add(identity, attempt, answer.round, prompts.digest(place), answer.text, answer.outcome)
                outcomes[answer.outcome] += 1
                if answer.outcome == "unparsed":
                    reasons[answer.detail] += 1
                not_binary += answer.outcome == "parsed" and bool(answer.detail)
                if not counted[first] & bit:
                    counted[first] |= bit
                    paid.update(calls=1, tokens=answer.tokens, prompt_tokens=answer.prompt_tokens)
    total = outcomes.total()
    return {
        "answers": total,
        "calls": paid["calls"],
        "tokens": paid["tokens"],
        "prompt_tokens": paid["prompt_tokens"],
        "answer_outcomes": dict(outcomes),
        "unparsed_reasons": dict(reasons),
        "not_binary": not_binary,
        "parsed_share": outcomes["parsed"] / total if total else None,
    }


def agreement(steps: pl.DataFrame, labels: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Per source and rating: steps judged, and the share whose scores do not contradict the rating."""
    judged: Counter[tuple[str, int]] = Counter()
    agreed: Counter[tuple[str, int]] = Counter()
    columns = ("source", "rating", "math", "consistency", "optimality")
    asked = pl.concat([steps.select("source", "rating"), labels.drop("id")], how="horizontal")
    counts = asked.filter(pl.col("outcome") == "parsed").group_by(columns).len()
    for source, rating, *scores, count in counts.iter_rows():
        judged[source, rating] += count
        agreed[source, rating] += 0 if disagrees(source, rating, Scores(*scores)) else count
    return {
        f"{source}:{rating:+d}": {"judged": count, "share": agreed[source, rating] / count}
        for (source, rating), count in sorted(judged.items())
    }


def accounting(outcomes: Counter[str]) -> dict[str, Any]:
    """Where the records went: read = kept + dropped."""
    kept = sum(outcomes[name] for name in KEPT)
    dropped = {name: count for name, count in outcomes.items() if name not in KEPT}
    return {"read": outcomes.total(), "kept": kept, "dropped": dropped, "quarantined": {}}


def by_source(steps: pl.DataFrame, labels: pl.DataFrame) -> dict[str, Any]:
    """The accounting of each source."""
    outcomes: dict[str, Counter[str]] = {}
    pairs = pl.concat([steps.select("source"), labels.select("outcome")], how="horizontal")
    for source, outcome, count in pairs.group_by("source", "outcome").len().iter_rows():
        outcomes.setdefault(source, Counter())[outcome] = count
    return {source: accounting(counts) for source, counts in sorted(outcomes.items())}


@stage
def main() -> None:
    """Run the stage."""
    profile = load_params()
    params = profile.label
    if params.max_tokens >= params.max_model_len:
        raise DataError(f"label.max_tokens {params.max_tokens} leaves no room in max_model_len {params.max_model_len}")
    require("label", profile, {"judge": JUDGE_FOLDER})
    steps = read_parquet(STEPS_FOLDER / "steps.parquet", STEPS)
    trajectories = read_parquet(STEPS_FOLDER / "trajectories.parquet", TRAJECTORIES)
    with open_judge(JUDGE_FOLDER, params, STATE) as judge:
        chosen = choose(steps, params)
        prompts = Prompts(steps, trajectories, chosen, judge.specials, params.preset)
        budget = Budget(params.max_calls, params.max_tokens_total, params.max_hours, params.price_per_million_tokens)
        with Journal(state_folder(judge, params) / "journal.jsonl") as journal:
            labelling = Labelling(steps, prompts, judge, journal, params, chosen, Meter(budget))
            verdicts = labelling.run()
            figures = write_answers(LABELS_FOLDER / "answers.parquet", labelling)
    labels = labels_of(steps, verdicts)
    write_parquet(LABELS_FOLDER / "labels.parquet", labels)
    outcomes: Counter[str] = Counter(labels["outcome"].to_list())
    figures |= {"outcomes": dict(outcomes), "agreement": agreement(steps, labels), "engine": params.engine}
    figures |= {"preset": params.preset, "sources": by_source(steps, labels)}
    write_json(METRICS, accounting(outcomes) | figures)


if __name__ == "__main__":
    main()
