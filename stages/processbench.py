"""Find the first incorrect step of every ProcessBench solution with one of our PRMs.

Reads   artifacts/raw/processbench, models/<run>
Writes  artifacts/predictions/processbench/<run>.jsonl, metrics/processbench/<run>.json (percent)
Run     python -m stages.processbench full

Two readings are reported, from the same forward pass. The benchmark asks for soundness, and the published code's rule
follows it: a step is incorrect if an error label is negative. Quality is the paper's algorithm 1: a step is incorrect
if its reward is below 0.5. A variant with only one reading is read by it, and ``reading`` names it. ``official`` in the
metrics holds the main reading in the published evaluator's arithmetic. With ``processbench.preset: official``, the
stage stops with an error where the published runner does: at a step whose likeliest token is neither label.

In the metrics, ``thresholds`` shows the results at different thresholds of the main reading. With
``processbench.early_stop``, scoring of a solution ends at the step where every reading has found an error. The
predictions are the same, but later steps have no scores, so the metrics hold ``early_stop`` (steps in all, steps
scored) instead of ``thresholds``.

A solution that is longer than the model's context has no prediction: it counts as a miss, and in ``too_long``.
"""

from __future__ import annotations

from typing import Annotated

from evidence.record.stage import stage
from pathfinder.core.params import load_params
from pathfinder.prm.evaluate import evaluate_processbench


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Run the stage."""
    print(evaluate_processbench(run, load_params()))


if __name__ == "__main__":
    main()
