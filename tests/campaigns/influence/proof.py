"""Train without the records that an explanation names, and count the decisions that change.

Run     python -m tests.campaigns.influence.proof .pathfinder/why/proof     (in a finished quickstart)

The jobs are files in the folder, so an interrupted campaign continues, and two processes can share it: start one with
``--part named`` and one with ``--part others``, then write the summary with ``--part summary``. ``summary.json`` has
the results; extras/why/README.md explains them. Everything is drawn from ``SETTING``, which was fixed before any
held-out decision was explained.

The setting: a run of variant ``full`` on a seeded choice of whole training trees with 794 records, because one training
then costs 3 s. Held out are the items at odd places of ProcessBench; the even ones served to choose the setting. The
decision of an item is about its first step that is called incorrect or, if there is none, about the step with the
lowest output. Explained are 100 decisions, a seeded choice of those whose output is between -2 and 2 nats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import typer

from ground.io import DataError, write_bytes, write_json
from ground.text import errors_without_traceback

SETTING: dict[str, Any] = {
    "records": 800,  # at most, as whole trees
    "batch_samples": 64,
    "seed": 7,
    "nearest": 2.0,  # nats
    "decisions": 100,
    "removed_share": 0.05,
    "random_removals": 20,
    "orders": 10,
    "halves": 100,
}
_TOGETHER = 5
"""Decisions that are explained together, which shares half of the work."""

Job = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Campaign:
    """The trained model, its decisions, and where the jobs are stored."""

    folder: Path
    learner: Any
    settings: Any
    trajectory: Any
    steps: list[Any]
    outputs: npt.NDArray[np.float64]

    @property
    def records(self) -> int:
        """The number of training records."""
        return len(self.learner.ids)

    @property
    def removed(self) -> int:
        """The number of records that a removal takes away."""
        share: float = SETTING["removed_share"]
        return round(share * self.records)


def open_campaign(folder: Path) -> Campaign:
    """Train the setting's model and choose its decisions."""
    from extras.why.decision import decisive, rewards, step_of
    from extras.why.replay import rates_of, replay
    from extras.why.trained import learner_of
    from extras.why.why import BASE, BENCHMARK, TRAIN
    from ground.io import read_parquet
    from pathfinder.benchmarks.readers import read_processbench
    from pathfinder.core import mixes, records
    from pathfinder.core.params import load_params
    from pathfinder.core.prompts import VARIANTS
    from pathfinder.core.steps import Solution

    settings = load_params().train.model_copy(update={"batch_samples": SETTING["batch_samples"]})
    trees = mixes.take(read_parquet(TRAIN, records.TREES), SETTING["records"], SETTING["seed"])
    learner = learner_of(trees, BASE, VARIANTS["full"], settings)
    network, prompter = learner.network, learner.prompter
    trajectory = replay(learner, rates_of(settings, learner.steps), settings.max_grad_norm)
    learner.set(trajectory.final)
    steps, outputs, right = [], [], []
    for item in read_processbench(BENCHMARK).items[1::2]:
        solution = Solution(item.id, item.problem, item.steps)
        mine = [step_of(prompter, solution, number) for number in range(len(item.steps))]
        found = rewards(network, prompter, mine)
        at = decisive(found)
        prediction = -1 if found[at].is_correct else at
        right.append(prediction == item.label)
        if abs(found[at].log_odds) < SETTING["nearest"]:
            steps.append(mine[at])
            outputs.append(found[at].log_odds)
    chosen = np.sort(np.random.default_rng(SETTING["seed"]).permutation(len(steps))[: SETTING["decisions"]])
    about = {
        "setting": SETTING,
        "records": len(learner.ids),
        "optimiser_steps": learner.steps,
        "held_out_items": len(right),
        "right": float(np.mean(right)),
        "near": len(steps),
    }
    write_json(folder / "about.json", about)
    outputs_of_chosen = np.array([outputs[i] for i in chosen])
    return Campaign(folder, learner, settings, trajectory, [steps[i] for i in chosen], outputs_of_chosen)


