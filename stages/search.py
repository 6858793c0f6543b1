"""Run reward-guided search (prm@n) and best of n with one PRM.

Reads   artifacts/raw/search, artifacts/raw/models/policy, artifacts/predictions/sample.jsonl and models/<run> or, for
        a published PRM (docs/baselines.md), artifacts/raw/models/<system>; params: score, search, report
Writes  artifacts/predictions/search/<run>.jsonl (the published script's rows),
        artifacts/predictions/best_of_n/<run>.jsonl, metrics/search/<run>.json (percent; docs/search.md)
Run     python -m stages.search full

``search.preset: official`` searches and grades as published.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pathfinder.baselines.opening import open_prm
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.core.io import read_jsonl, sha256_file, write_json, write_jsonl
from pathfinder.core.params import Params, load_params
from pathfinder.core.runs import parse_run
from pathfinder.core.steps import PRM
from pathfinder.models.footprint import require
from pathfinder.policy.best_of_n import best_of_n, score_samples
from pathfinder.policy.chunks import in_chunks, journal
from pathfinder.policy.evaluate import POLICY, search_all, search_preset
from pathfinder.prm.readings import preset_of
from pathfinder.provenance.stage import stage

MODELS = Path("artifacts/raw/models")
SAMPLES = Path("artifacts/predictions/sample.jsonl")
PREDICTIONS = Path("artifacts/predictions/search")
CHOSEN = Path("artifacts/predictions/best_of_n")
METRICS = Path("metrics/search")


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], or a published PRM of docs/baselines.md"]) -> None:
    """Run the stage."""
    system = SYSTEMS.get(run)
    if system is None:
        parse_run(run)
    params = load_params()
    folder = MODELS / run if system else Path("models") / run
    require("search", params, {"policy": POLICY, "base": folder})
    search_preset(params)  # fails early: loading the models takes minutes
    prompt = preset_of("search", params.search.preset)
    identity, models = {"run": run, "score": params.score.model_dump()}, [POLICY, folder]
    with open_prm(folder, params.score, run if system else None, preset=prompt) as prm:
        figures = _best_of_n(run, prm, params.search.model_dump() | identity, models, params)
        rows, metrics = search_all("search", prm.rounds(), identity, models, params, rejects=system is None)
    metrics |= {"best_of_n": figures} | ({"system": run, "titles": list(system.titles)} if system else {})
    write_jsonl(PREDICTIONS / f"{run}.jsonl", rows)
    write_json(METRICS / f"{run}.json", metrics)
    averages = {f"prm@{params.search.n}": metrics["average"]} | figures["average"]
    print(f"search {run}: " + ", ".join(f"{name} {value:.1f}" for name, value in averages.items()))


def _best_of_n(run: str, prm: PRM, identity: dict[str, Any], models: list[Path], params: Params) -> dict[str, Any]:
    """Score the sample stage's solutions in chunks, choose among them, write the choices and return the figures."""
    samples = [row for _, row in read_jsonl(SAMPLES)]
    folder = journal("search", identity | {"samples": sha256_file(SAMPLES)}, [], models, "best_of_n")
    scored = in_chunks(samples, params.search.batch_size, folder, partial(score_samples, prm), f"best of n {run}")
    rows, figures = best_of_n(samples, scored, params.report)
    write_jsonl(CHOSEN / f"{run}.jsonl", rows)
    return figures


if __name__ == "__main__":
    main()
