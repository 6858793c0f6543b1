"""LLM judges as baselines: a chat model reads a whole solution and says where it goes wrong.

ProcessBench's critique prompt asks for the first wrong paragraph, with majority voting; PRMBench's asks for a score of
every step. Any OpenAI-compatible server will do. Answers are kept in the labelling's journal, under the labelling's
budget, so a run that ends early goes on from there, and reading the answers by another preset costs no call.

Settings of the published runs: QwenLM/ProcessBench ``code/run_eval.py`` (greedy, or 8 votes at temperature 1 and top-p
0.9; Qwen2.5-Math at 0.7, 0.8 and top-k 20), ssmisya/PRMBench ``mr_eval/models/{openai,gemini,vllm}_models.py``
(temperature 0; o1 takes no system turn).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pathfinder.benchmarks import paper, prmbench, processbench
from pathfinder.benchmarks.grading import Preset
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem, read_prmbench, read_processbench
from pathfinder.core.io import DataError, TransientError, digest_of, write_json, write_jsonl
from pathfinder.core.params import Report
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Budget, Meter
from pathfinder.engines.openai_client import Sampled, ServerClient
from pathfinder.judge.critic_answers import StepScores, mean_scores, official_vote, paragraph, step_scores, vote
from pathfinder.judge.critic_prompts import DIGESTS, critique_prompt, prmbench_prompt, prmbench_turns
from pathfinder.judge.judge import FOREIGN_SPECIALS, ServerJudge

Benchmark = Literal["processbench", "prmbench"]
BENCHMARKS: tuple[Benchmark, ...] = get_args(Benchmark)
PREDICTIONS, METRICS, STATE = Path("artifacts/predictions"), Path("metrics"), Path(".pathfinder/critics")


_VOTING = Sampled(temperature=1.0, top_p=0.9, max_tokens=0)


@dataclass(frozen=True, slots=True)
class Critic:
    """A chat model: its names in the paper's two tables, its name at a server, and how the published runs ask it."""

    titles: tuple[str, ...]
    served: str
    votes: int = 8
    answer_tokens: int = 8192
    scores_tokens: int = 2048
    voting: Sampled = _VOTING
    first: Literal["system", "user"] = "user"
    reasoning: bool = False

    @property
    def name(self) -> str:
        """What files are called: the served name's last part in lower case, hyphens between letters and digits."""
        return "critic-" + "-".join(re.findall(r"[a-z0-9]+", self.served.rpartition("/")[2].lower()))

    def sampled(self, benchmark: Benchmark, votes: int) -> Sampled:
        """How its answers are drawn: greedy for a single one."""
        tokens = self.answer_tokens if benchmark == "processbench" else self.scores_tokens
        drawn = self.voting if votes > 1 else Sampled(0.0, 1.0, 0)
        return replace(drawn, max_tokens=tokens, reasoning=self.reasoning)

    def default_votes(self, benchmark: Benchmark) -> int:
        """How many answers the published runs take a solution."""
        return self.votes if benchmark == "processbench" else 1

    def published(self, benchmark: Benchmark) -> dict[str, float]:
        """The paper's figures, in percent; empty where its table has no such row."""
        table = paper.PROCESSBENCH_FULL if benchmark == "processbench" else paper.PRMBENCH
        row = next((row for title in self.titles if (row := table.row(title))), None)
        return dict(zip(table.columns, row.values, strict=True)) if row else {}


CRITICS: tuple[Critic, ...] = (
    Critic(("GPT-4o",), "gpt-4o", votes=1, scores_tokens=0, first="system"),
    Critic(("o1-mini",), "o1-mini", votes=1, answer_tokens=32768, scores_tokens=0, reasoning=True),
    Critic(("Gemini-2.0-flash-exp",), "gemini-2.0-flash-exp", votes=1, scores_tokens=8192),
    Critic(("Gemini-2.0-thinking-exp-1219",), "gemini-2.0-flash-thinking-exp-1219", votes=1, scores_tokens=8192),
    Critic(("QwQ-Preview-32B",), "Qwen/QwQ-32B-Preview", answer_tokens=32768),
    Critic(("Llama-3.3-70B-Instruct",), "meta-llama/Llama-3.3-70B-Instruct"),
    Critic(("Qwen2.5-72B-Instruct",), "Qwen/Qwen2.5-72B-Instruct"),
    Critic(
        ("Qwen2.5-Math-72B-Instruct", "Qwen-2.5-Math-72B"),
        "Qwen/Qwen2.5-Math-72B-Instruct",
        voting=Sampled(0.7, 0.8, 0, top_k=20),
    ),
)
"""The judges of the paper's tables."""


