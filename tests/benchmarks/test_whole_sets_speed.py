"""The real ProcessBench and PRMBench in full, against the straightforward way: each step's prompts, one at a time.

Run: pytest -m benchmarks -s tests/benchmarks/test_whole_sets_speed.py

The model is the small world's. Our engine scores everything. The straightforward way would take hours, so a random
sample of solutions is timed one by one; the total is the number of solutions times their mean, with its standard error.
Times are processor seconds of one thread.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ground.io import write_json
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Solution
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.prm.scoring import Scorer
from pathfinder.tree.passes import Prompter, Query
from tests.support.models import published_rewards

pytestmark = pytest.mark.benchmarks
_SAMPLE = 40


def test_whole_sets(tmp_path: Path, mirror: Path, world: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sets = {
        "ProcessBench": [
            Solution(f"{i.subset} {i.id}", i.problem, i.steps) for i in read_processbench(mirror / "processbench").items
        ],
        "PRMBench": [Solution(i.idx, i.problem, i.steps) for i in read_prmbench(mirror / "prmbench").items],
    }
    shutil.copytree(world / "models" / "base", tmp_path, dirs_exist_ok=True)
    write_json(tmp_path / MODEL_FILE, {"variant": "full"})
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path)
    prompter = Prompter(tokenizer, VARIANTS["full"])  # adds missing label tokens
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa")
    model.eval()
    model.resize_token_embeddings(max(len(tokenizer), model.config.vocab_size))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    scorer = Scorer(open_model(tmp_path))
    totals = [0.0, 0.0]
    for name, solutions in sets.items():
        start = time.process_time()
        scores = scorer.score(solutions)
        ours = time.process_time() - start
        sample = random.Random(0).sample(range(len(solutions)), _SAMPLE)
        times = []
        for at in sample:
            one = solutions[at]
            start = time.process_time()
            queries = [Query("q", one.problem, one.steps[:place], step) for place, step in enumerate(one.steps)]
            rewards = published_rewards(model, tokenizer, prompter, queries)
            times.append(time.process_time() - start)
            assert [score.reward for score in scores[at]] == pytest.approx(rewards, abs=1e-4)
        whole = len(solutions) * statistics.mean(times)
        error = len(solutions) * statistics.stdev(times) / _SAMPLE**0.5
        totals = [totals[0] + ours, totals[1] + whole]
        steps = sum(len(one.steps) for one in solutions)
        print(f"\n{name}: {len(solutions)} solutions, {steps} steps: ours {ours:.0f} s, straightforward {whole:.0f} ± "
              f"{error:.0f} s by a sample of {_SAMPLE}, {whole / ours:.1f} times", flush=True)  # fmt: skip
    print(
        f"both: ours {totals[0]:.0f} s, straightforward {totals[1]:.0f} s: {totals[1] / totals[0]:.1f} times",
        flush=True,
    )