def scores_of(campaign: Campaign, first: int) -> npt.NDArray[np.float64]:
    """The scores for decision ``first`` and those after it that are explained together, (decisions, records)."""
    from extras.why.decision import output_gradient
    from extras.why.unroll import unroll

    path = campaign.folder / f"scores-{first:03d}.npy"
    if not path.exists():
        learner = campaign.learner
        learner.weights = np.ones(campaign.records)
        learner.set(campaign.trajectory.final)
        chosen = campaign.steps[first : first + _TOGETHER]
        gradients = [output_gradient(learner.network, learner.prompter, step) for step in chosen]
        found = np.stack(unroll(learner, campaign.trajectory, gradients, campaign.records))
        content = BytesIO()  # np.save to a file does not notice a full disk
        np.save(content, found, allow_pickle=False)
        write_bytes(path, content.getvalue())
    scores: npt.NDArray[np.float64] = np.load(path, allow_pickle=False)
    return scores


def named(campaign: Campaign, number: int) -> npt.NDArray[np.int64]:
    """The records that support decision ``number`` most, as many as a removal takes away."""
    first = number - number % _TOGETHER
    supports = np.sign(campaign.outputs[number]) * scores_of(campaign, first)[number - first]
    return np.argsort(-supports, kind="stable")[: campaign.removed]


def run_job(campaign: Campaign, kind: str, number: int) -> None:
    """Train once and write what every decision has become, unless the job is done."""
    from extras.why.decision import rewards
    from extras.why.replay import TreeLearner, rates_of, replay

    path = file_of(campaign.folder, kind, number)
    if path.exists():
        return
    removed = _removed(campaign, kind, number)
    learner, settings = campaign.learner, campaign.settings
    if kind == "order":
        seed = 1000 + number
        learner.set(learner.start())
        chosen = settings.model_copy(update={"seed": seed})  # the same records in a different order
        learner = TreeLearner(learner.examples, learner.prompter, learner.network, chosen)
    learner.weights = np.ones(campaign.records)
    learner.weights[removed] = 0
    done = replay(learner, rates_of(settings, learner.steps), settings.max_grad_norm, keep=False)
    learner.set(done.final)
    found = rewards(learner.network, learner.prompter, campaign.steps)
    outputs, correct = [reward.log_odds for reward in found], [reward.is_correct for reward in found]
    job = {"removed": removed.tolist(), "outputs": outputs, "correct": correct}
    write_json(path, job)


def _removed(campaign: Campaign, kind: str, number: int) -> npt.NDArray[np.int64]:
    generator = np.random.default_rng([SETTING["seed"], number])
    if kind == "named":
        return named(campaign, number)
    if kind == "random":
        return np.sort(generator.permutation(campaign.records)[: campaign.removed])
    if kind == "half":
        return np.sort(generator.permutation(campaign.records)[: campaign.records // 2])
    return np.array([], dtype=np.int64)


def jobs(part: str) -> Iterator[tuple[str, int]]:
    """The jobs of a part, in their order."""
    counts = {"random": SETTING["random_removals"], "order": SETTING["orders"], "half": SETTING["halves"]}
    if part in ("all", "named"):
        yield from (("named", number) for number in range(SETTING["decisions"]))
    if part in ("all", "others"):
        yield "base", 0
        yield from ((kind, number) for kind in counts for number in range(counts[kind]))


def file_of(folder: Path, kind: str, number: int) -> Path:
    """Where the result of a job is stored."""
    return folder / f"{kind}-{number:03d}.json"


def write_summary(folder: Path) -> None:
    """Write ``summary.json``; raises ``DataError`` if a job is not finished."""
    from tests.campaigns.influence.summary import summarise

    if missing := [job for job in jobs("all") if not file_of(folder, *job).exists()]:
        raise DataError(
            f"{folder}: {len(missing)} jobs are not finished; run `python -m tests.campaigns.influence.proof {folder}`"
        )
    write_json(folder / "summary.json", summarise(folder))


def main(
    folder: Annotated[Path, typer.Argument(help="Where the finished jobs are stored.")],
    part: Annotated[
        Literal["all", "named", "others", "summary"], typer.Option(help="Run only some jobs; summary: none.")
    ] = "all",
) -> None:
    """Run the campaign, or continue it, and write its summary."""
    if part != "summary":
        campaign = open_campaign(folder)
        for kind, number in jobs(part):
            run_job(campaign, kind, number)
    if part in ("all", "summary"):
        write_summary(folder)


if __name__ == "__main__":
    with errors_without_traceback():
        typer.run(main)
