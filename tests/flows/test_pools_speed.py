"""Two trainings that each need a card: one machine with one card, and two workers with one card each."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.pools import Site, project, site

CARD_S = (30, 150)
"""Seconds that a training occupies its card. Nothing else costs time here, so the processor's cores do not decide."""
POOLS = {"train@full": "gpu", "train@plain": "judge"}
TABLE = "stages:\n" + "".join(f"- {{stage: '{stage}', pool: {pool}}}\n" for stage, pool in POOLS.items())


@pytest.mark.benchmarks
def test_independent_stages_on_two_workers(tmp_path: Path) -> None:
    print("\nseconds on the card    one machine    two workers    fetching and starting, per stage")
    with site(tmp_path, project(tmp_path, TABLE)) as here:
        one, many = here.clone("one"), here.clone("many")
        (one / "infra/resources.yaml").write_text("stages: []\n")
        with ExitStack() as stack:
            for pool in POOLS.values():
                stack.enter_context(here.worker(pool))
            for clone in (one, many):
                run(here, clone, 0)  # the download, and the clones of the workers
            for card_s in CARD_S:
                alone, apart = run(here, one, card_s), run(here, many, card_s)
                assert (one / "dvc.lock").read_bytes() == (many / "dvc.lock").read_bytes()
                print(f"{card_s:>19}{alone:>15.0f}{apart:>15.0f}{apart - card_s:>36.0f}", flush=True)


def run(here: Site, clone: Path, card_s: int) -> float:
    """The seconds of a run whose trainings occupy a card so long; one machine runs one training at a time."""
    (clone / "params.yaml").write_text(json.dumps({"train": {"rate": 0.5, "note": "x", "card_s": card_s}}) + "\n")
    start = time.monotonic()
    here.run(clone, "-m", "flows.reproduce", "--jobs", "1", PATHFINDER_REMOTE=remote_of(here, clone))
    return time.monotonic() - start


def remote_of(here: Site, clone: Path) -> str:
    """The bucket for the run in pools; a folder for the other one, so that it finds no result of the first."""
    return here.environment["PATHFINDER_REMOTE"] if clone.name == "many" else str(here.folder / "other")
