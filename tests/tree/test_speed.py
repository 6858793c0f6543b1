"""Processor time of trees compared with the published way, with the same model on the same machine.

Run: OMP_NUM_THREADS=1 pytest -m benchmarks -s tests/tree/test_speed.py

With PATHFINDER_BENCHMARK_WRITE=1 the tables are written between their marks in docs/measurements.md, and the
growth with the number of steps to docs/speed-growth.csv and docs/speed-growth.svg.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from docs.tools.readme import between
from ground.io import write_json, write_text
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import Candidates, Solution
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.pages.svg import line_chart
from pathfinder.prm.scoring import Scorer
from pathfinder.tree.passes import Mode, Prompter, Query
from tests.prm.test_scoring import stop_at
from tests.support.drawings import standalone
from tests.support.models import (
    SIZES,
    SMALL,
    counted_tokens,
    plain_tokenizer,
    published_rewards,
    queries_of,
    separate_logits,
    sized_model,
)

pytestmark = pytest.mark.benchmarks
_PROBLEMS = int(os.environ.get("PATHFINDER_BENCHMARK_PROBLEMS", "24"))
_WRITES = os.environ.get("PATHFINDER_BENCHMARK_WRITE", "") == "1"
_ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = _ROOT / "docs" / "measurements.md"
_SEARCHED = 3  # problems per set in the search measurement
_EARLY = 4
_LONG = 10
_GUIDE = "published, if linear"
SUBSETS = ("gsm8k", "math", "olympiad-length")
Rows = Mapping[str, Sequence[str]]
"""The rows of a table by their first cell."""
Setting = tuple[Any, Any, Prompter, Path]
"""Model, tokenizer, prompter and the folder that holds the PRM."""


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def table(headers: Sequence[str], rows: Rows) -> str:
    """A Markdown table."""
    cells = [headers, ["---"] * len(headers), *([name, *row] for name, row in rows.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def write(path: Path, name: str, content: str) -> None:
    """Print ``content`` and, if requested, write it between the marks ``name`` of a document."""
    print(f"\n{name}\n{content}")
    if _WRITES:
        marks = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
        write_text(path, between(path.read_text(encoding="utf-8"), marks[0], content, marks[1], path))


@pytest.fixture
def setting(tmp_path: Path, mirror: Path) -> Setting:
    return setting_of(tmp_path, mirror)


def setting_of(folder: Path, mirror: Path, size: str = SMALL) -> Setting:
    """A random model in ``folder`` and a tokenizer of real problems."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = json.loads((mirror / "processbench" / "math.json").read_text())[-300:]
    tokenizer = plain_tokenizer([text for row in rows for text in (row["problem"], *row["steps"])], 2000)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = sized_model(tokenizer, size)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / MODEL_FILE, {"variant": "full"})
    return model, tokenizer, prompter, folder


def rows_of(mirror: Path, subset: str, count: int = _PROBLEMS, typical: bool = False) -> list[dict[str, Any]]:
    """The first real problems, or the first with about the mean number of steps of their set.

    ``olympiad-length`` are math problems with at least the mean number of steps of OlympiadBench.
    """
    rows: list[dict[str, Any]] = json.loads(
        (mirror / "processbench" / f"{subset.replace('olympiad-length', 'math')}.json").read_text()
    )
    rows = [row for row in rows if subset != "olympiad-length" or len(row["steps"]) >= _LONG]
    mean = sum(len(row["steps"]) for row in rows) / len(rows)
    return (sorted(rows, key=lambda row: abs(len(row["steps"]) - mean)) if typical else rows)[:count]


def solution_of(row: Mapping[str, Any]) -> Solution:
    return Solution(row["id"], row["problem"], tuple(row["steps"]))


def solutions_of(mirror: Path, subset: str) -> list[Solution]:
    return [solution_of(row) for row in rows_of(mirror, subset)]


def test_scoring(setting: Setting, mirror: Path) -> None:
    """Both passes, and the first, compared with the published runners. Early stops are at the gold label's step."""
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
            rows.setdefault(f"trees, {name}", []).append(f"{steps / took:.1f} ({published[name] / took:.1f})")
    write(DOCUMENT, "scoring", table(headers, rows))


