"""Processor time of trees compared with the published way, with the same model on the same machine.

Run: OMP_NUM_THREADS=1 pytest -m benchmarks -s tests/tree/test_speed.py

With PATHFINDER_BENCHMARK_WRITE=1 the tables are written between their marks in docs/measurements.md, and the
growth with the number of steps to docs/speed-growth.csv and docs/speed-growth.svg.
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
from tests.support.models import model_256, plain_tokenizer, published_rewards, queries_of, separate_logits

pytestmark = pytest.mark.benchmarks
_PROBLEMS = int(os.environ.get("PATHFINDER_BENCHMARK_PROBLEMS", "24"))
_WRITES = os.environ.get("PATHFINDER_BENCHMARK_WRITE", "") == "1"
_ROOT = Path(__file__).resolve().parents[2]
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


@pytest.fixture(scope="module")
def headline() -> Iterator[dict[str, list[str]]]:
    """The rows of the page's first table, written when both scoring and search were measured."""
    found: dict[str, list[str]] = {}
    yield found
    if len(found) == 4:
        write(
            _ROOT / "docs" / "measurements.md",
            "speed",
            table(("times as fast as published", "gsm8k", "math", "ten steps and more"), found),
        )


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
    """Real problems; ``olympiad-length`` are math problems with at least the mean number of steps of OlympiadBench."""
    rows: list[dict[str, Any]] = json.loads(
        (mirror / "processbench" / f"{subset.replace('olympiad-length', 'math')}.json").read_text()
    )
    return [row for row in rows if subset != "olympiad-length" or len(row["steps"]) >= _LONG][:_PROBLEMS]


def solutions_of(mirror: Path, subset: str) -> list[Solution]:
    return [Solution(row["id"], row["problem"], tuple(row["steps"])) for row in rows_of(mirror, subset)]


def test_scoring(setting: Setting, mirror: Path, headline: dict[str, list[str]]) -> None:
    """Every mode compared with the published runners. Early stops are at the gold label's step."""
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
        for name, ratio in (
            ("both passes", published["both passes"] / ours["both passes"]),
            ("pass 1, compared with both published passes", published["both passes"] / ours["pass 1"]),
            ("pass 1 with early stop at the gold label", published[stop] / ours[stop]),
        ):
            headline.setdefault(name, []).append(f"{ratio:.1f}")
    write(_ROOT / "docs" / "measurements.md", "scoring", table(headers, rows))


def scored(setting: Setting, solutions: list[Solution], gold: list[int]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of the published runners and of trees, by mode."""
    model, tokenizer, prompter, folder = setting
    asked = [
        (place <= gold[number], Query("q", solution.problem, solution.steps[:place], step))
        for number, solution in enumerate(solutions)
        for place, step in enumerate(solution.steps)
    ]
    scorers = {mode: Scorer(open_model(folder), mode=mode) for mode in Mode}
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
    content = {
        "published": [f"{official:.2f}" for (_, official), _ in pairs],
        "trees": [f"{mine:.2f}" for _, (_, mine) in pairs],
        "ratio": [f"{official / mine:.1f}" for (_, official), (_, mine) in pairs],
    }
    write(
        _ROOT / "docs" / "measurements.md",
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
    """Eight candidates per round to the end of real solutions: the next step, and seven steps of other solutions."""
    rows: dict[str, list[str]] = {}
    headers = [""]
    for subset in SUBSETS:
        every = solutions_of(mirror, subset)
        solutions = [solution for solution in every if len(solution.steps) >= _EARLY][:_SEARCHED]
        published, anew, cached = searched(setting, solutions, [step for other in every for step in other.steps])
        headers.append(f"{subset} ({sum(len(s.steps) for s in solutions) / len(solutions):.1f} rounds)")
        for name, mine, count in (
            ("trees, no cached trunks", anew, None),
            ("trees with cached trunks", cached, None),
            (f"with cached trunks, first {_EARLY} rounds", cached, _EARLY),
        ):
            rows.setdefault(name, []).append(f"{sum(published[:count]) / sum(mine[:count]):.1f}")
        headline.setdefault("search round of 8 candidates", []).append(f"{sum(published) / sum(cached):.1f}")
    write(_ROOT / "docs" / "measurements.md", "search", table(headers, rows))


def searched(setting: Setting, solutions: list[Solution], others: list[str]) -> tuple[list[float], ...]:
    """Seconds of every round: published, trees without and with cached trunks."""
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
    published = each(one_by_one)
    cached = [(before + after) / 2 for before, after in zip(earlier, with_trunks(), strict=True)]
    assert ours == pytest.approx(rewards, abs=1e-4)
    return published, anew, cached
