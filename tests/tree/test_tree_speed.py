"""Trees beside the published way: same model, same machine, processor time.

Run: OMP_NUM_THREADS=1 pytest -m benchmarks -s tests/tree/test_tree_speed.py

With PATHFINDER_BENCHMARK_WRITE=1 the tables go between their marks in docs/speed.md and README.md, and the growth with
the number of steps to docs/speed-growth.csv and docs/speed-growth.svg.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from infra.readme import between
from pathfinder.core.io import write_json, write_text
from pathfinder.core.prompts import VARIANTS
from pathfinder.models.description import MODEL_FILE
from pathfinder.pages.svg import line_chart, standalone
from pathfinder.prm.scoring import Candidates, Rounds, Scorer, Solution
from pathfinder.tree.passes import Mode, Prompter, Query
from tests.support.models import plain_tokenizer, separate_logits

pytestmark = pytest.mark.benchmarks
_PROBLEMS = int(os.environ.get("PATHFINDER_BENCHMARK_PROBLEMS", "24"))
_WRITES = os.environ.get("PATHFINDER_BENCHMARK_WRITE", "") == "1"
_ROOT = Path(__file__).resolve().parents[2]
_SEARCHED = 3  # problems that a search follows to the end of their real solutions
_EARLY = 4
_LONG = 10
_GUIDE = "published, were it linear"
SUBSETS = ("gsm8k", "math", "olympiad-length")
Rows = Mapping[str, Sequence[str]]
"""A table's rows by their first cell."""
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


