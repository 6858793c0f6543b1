"""Trees beside the published way: same model, same machine, processor time.

Run: OMP_NUM_THREADS=1 pytest -m benchmarks -s tests/core/test_tree_speed.py
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from stages.core.io import write_json
from stages.core.passes import Mode, Prompter, Query
from stages.core.prompts import VARIANTS
from stages.core.scoring import MODEL_FILE, Candidates, Rounds, Scorer, Solution
from tests.models import plain_tokenizer, separate_logits

pytestmark = pytest.mark.benchmarks
_PROBLEMS = int(os.environ.get("PATHFINDER_BENCHMARK_PROBLEMS", "24"))
_ROUNDS = 4
_LONG = 10
SUBSETS = ("gsm8k", "math", "olympiad-length")
Setting = tuple[Any, Any, Prompter, Path]
"""Model, tokenizer, prompter and the folder that holds the PRM."""


def model_256(tokenizer: Any) -> Any:
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model: Any = Qwen2ForCausalLM(config)
    model.config._attn_implementation = "sdpa"
    return model.eval()


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.fixture
def setting(tmp_path: Path, mirror: Path) -> Setting:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = json.loads((mirror / "processbench" / "math.json").read_text())[-300:]
    tokenizer = plain_tokenizer([text for row in rows for text in (row["problem"], *row["steps"])], 2000)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = model_256(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    write_json(tmp_path / MODEL_FILE, {"variant": "full"})
    return model, tokenizer, prompter, tmp_path


def rows_of(mirror: Path, subset: str) -> list[dict[str, Any]]:
    """Real problems; ``olympiad-length`` are those of math with as many steps as OlympiadBench's have on average."""
    rows: list[dict[str, Any]] = json.loads(
        (mirror / "processbench" / f"{subset.replace('olympiad-length', 'math')}.json").read_text()
    )
    return [row for row in rows if subset != "olympiad-length" or len(row["steps"]) >= _LONG][:_PROBLEMS]


def solutions_of(mirror: Path, subset: str) -> list[Solution]:
    return [Solution(row["id"], row["problem"], tuple(row["steps"])) for row in rows_of(mirror, subset)]


@pytest.mark.parametrize("subset", SUBSETS)
def test_scoring(setting: Setting, mirror: Path, subset: str) -> None:
    """Every mode beside the published runners; early stops are at the gold label's step."""
    model, tokenizer, prompter, folder = setting
    solutions = solutions_of(mirror, subset)
    gold = [row["label"] if row["label"] >= 0 else len(row["steps"]) for row in rows_of(mirror, subset)]
    asked = [
        (place <= gold[number], Query("q", solution.problem, solution.steps[:place], step))
        for number, solution in enumerate(solutions)
        for place, step in enumerate(solution.steps)
    ]
    scorers = {mode: Scorer(folder, mode=mode) for mode in Mode}
    for scorer in scorers.values():
        scorer.score(solutions[:2])
    ours: list[float] = []
    rewards: list[float] = []

    def both() -> None:
        ours[:] = [score.reward for scores in scorers[Mode.BOTH].score(solutions) for score in scores]

    ways: dict[str, Callable[[], object]] = {
        "both passes": both,
        "pass 1": lambda: scorers[Mode.FIRST].score(solutions),
        "pass 1 and (+,+)": lambda: scorers[Mode.POSITIVE].score(solutions),
        "all combinations": lambda: scorers[Mode.ALL].score(solutions),
        "pass 1, early stop": lambda: scorers[Mode.FIRST].score_until(
            solutions, lambda number, place, _: place == gold[number]
        ),
    }
    queries = [query for _, query in asked]
    earlier = {name: seconds(work) for name, work in ways.items()}
    official = seconds(lambda: rewards.extend(published_rewards(model, tokenizer, prompter, queries)))
    first = seconds(lambda: published_first(model, tokenizer, prompter, queries))
    stopped = seconds(lambda: published_first(model, tokenizer, prompter, [q for wanted, q in asked if wanted]))
    mine = {name: (earlier[name] + seconds(work)) / 2 for name, work in ways.items()}
    assert ours == pytest.approx(rewards, abs=1e-4)
    same = {"pass 1": first, "pass 1, early stop": stopped}
    steps = len(asked)
    print(f"\n{subset}, {len(solutions)} problems, {steps / len(solutions):.1f} steps each | steps/s | "
          "times the published both passes | times the published way to the same")  # fmt: skip
    for name, took in {"both passes": official, **same}.items():
        print(f"| published, {name} | {steps / took:.1f} | {official / took:.2f} | 1 |")
    for name, took in mine.items():
        print(f"| trees, {name} | {steps / took:.1f} | {official / took:.2f} | {same.get(name, official) / took:.2f} |")


