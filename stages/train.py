"""Train one run: a variant of the PRM on a data mix with a seed.

Reads   artifacts/train/{train,test}.parquet, artifacts/raw/models/base, params: train, mixes,
        build.seed
Writes  models/<run>/, artifacts/used/<run>.parquet, metrics/train/<run>.json, metrics/train/<run>_log.json
Run     python -m stages.train full

Checkpoints and the tokenised examples are stored in .pathfinder/train/<digest of everything that determines the
results>/, so an interrupted run resumes and ends with the same bytes. ``train.launch`` can start several processes, as
can a launcher started by hand (infra/accelerate/machine.yaml). The first process writes the results.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from evidence.record.stage import stage
from ground import io
from ground.recording import code_digest, note
from pathfinder.core import mixes, records
from pathfinder.core.hub import HubModel
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import Train, load_params
from pathfinder.core.runs import Run, parse_run
from pathfinder.models import cards, folders, footprint, launch
from pathfinder.training import outcome, trainer
from pathfinder.training.card import Learnt, deciding
from pathfinder.training.checkpoints import remove_progress
from pathfinder.training.run import Trees, base_of
from pathfinder.training.run import train as train_on

TRAIN, TEST = Path("artifacts/train/train.parquet"), Path("artifacts/train/test.parquet")
BASE = Path("artifacts/raw/models/base")
PROGRESS = Path(".pathfinder/train")
USED = Path("artifacts/used")


@stage
def main(name: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Train one run, in this process or in the processes that train.launch starts."""
    run = parse_run(name)
    params = load_params()
    settings = params.train.model_copy(update={"seed": params.train.seed + run.seed - 1})
    share = mixes.share_of(params.mixes, run.mix)
    if launch.launched():
        if launch.is_first() and not launch.started_here():
            footprint.require("train", params, {"base": BASE})
        train(run, settings, share, params.build.seed)
    elif settings.launch:
        with cards.lease(launch.needed_cards(settings.launch)) as leased:
            if launch.is_first_machine():  # others may start before they have a base model
                footprint.require("train", params, {"base": BASE})
            launch.launch(settings.launch, ["stages.train", run.name], leased)
    else:
        with cards.confined(1):
            footprint.require("train", params, {"base": BASE})
            train(run, settings, share, params.build.seed)


def train(run: Run, settings: Train, share: float, mix_seed: int) -> None:
    """Train ``run`` and write its model folder and metrics; ``mix_seed`` orders the Monte-Carlo records."""
    base = folders.open_model(BASE)
    learnt = Learnt(run, base_of(base), io.sha256_file(TRAIN), share, mix_seed)
    progress = PROGRESS / _identity(learnt, settings)

    def trees() -> Trees:
        schema = records.SOFT_TREES if settings.soft_labels else records.TREES
        learn, test = (io.read_parquet(path, schema) for path in (TRAIN, TEST))
        return mixes.select(learn, share, mix_seed), test  # the held-out trees are the same for every mix

    trained = train_on(base, run.variant, settings, progress, trees, "metrics/train")
    if trained is not None:
        trained.save(settings, Path("models") / run.name, learnt)
        plan = trainer.plan_of(trained.learn, settings)
        io.write_parquet(USED / f"{run.name}.parquet", outcome.uses(trained.learn, plan, trained.left_out))
        log = [row.as_json() for row in outcome.thin_log(trained.rows)]
        io.write_json(Path(f"metrics/train/{run.name}_log.json"), log)
        write_metrics(Path(f"metrics/train/{run.name}.json"), trained.figures)
        note("throughput", trained.throughput)
        remove_progress(progress)


def _identity(learnt: Learnt, settings: Train) -> str:
    """Digest of everything that determines the results: data, base, parameters, code and library versions.

    It covers the held-out trees, because the folder keeps them. It leaves out processes and checkpoints, so a run may
    continue with a different number of processes.
    """
    return io.digest_of(
        {
            "run": learnt.run.name,
            "settings": deciding(settings),
            "data": [learnt.data, io.sha256_file(TEST), learnt.share, learnt.mix_seed],
            "base": asdict(learnt.base) if isinstance(learnt.base, HubModel) else learnt.base,
            "code": code_digest("train"),
            "versions": [version("torch"), version("transformers")],
        }
    )


if __name__ == "__main__":
    main()
