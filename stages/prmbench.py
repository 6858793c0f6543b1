"""Judge every step of PRMBench with one of our PRMs.

Reads   artifacts/raw/prmbench, models/<run>
Writes  artifacts/predictions/prmbench/<run>.jsonl, metrics/prmbench/<run>.json (percent)
Run     python -m stages.prmbench full

Four readings are reported. ``soundness``: a step is correct if all its error labels reach ``prmbench.threshold``.
``quality``: a step is correct if its reward does. ``definition``: quality in the two classes about redundancy,
soundness in the rest. ``official``: the first-pass labels with the published runner's prompt and its softmax over the
whole vocabulary. ``prmbench.preset`` selects the main reading: ``definition`` for default, ``official`` for official. A
variant that lacks readings is read by those that it has. The first three share a forward pass. The published prompt has
a different system text, so ``official`` scores the benchmark a second time. In the metrics, ``official`` has that rule
in the published evaluator's arithmetic. The published evaluator reads the predictions. A solution that is longer than
the model's context has no prediction: its row is invalid, and ``too_long`` counts it.
"""

from __future__ import annotations

from typing import Annotated

from evidence.record.stage import stage
from pathfinder.core.params import load_params
from pathfinder.prm.evaluate import evaluate_prmbench


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Run the stage."""
    print(evaluate_prmbench(run, load_params()))


if __name__ == "__main__":
    main()