@torch.inference_mode()
def published_rewards(model: Any, tokenizer: Any, prompter: Prompter, queries: list[Query]) -> list[float]:
    """Two passes over every step's own prompt, one prompt at a time, as the published runners do."""
    rewards = []
    for query in queries:
        first = separate_logits(model, tokenizer, prompter, query, (), (0, 1))
        labels = (first[:, prompter.ids.good] >= first[:, prompter.ids.bad]).tolist()
        second = separate_logits(model, tokenizer, prompter, query, labels, (2,))[0]
        rewards.append(second[[prompter.ids.good, prompter.ids.bad]].softmax(-1)[0].item())
    return rewards


@torch.inference_mode()
def published_first(model: Any, tokenizer: Any, prompter: Prompter, queries: list[Query]) -> None:
    """Pass 1 alone, one prompt at a time."""
    for query in queries:
        separate_logits(model, tokenizer, prompter, query, (), (0, 1))


def test_growth_with_steps(setting: Setting, mirror: Path) -> None:
    """One solution of 2 to 64 real steps: trees grow with its length, stand-alone prompts with its square."""
    model, tokenizer, prompter, folder = setting
    scorer = Scorer(folder)
    solutions = solutions_of(mirror, "math")
    steps = [step for solution in solutions for step in solution.steps]
    problem = solutions[0].problem
    scorer.score([Solution("g", problem, tuple(steps[:4]))])
    print("\n| steps | published, s | trees, s | ratio |")
    for count in (2, 4, 8, 16, 32, 64):
        chosen = tuple(steps[:count])
        queries = [Query("q", problem, chosen[:t], step) for t, step in enumerate(chosen)]
        official = seconds(partial(published_rewards, model, tokenizer, prompter, queries))
        mine = seconds(partial(scorer.score, [Solution("g", problem, chosen)]))
        print(f"| {count} | {official:.2f} | {mine:.2f} | {official / mine:.1f} |")


@pytest.mark.parametrize("subset", SUBSETS)
def test_search_rounds(setting: Setting, mirror: Path, subset: str) -> None:
    """Eight candidates a round along real solutions: the step that was taken, and seven of other solutions."""
    model, tokenizer, prompter, folder = setting
    scorer = Scorer(folder)
    every = solutions_of(mirror, subset)
    solutions = [solution for solution in every if len(solution.steps) >= _ROUNDS][:4]
    others = [step for solution in every for step in solution.steps]
    rounds = [
        {s.id: Candidates(s.problem, s.steps[:t], (s.steps[t], *others[7 * t : 7 * t + 7])) for s in solutions}
        for t in range(_ROUNDS)
    ]
    queries = [
        Query("q", asked.problem, asked.prefix, step)
        for turn in rounds
        for asked in turn.values()
        for step in asked.steps
    ]
    rewards: list[float] = []
    ours: list[float] = []

    def over_trunks() -> None:
        going = Rounds(scorer)
        ours[:] = [s.reward for turn in rounds for scores in going.score(turn).values() for s in scores]

    def from_scratch() -> None:
        for turn in rounds:
            Rounds(scorer).score(turn)

    from_scratch()
    earlier = seconds(over_trunks)
    official = seconds(lambda: rewards.extend(published_rewards(model, tokenizer, prompter, queries)))
    anew, mine = seconds(from_scratch), (earlier + seconds(over_trunks)) / 2
    assert ours == pytest.approx(rewards, abs=1e-4)
    print(f"\nsearch {subset}, {_ROUNDS} rounds of {len(solutions)} problems, 8 candidates: each round anew "
          f"{official / anew:.2f}, over kept trunks {official / mine:.2f} times the published way")  # fmt: skip