def table(headers: Sequence[str], rows: Rows) -> str:
    """In Markdown."""
    cells = [headers, ["---"] * len(headers), *([name, *row] for name, row in rows.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def write(path: Path, name: str, content: str) -> None:
    """Put ``content`` between the marks ``name`` of a document, where that is asked for."""
    print(f"\n{name}\n{content}")
    if _WRITES:
        marks = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        write_text(path, between(path.read_text(encoding="utf-8"), marks[0], content, marks[1], path))


@pytest.fixture(scope="module")
def headline() -> Iterator[dict[str, list[str]]]:
    """The rows of the README's table, written when scoring and search are both there."""
    found: dict[str, list[str]] = {}
    yield found
    if len(found) == 4:
        write(_ROOT / "README.md", "speed", table(("times as fast", "gsm8k", "math", "ten steps and more"), found))


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


def test_scoring(setting: Setting, mirror: Path, headline: dict[str, list[str]]) -> None:
    """Every mode beside the published runners; early stops are at the gold label's step."""
    headers, rows = [""], dict[str, list[str]]()
    for subset in SUBSETS:
        solutions = solutions_of(mirror, subset)
        gold = [row["label"] if row["label"] >= 0 else len(row["steps"]) for row in rows_of(mirror, subset)]
        published, ours = scored(setting, solutions, gold)
        steps = sum(len(solution.steps) for solution in solutions)
        headers.append(f"{subset} ({steps / len(solutions):.1f} steps)")
        for name, took in published.items():
            rows.setdefault(f"published, {name}", []).append(f"{steps / took:.1f}")
        for name, took in ours.items():
            same = published.get(name, published["both passes"])
            rows.setdefault(f"trees, {name}", []).append(f"{steps / took:.1f} ({same / took:.1f})")
        stop = "pass 1, early stop"
        for said, ratio in (
            ("both passes", published["both passes"] / ours["both passes"]),
            ("pass 1 alone, beside both passes of the published way", published["both passes"] / ours["pass 1"]),
            ("published early stop (gold labels) beside trees with the same", published[stop] / ours[stop]),
        ):
            headline.setdefault(said, []).append(f"{ratio:.1f}")
    write(_ROOT / "docs" / "speed.md", "scoring", table(headers, rows))


def scored(setting: Setting, solutions: list[Solution], gold: list[int]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of the published ways and of ours, by name."""
    model, tokenizer, prompter, folder = setting
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
        "pass 1, early stop": lambda: scorers[Mode.FIRST].score_until(
            solutions, lambda number, place, _: place == gold[number]
        ),
        "pass 1 and `<+>`, `<+>`": lambda: scorers[Mode.POSITIVE].score(solutions),
        "all combinations": lambda: scorers[Mode.ALL].score(solutions),
    }
    queries = [query for _, query in asked]
    earlier = {name: seconds(work) for name, work in ways.items()}
    published = {
        "both passes": seconds(lambda: rewards.extend(published_rewards(model, tokenizer, prompter, queries))),
        "pass 1": seconds(lambda: published_first(model, tokenizer, prompter, queries)),
        "pass 1, early stop": seconds(
            lambda: published_first(model, tokenizer, prompter, [query for wanted, query in asked if wanted])
        ),
    }
    mine = {name: (earlier[name] + seconds(work)) / 2 for name, work in ways.items()}
    assert ours == pytest.approx(rewards, abs=1e-4)
    return published, mine


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
    lines: dict[str, list[tuple[float, float]]] = {"published": [], "trees": []}
    for count in (2, 4, 8, 16, 32, 64):
        chosen = tuple((steps * 64)[:count])
        queries = [Query("q", problem, chosen[:t], step) for t, step in enumerate(chosen)]
        work = partial(scorer.score, [Solution("g", problem, chosen)])
        earlier = seconds(work)
        lines["published"].append((count, seconds(partial(published_rewards, model, tokenizer, prompter, queries))))
        lines["trees"].append((count, (earlier + seconds(work)) / 2))
    pairs = list(zip(lines["published"], lines["trees"], strict=True))
    content = {
        "published": [f"{official:.2f}" for (_, official), _ in pairs],
        "trees": [f"{mine:.2f}" for _, (_, mine) in pairs],
        "ratio": [f"{official / mine:.1f}" for (_, official), (_, mine) in pairs],
    }
    write(
        _ROOT / "docs" / "speed.md",
        "growth",
        table(["steps", *(f"{count:.0f}" for count, _ in lines["trees"])], content),
    )
    if _WRITES:
        rows = ["steps,published_s,trees_s", *(f"{n},{official:.4f},{mine:.4f}" for (n, official), (_, mine) in pairs)]
        write_text(_ROOT / "docs" / "speed-growth.csv", "\n".join(rows) + "\n")
        (_, first), *_ = lines["published"]
        linear = {_GUIDE: [(count, first * count / 2) for count, _ in lines["trees"]]}
        drawing = line_chart(lines | linear, "steps of a solution", "processor seconds", guide=_GUIDE)
        write_text(_ROOT / "docs" / "speed-growth.svg", standalone(drawing))


def test_search_rounds(setting: Setting, mirror: Path, headline: dict[str, list[str]]) -> None:
    """Eight candidates a round to the end of real solutions: the step that was taken, and seven of other solutions."""
    rows: dict[str, list[str]] = {}
    headers = [""]
    for subset in SUBSETS:
        every = solutions_of(mirror, subset)
        solutions = [solution for solution in every if len(solution.steps) >= _EARLY][:_SEARCHED]
        published, anew, kept = searched(setting, solutions, [step for one in every for step in one.steps])
        headers.append(f"{subset} ({sum(len(s.steps) for s in solutions) / len(solutions):.1f} rounds)")
        for said, mine, count in (
            ("trees, each round anew", anew, None),
            ("trees over kept trunks", kept, None),
            (f"the same, the first {_EARLY} rounds", kept, _EARLY),
        ):
            rows.setdefault(said, []).append(f"{sum(published[:count]) / sum(mine[:count]):.1f}")
        headline.setdefault("search round of 8 candidates", []).append(f"{sum(published) / sum(kept):.1f}")
    write(_ROOT / "docs" / "speed.md", "search", table(headers, rows))


def searched(setting: Setting, solutions: list[Solution], others: list[str]) -> tuple[list[float], ...]:
    """Seconds of every round: the published way, trees anew, trees over kept trunks."""
    model, tokenizer, prompter, folder = setting
    scorer = Scorer(folder)
    rounds = [
        {
            s.id: Candidates(
                s.problem, s.steps[:t], (s.steps[t], *(others[i % len(others)] for i in range(7 * t, 7 * t + 7)))
            )
            for s in solutions
            if t < len(s.steps)
        }
        for t in range(max(len(s.steps) for s in solutions))
    ]
    rewards: list[float] = []
    ours: list[float] = []

    def each(work: Callable[[dict[str, Candidates]], object]) -> list[float]:
        return [seconds(partial(work, turn)) for turn in rounds]

    def over_trunks() -> list[float]:
        going = Rounds(scorer)
        ours.clear()
        return each(lambda turn: ours.extend(s.reward for scores in going.score(turn).values() for s in scores))

    def one_by_one(turn: dict[str, Candidates]) -> None:
        queries = [Query("q", asked.problem, asked.prefix, step) for asked in turn.values() for step in asked.steps]
        rewards.extend(published_rewards(model, tokenizer, prompter, queries))

    anew = each(lambda turn: Rounds(scorer).score(turn))
    earlier = over_trunks()
    published = each(one_by_one)
    kept = [(before + after) / 2 for before, after in zip(earlier, over_trunks(), strict=True)]
    assert ours == pytest.approx(rewards, abs=1e-4)
    return published, anew, kept
