"""The cost of training on trees compared with the published way, each in a separate process on the same machine.

Run: pytest -m benchmarks -s tests/training/test_speed.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ground.io import read_json
from tests.support.models import SIZES, SMALL, plain_tokenizer, qwen_config, random_qwen
from tests.support.processes import in_processes
from tests.training.load_cost import load

pytestmark = pytest.mark.benchmarks
_MIB = 2**20


def cost(
    root: Path, way: str, kind: str, file: Path, count: int, budget: int, vocabulary: int = 2048, size: str = SMALL
) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.training.train_cost", way, kind, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(count), str(budget), str(vocabulary), size],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "kind, name, count",
    [("alternatives", "prm800k/phase1_train.jsonl", 12), ("one", "processbench/math.json", 8)],
    ids=["PRM800K with alternatives", "one completion per step"],
)
def test_one_optimiser_step(root: Path, mirror: Path, kind: str, name: str, count: int) -> None:
    """Processor time, tokens and peak memory of the process for the same labels."""
    published = cost(root, "published", kind, mirror / name, count, 4096)
    ways = [("trees", budget) for budget in (4096, 2048, 1536, 1024)]
    for way, budget in (*ways, ("checkpointed", 4096), ("checkpointed", 2048)):
        mine = cost(root, way, kind, mirror / name, count, budget)
        assert mine["tokens"] < published["tokens"]
        print(
            f"\ntraining, {kind}, {mine['records']:.0f} records, {way}, token_budget {budget}: "
            f"time {published['seconds'] / mine['seconds']:.2f}x, tokens {published['tokens'] / mine['tokens']:.2f}x "
            f"fewer, peak {mine['peak'] / _MIB:.0f} MiB, published {published['peak'] / _MIB:.0f} MiB",
            end="",
        )


@pytest.mark.parametrize("size, count", [*zip(SIZES, (8, 2, 1), strict=True)], ids=SIZES)
def test_attained_share(root: Path, mirror: Path, size: str, count: int) -> None:
    """How much of the tokens that trees save they save as time, for models of three sizes, one completion per step."""
    file = mirror / "processbench/gsm8k.json"
    published, mine = (cost(root, way, "one", file, count, 4096, size=size) for way in ("published", "trees"))
    time, fewer = published["seconds"] / mine["seconds"], published["tokens"] / mine["tokens"]
    print(f"\ntraining, {size}, {mine['records']:.0f} records: time {time:.2f}x, tokens {fewer:.2f}x fewer, "
          f"share {time / fewer:.2f}")  # fmt: skip


def test_memory_with_a_real_vocabulary(root: Path, mirror: Path) -> None:
    """Logits of 152,064 tokens at every position dominate the memory of the published batch."""
    file = mirror / "prm800k/phase1_train.jsonl"
    published, mine = (cost(root, way, "alternatives", file, 1, 4096, 152064) for way in ("published", "trees"))
    print(f"\nvocabulary 152,064: peak {mine['peak'] / _MIB:.0f} MiB, published {published['peak'] / _MIB:.0f} MiB")


def test_estimated_and_measured_peaks(root: Path, mirror: Path) -> None:
    """The budget of the estimate is the largest pass, so the comparison does not depend on how full the passes are."""
    file = mirror / "prm800k/phase1_train.jsonl"
    for way, budget, vocabulary in (("trees", 4096, 2048), ("trees", 2048, 2048), ("checkpointed", 4096, 2048)):
        found = cost(root, way, "alternatives", file, 4, budget, vocabulary)
        print(
            f"\n{way}, longest pass {found['longest_pass']:.0f} tokens: estimated {found['estimate'] / _MIB:.0f} MiB, "
            f"measured {found['peak'] / _MIB:.0f} MiB, ratio {found['estimate'] / found['peak']:.2f}",
            end="",
        )


def test_memory_of_loading_in_several_processes(root: Path, tmp_path: Path) -> None:
    """A model of 66 million parameters, stored in bfloat16 and loaded in float32 by processes that share it."""
    tokenizer = plain_tokenizer()
    shape = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 4096}
    config = qwen_config(tokenizer, 32_000, **shape, **heads, tie_word_embeddings=False)
    random_qwen(config).to(torch.bfloat16).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    for count in (2, 4):
        for way in ("whole", "rows"):
            out = tmp_path / f"{way}-{count}"
            out.mkdir()
            in_processes(count, load, tmp_path / "base", way, out, folder=tmp_path)
            found = [read_json(path) for path in out.glob("*.json")]
            assert len(found) == count
            worst = {key: max(figures[key] for figures in found) for key in found[0]}
            print(
                f"\nloading {4 * worst['parameters'] / _MIB:.0f} MiB in {count} processes, {way}: peak "
                f"{worst['peak'] / _MIB:.0f} MiB and {worst['anonymous'] / _MIB:.0f} MiB afterwards in each, "
                f"{worst['seconds']:.2f} s",
                end="",
            )


def test_examples_are_tokenised_once(root: Path, mirror: Path, tmp_path: Path) -> None:
    """20,000 records of PRM800K. PATHFINDER_TOKENIZER names a folder with a tokenizer (default: a small one)."""
    tokenizer = os.environ.get("PATHFINDER_TOKENIZER")
    if tokenizer is None:
        plain_tokenizer().save_pretrained(tmp_path / "tokenizer")
    file = mirror / "prm800k/phase1_train.jsonl"
    command = [sys.executable, "-m", "tests.training.read_cost"]
    for way in ("keep", "tokenise", "map"):
        words = [way, tokenizer or str(tmp_path / "tokenizer"), str(file), "20000", str(tmp_path / "examples")]
        done = subprocess.run([*command, *words], cwd=root, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(
            f"\n{found['records']} records, {found['tokens']} tokens, longest {found['longest']}, {way}: "
            f"{found['seconds']:.3f} s, {found['anonymous'] / _MIB:.0f} MiB of its own, peak "
            f"{found['peak'] / _MIB:.0f} MiB; files {found['files'] / _MIB:.0f} MiB",
            end="",
        )