def critic(name: str, answer_tokens: int = 0) -> Critic:
    """The judge that goes by ``name`` (a title of the paper, a server's or a file's name), or a new one of that name.

    Its answers have at most ``answer_tokens``; 0 is as in the published runs. Raises ``DataError`` for a file's name
    that no judge has.
    """
    folded = name.casefold()
    known = (c for c in CRITICS if folded in {n.casefold() for n in (*c.titles, c.served, c.name)})
    found = next(known, None)
    if found is None and name.startswith("critic-"):
        raise DataError(f"{name}: no such judge; take one of {', '.join(c.name for c in CRITICS)}")
    found = found or Critic((name,), name)
    return replace(found, answer_tokens=answer_tokens, scores_tokens=answer_tokens) if answer_tokens else found


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how hard to ask: equal servers (…/v1), calls at a time each, seconds a call, tries after the first."""

    urls: tuple[str, ...]
    concurrency: int = 32
    timeout_s: float = 600.0
    retries: int = 6
    served: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    """``outcome`` is "answered", or why there is no text."""

    text: str
    cut: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """The answers of each question in their order, and what they cost."""

    answers: list[list[_Answer]]
    figures: dict[str, Any]

    def texts(self, place: int) -> list[_Answer]:
        return [answer for answer in self.answers[place] if answer.outcome == "answered"]


def criticise(
    one: Critic,
    benchmark: Benchmark,
    data: Path,
    endpoint: Endpoint,
    report: Report,
    votes: int = 0,
    preset: Preset = "repaired",
    limit: int = 0,
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Ask the judge about the benchmark in ``data`` (``limit`` items a file; 0: all), ``votes`` times an item.

    Writes ``artifacts/predictions/<benchmark>/<name>.jsonl``, which ``grade`` reads, and
    ``metrics/<benchmark>/<name>.json``; returns the metrics, in percent: graded as repaired, and under ``official`` by
    the published evaluator, whichever ``preset`` the answers were read by. Raises ``BudgetSpentError`` where the budget
    ends before the work, ``TransientError`` where calls failed; what was answered is kept.
    """
    votes = votes or one.default_votes(benchmark)
    if benchmark == "processbench":
        loaded = read_processbench(data, limit)
        prompts = [critique_prompt(item.problem, item.steps, FOREIGN_SPECIALS) for item in loaded.items]
        asked = _ask(one, benchmark, prompts, endpoint, votes, budget or Budget())
        rows = [_processbench_row(item, asked.texts(at), preset) for at, item in enumerate(loaded.items)]
        said = {(item.subset, item.id): row["prediction"] for item, row in zip(loaded.items, rows, strict=True)}
        metrics = processbench.with_interval(loaded.items, said, report)
        official = processbench.evaluate(loaded.items, said, "official")
        metrics |= {"generators": processbench.by_generator(loaded.items, said)}
        metrics |= loaded.accounting() | {"defects": loaded.defects}
        unread = sum(prediction is None for prediction in said.values())
    else:
        classified = read_prmbench(data, limit)
        prompts = [prmbench_prompt(item.problem, item.steps, FOREIGN_SPECIALS) for item in classified.items]
        asked = _ask(one, benchmark, prompts, endpoint, votes, budget or Budget())
        scores = [_scores(item, asked.texts(at), preset) for at, item in enumerate(classified.items)]
        rows = [_prmbench_row(item, found) for item, found in zip(classified.items, scores, strict=True)]
        labels = {item.idx: _labels(item, found) for item, found in zip(classified.items, scores, strict=True)}
        metrics = prmbench.with_interval(classified.items, labels, report)
        official = prmbench.evaluate(classified.items, labels, "official")
        metrics |= classified.accounting() | {"defects": classified.defects}
        unread = sum(found is None for found in scores)
    metrics |= {"system": one.name, "titles": list(one.titles), "preset": preset, "votes": votes}
    metrics |= {"official": {name: figures for name, figures in official.items() if name != "details"}}
    metrics |= {"asked": asked.figures | {"items_unread": unread}, "published": one.published(benchmark)}
    write_jsonl(PREDICTIONS / benchmark / f"{one.name}.jsonl", rows)
    write_json(METRICS / benchmark / f"{one.name}.json", metrics)
    return metrics