def scored(setting: Setting, solutions: list[Solution], gold: list[int]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of the published runners and of trees, by mode."""
    model, tokenizer, prompter, folder = setting
    asked = [
        (place <= gold[number], Query("q", solution.problem, solution.steps[:place], step))
        for number, solution in enumerate(solutions)
        for place, step in enumerate(solution.steps)
    ]
    scorers = {mode: Scorer(open_model(folder), mode=mode) for mode in (Mode.BOTH, Mode.FIRST)}
    for scorer in scorers.values():
        scorer.score(solutions[:2])
    ours: list[float] = []
    rewards: list[float] = []

    def both() -> None:
        ours[:] = [score.reward for scores in scorers[Mode.BOTH].score(solutions) for score in scores]

    ways: dict[str, Callable[[], object]] = {
        "both passes": both,
        "pass 1": lambda: scorers[Mode.FIRST].score(solutions),
        "pass 1, early stop": lambda: scorers[Mode.FIRST].score(solutions, stop=stop_at(gold)),
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
def published_first(model: Any, tokenizer: Any, prompter: Prompter, queries: list[Query]) -> None:
    """Only pass 1, one prompt at a time."""
    for query in queries:
        separate_logits(model, tokenizer, prompter, query, (), (0, 1))


def test_growth_with_steps(setting: Setting, mirror: Path) -> None:
    """One solution of 2 to 64 real steps: trees grow with its length, separate prompts with its square."""
    model, tokenizer, prompter, folder = setting
    scorer = Scorer(open_model(folder))
    solutions = solutions_of(mirror, "math")
    steps = [step for solution in solutions for step in solution.steps]
    problem = solutions[0].problem
    scorer.score([Solution("g", problem, tuple(steps[:4]))])
    lines: dict[str, list[tuple[float, float]]] = {"published": [], "trees": []}
    for count in (2, 4, 8, 16, 32, 64):
        chosen = tuple((steps * 64)[:count])
        queries = queries_of(problem, chosen)
        work = partial(scorer.score, [Solution("g", problem, chosen)])
        earlier = seconds(work)
        lines["published"].append((count, seconds(partial(published_rewards, model, tokenizer, prompter, queries))))
        lines["trees"].append((count, (earlier + seconds(work)) / 2))
    pairs = list(zip(lines["published"], lines["trees"], strict=True))
    rows = ["steps,published_s,trees_s", *(f"{n},{official:.4f},{mine:.4f}" for (n, official), (_, mine) in pairs)]
    print("", *rows, sep="\n")
    if _WRITES:
        write_text(_ROOT / "docs" / "speed-growth.csv", "\n".join(rows) + "\n")
        (_, first), *_ = lines["published"]
        linear = {_GUIDE: [(count, first * count / 2) for count, _ in lines["trees"]]}
        drawing = line_chart(lines | linear, "steps of a solution", "processor seconds", guide=_GUIDE)
        write_text(_ROOT / "docs" / "speed-growth.svg", standalone(drawing))


@pytest.mark.parametrize("size", SIZES)
def test_search_rounds(size: str, tmp_path: Path, mirror: Path) -> None:
    """Eight candidates per round to the end of real solutions: the next step, and seven steps of other solutions.

    The larger models search for one solution of one set.
    """
    setting = setting_of(tmp_path, mirror, size)
    rows: dict[str, list[str]] = {}
    headers = [""]
    for subset in SUBSETS if size == SMALL else SUBSETS[:1]:
        every = solutions_of(mirror, subset)
        solutions = [solution for solution in every if len(solution.steps) >= _EARLY]
        solutions = solutions[: _SEARCHED if size == SMALL else 1]
        published, anew, cached, fewer = searched(setting, solutions, [step for other in every for step in other.steps])
        headers.append(f"{subset} ({sum(len(s.steps) for s in solutions) / len(solutions):.1f} rounds)")
        for name, mine in (("trees, no cached trunks", anew), ("trees with cached trunks", cached)):
            rows.setdefault(name, []).append(f"{sum(published) / sum(mine):.1f}")
        ratio = sum(published) / sum(cached)
        print(f"\nsearch, {size}, {subset}: time {ratio:.2f}x, tokens {fewer:.2f}x fewer, share {ratio / fewer:.2f}")
    if size == SMALL:
        write(DOCUMENT, "search", table(headers, rows))


def searched(
    setting: Setting, solutions: list[Solution], others: list[str]
) -> tuple[list[float], list[float], list[float], float]:
    """Seconds of every round: published, trees without and with trunks; how many times fewer tokens the last have."""
    model, tokenizer, prompter, folder = setting
    scorer = Scorer(open_model(folder))
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

    def with_trunks() -> list[float]:
        score_round = scorer.rounds()
        ours.clear()
        return each(lambda turn: ours.extend(s.reward for scores in score_round(turn).values() for s in scores if s))

    def one_by_one(turn: dict[str, Candidates]) -> None:
        queries = [Query("q", asked.problem, asked.prefix, step) for asked in turn.values() for step in asked.steps]
        rewards.extend(published_rewards(model, tokenizer, prompter, queries))

    anew = each(lambda turn: scorer.rounds()(turn))
    earlier = with_trunks()
    with counted_tokens() as separate:
        published = each(one_by_one)
    with counted_tokens() as joint:
        cached = [(before + after) / 2 for before, after in zip(earlier, with_trunks(), strict=True)]
    assert ours == pytest.approx(rewards, abs=1e-4)
    return published, anew, cached, sum(separate) / sum(joint)
