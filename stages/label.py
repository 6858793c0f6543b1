"""Label every step whose source rating is not decisive, using the LLM judge.

Reads   artifacts/steps, artifacts/raw/models/judge; params: label
Writes  artifacts/labels/{labels,answers}.parquet, metrics/label.json
Run     python -m stages.label [--part NUMBER/COUNT]

Each answer is kept in .pathfinder/label/<digest>/journal.jsonl on arrival, so the same command resumes after a kill, a
server that was down (exit status 75: try again) or a spent budget (69: raise it). See docs/judge.md. With ``--part``,
only that part of the prompts is answered, in a journal that the stage reads later (docs/data.md).
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import polars as pl

from evidence.record.stage import stage
from ground.io import read_parquet, write_parquet
from ground.recording import note
from pathfinder.core.labels import is_labelled
from pathfinder.core.metrics import account, write_metrics
from pathfinder.core.params import load_params
from pathfinder.core.parts import Part
from pathfinder.core.records import STEPS, TRAJECTORIES
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Meter
from pathfinder.judge.judge import describe, journal_folder, open_judge
from pathfinder.judge.label_tables import agreement, labels_of, write_answers
from pathfinder.judge.labelling import Labelling, Prompts, choose, journal_path, move_parts, require_servers
from pathfinder.judge.metrics import Label
from pathfinder.models.cards import confined
from pathfinder.models.footprint import require

STEPS_FILE = Path("artifacts/steps/steps.parquet")
TRAJECTORIES_FILE = Path("artifacts/steps/trajectories.parquet")
JUDGE_FOLDER = Path("artifacts/raw/models/judge")
LABELS_FOLDER = Path("artifacts/labels")
METRICS = Path("metrics/label.json")
STATE = Path(".pathfinder/label")


@stage
def main(*, part: Annotated[str, "answer only this part of the prompts, for example 2/3"] = "") -> None:
    """Run the stage."""
    profile = load_params()
    params, only = profile.label, Part.parse(part) if part else None
    if only is not None:
        require_servers(params)
    steps, trajectories = read_parquet(STEPS_FILE, STEPS), read_parquet(TRAJECTORIES_FILE, TRAJECTORIES)
    gpus = {"openai": 0, "vllm": params.vllm.gpus, "transformers": 1}[params.engine]
    with confined(gpus), ExitStack() as stack:
        require("label", profile, {"judge": JUDGE_FOLDER})
        judge = stack.enter_context(open_judge(JUDGE_FOLDER, params, STATE))
        sampling = params.model_dump(include={"temperature", "top_p", "max_tokens", "max_model_len"})
        note("judge", describe(judge, sampling))
        verdicts = choose(steps, params)
        prompts = Prompts(steps, trajectories, verdicts, judge, params.preset)
        folder = journal_folder(STATE, judge, params, [STEPS_FILE, TRAJECTORIES_FILE])
        with Journal(journal_path(folder, only)) as journal:
            labelling = Labelling(steps, prompts, judge, journal, params, verdicts, Meter(params))
            if only is not None:
                labelling.run(only)
                return
            move_parts(journal)
            labelling.run()
            figures = write_answers(LABELS_FOLDER / "answers.parquet", labelling)
    labels = labels_of(steps, verdicts)
    write_parquet(LABELS_FOLDER / "labels.parquet", labels)
    reason = pl.when(~is_labelled()).then(pl.col("outcome"))
    made = Label(
        **dict(account(labels.select(steps["source"], reason=reason))),
        **figures,
        outcomes=Counter(labels["outcome"]),
        agreement=agreement(steps, labels),
        engine=params.engine,
        preset=params.preset,
    )
    write_metrics(METRICS, made)


if __name__ == "__main__":
    main()