def headline(one: Critic, benchmark: Benchmark, metrics: dict[str, Any]) -> str:
    """The main figure and its interval as one line, with the paper's where it has one."""
    key = "mean_f1" if benchmark == "processbench" else "overall"
    value, (low, high) = metrics[key], metrics["interval"]
    published = metrics["published"].get(key)
    return f"{benchmark} {one.name}: {value:.1f} [{low:.1f}, {high:.1f}]" + (
        f" (paper: {published:.1f})" if published is not None else ""
    )


def _ask(
    one: Critic, benchmark: Benchmark, prompts: Sequence[str], endpoint: Endpoint, votes: int, budget: Budget
) -> _Asked:
    sampled = one.sampled(benchmark, votes)
    before = prmbench_turns(one.first) if benchmark == "prmbench" else ()
    wanted = endpoint.served or one.served
    settings = asdict(sampled) | {"stop": list(sampled.stop)}
    identity = {"model": wanted, "sampling": settings, "prompts": DIGESTS, "first": one.first if before else ""}
    digests = [hashlib.sha256(prompt.encode()).hexdigest() for prompt in prompts]
    by_digest = dict(zip(digests, prompts, strict=True))
    keys = [[f"{digest}:{attempt}" for attempt in range(votes)] for digest in digests]
    asked = sorted({key for mine in keys for key in mine})

    def connect() -> ServerClient:
        client = ServerClient(endpoint.urls, endpoint.concurrency, endpoint.timeout_s, endpoint.retries)
        client.model = client.served_model(wanted)
        return client

    read: Callable[[str, Any], tuple[bool | None, bool | None]] = lambda _key, said: ("outcome" not in said, None)  # noqa: E731
    judge, meter = ServerJudge(connect, identity, sampled, before), Meter(budget, read)
    with Journal(STATE / digest_of(identity)[:32] / "journal.jsonl") as journal:
        with meter.wave(f"{benchmark} {one.name}", len(asked)):
            failed = judge.ask(asked, lambda key: by_digest[key.partition(":")[0]], journal, meter)
        if failed:
            raise TransientError(
                f"{len(failed)} of {len(asked)} calls failed ({next(iter(failed.values()))}); the others are kept: "
                "the same command asks again for these alone"
            )
        answers = [[_answer(journal[key]) for key in mine] for mine in keys]
    outcomes = Counter(answer.outcome for mine in answers for answer in mine)
    cut = sum(answer.cut for mine in answers for answer in mine)
    figures = {"calls": meter.calls, "tokens": meter.tokens, "answers": dict(sorted(outcomes.items())), "cut": cut}
    return _Asked(answers, figures)


def _answer(said: dict[str, Any]) -> _Answer:
    if "outcome" in said:
        return _Answer("", False, str(said["outcome"]))
    return _Answer(str(said["text"]), said["finish"] == "length", "answered")


def _processbench_row(item: ProcessBenchItem, answers: Sequence[_Answer], preset: Preset) -> dict[str, Any]:
    votes = [paragraph(answer.text, len(item.steps), answer.cut) for answer in answers]
    found = official_vote([answer.text for answer in answers]) if preset == "official" else vote(votes)
    return {"subset": item.subset, "id": item.id, "prediction": found, "label": item.label, "votes": votes}


def _scores(item: PRMBenchItem, answers: Sequence[_Answer], preset: Preset) -> StepScores | None:
    read = (step_scores(answer.text, len(item.steps), answer.cut, preset) for answer in answers)
    return mean_scores([found for found in read if found is not None])


def _labels(item: PRMBenchItem, found: StepScores | None) -> list[bool] | None:
    """What counts in the item's class: soundness, or in the classes about redundancy that a step is not redundant."""
    if found is None:
        return None
    if item.classification in prmbench.REDUNDANCY:
        return [not score > 0 for score in found.redundancy]
    return [score > 0 for score in found.validity]


def _prmbench_row(item: PRMBenchItem, found: StepScores | None) -> dict[str, Any]:
    """As the published runners write it; a score that JSON cannot hold is null."""
    if found is None:
        return {"idx": item.idx, "validity": False}
    said: dict[str, Any] = {}
    for kind, scores in (("validity", found.validity), ("redundancy", found.redundancy)):
        said[f"step_level_{kind}_scores"] = [score if math.isfinite(score) else None for score in scores]
        said[f"step_level_{kind}_labels"] = [score > 0 for score in scores]
    return {"idx": item.idx, "validity": True, "scores": said}
