"""LLM judges as baselines: a chat model reads a complete solution and names its errors.

ProcessBench's critique prompt asks for the first incorrect paragraph, decided by majority vote; PRMBench's prompt asks
for scores of every step. See docs/judge.md.

Settings of the published runs: QwenLM/ProcessBench ``code/run_eval.py`` (greedy, or 8 votes at temperature 1 and top-p
0.9; Qwen2.5-Math at 0.7, 0.8 and top-k 20), ssmisya/PRMBench ``mr_eval/models/{openai,gemini,vllm}_models.py``
(temperature 0; o1 takes no system turn).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from ground.io import DataError, TransientError, digest_of
from ground.recording import note
from ground.text import meant
from pathfinder.benchmarks import paper, prmbench
from pathfinder.benchmarks.evaluation import (
    BenchmarkName,
    PRMBenchEvaluation,
    ProcessBenchEvaluation,
    read_evaluation,
)
from pathfinder.benchmarks.grading import majority
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem
from pathfinder.core.params import CriticSettings, Preset, Report
from pathfinder.core.steps import Verdicts
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Meter
from pathfinder.engines.openai_client import connect
from pathfinder.engines.sampling import ServerSampling
from pathfinder.judge.critic_answers import mean_scores, official_vote, paragraph, step_scores
from pathfinder.judge.critic_prompts import DIGESTS, critique_prompt, prmbench_prompt, prmbench_turns
from pathfinder.judge.judge import ServerJudge, describe
from pathfinder.judge.prompts import FOREIGN_SPECIALS

Row = dict[str, Any]
Judged = ProcessBenchEvaluation | PRMBenchEvaluation
STATE = Path(".pathfinder/critics")
_GREEDY, _VOTING = ServerSampling(0.0, 1.0, 0), ServerSampling(1.0, 0.9, 0)
_QWEN_MATH = ServerSampling(0.7, 0.8, 0, top_k=20)


@dataclass(frozen=True, slots=True)
class Critic:
    """A chat model: its names in the paper's two tables, its name at a server, and the settings of the published runs.

    ``answer_tokens`` and ``scores_tokens`` limit an answer on ProcessBench and PRMBench. ``first`` is the role of
    PRMBench's instructions.
    """

    titles: tuple[str, ...]
    served: str
    votes: int = 8
    answer_tokens: int = 8192
    scores_tokens: int = 2048
    voting: ServerSampling = _VOTING
    first: Literal["system", "user"] = "user"
    reasoning: bool = False

    @property
    def name(self) -> str:
        """The name in files and profiles: the last part of the served name in lower case, with hyphens."""
        return "critic-" + "-".join(re.findall(r"[a-z0-9]+", self.served.rpartition("/")[2].lower()))

    def votes_on(self, benchmark: BenchmarkName) -> int:
        """Answers per item in the published run."""
        return self.votes if benchmark == "processbench" else 1

    def sampling(self, benchmark: BenchmarkName, votes: int) -> ServerSampling:
        """The sampling settings: greedy for a single answer."""
        tokens = self.answer_tokens if benchmark == "processbench" else self.scores_tokens
        return replace(self.voting if votes > 1 else _GREEDY, max_tokens=tokens, reasoning=self.reasoning)

    def published(self, benchmark: BenchmarkName) -> dict[str, float]:
        """The paper's figures in percent; empty if its table has no row for the model."""
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
    Critic(("Qwen2.5-Math-72B-Instruct", "Qwen-2.5-Math-72B"), "Qwen/Qwen2.5-Math-72B-Instruct", voting=_QWEN_MATH),
)
"""The judges in the paper's tables."""


def critic_named(name: str, answer_tokens: int = 0) -> Critic:
    """Find a judge by the paper's title, the served name or the file name; any other name is a new judge.

    ``answer_tokens`` limits its answers; 0 keeps the published limits. Raises ``DataError`` for an unknown file name.
    """
    folded = name.casefold()
    known = (c for c in CRITICS if folded in {n.casefold() for n in (*c.titles, c.served, c.name)})
    critic = next(known, None)
    if critic is None and name.startswith("critic-"):
        names = [c.name for c in CRITICS]
        raise DataError(f"{name}: no such judge; {meant(name, names)}use one of {', '.join(names)}")
    critic = critic or Critic((name,), name)
    return replace(critic, answer_tokens=answer_tokens, scores_tokens=answer_tokens) if answer_tokens else critic


def criticise(
    critic: Critic,
    benchmark: BenchmarkName,
    data: Path,
    settings: CriticSettings,
    report: Report,
    limit: int = 0,
    served: str = "",
) -> str:
    """Evaluate a judge on the benchmark in ``data``, ``limit`` items per subset or class (0: all).

    ``served`` is its name at the servers, if different. Writes ``artifacts/predictions/<benchmark>/<name>.jsonl`` and
    ``metrics/<benchmark>/<name>.json`` and returns the result as one line. The preset decides how the answers of the
    main figures are read. The metrics always have the repaired figures; ``official`` has the figures that the published
    scripts compute from the same answers.

    Raises ``BudgetSpentError`` if the budget is spent first and ``TransientError`` if calls failed; answers are kept.
    Raises ``DataError`` for a bad row of the benchmark and for a server without the model.
    """
    evaluation = read_evaluation(benchmark, data, limit)
    asked = ask(critic, evaluation, settings, served)
    read = {preset: asked.read(evaluation, preset) for preset in get_args(Preset)}
    answers = {preset: [answer for _, answer in found] for preset, found in read.items()}
    others: dict[str, Any] = {}
    if settings.preset == "official":
        repaired = evaluation.summary(answers["repaired"], report)
        others["readings"] = repaired.readings or {repaired.reading: repaired}
    metrics = evaluation.summary(
        answers[settings.preset],
        report,
        system=critic.name,
        titles=list(critic.titles),
        preset=settings.preset,
        votes=asked.votes,
        official=evaluation.official(answers["official"]),
        published=critic.published(benchmark) if asked.votes == critic.votes_on(benchmark) else {},
        asked=asked.figures | {"items_unread": answers[settings.preset].count(None)},
        **others,
    )
    evaluation.write(critic.name, [row for row, _ in read[settings.preset]], metrics)
    return evaluation.headline(critic.name, metrics)


class Text(NamedTuple):
    """An answer, and whether the token limit cut it."""

    text: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A judge's answers to each item of a benchmark, in the items' order, the votes per item, and the cost."""

    votes: int
    texts: list[list[Text]]
    figures: dict[str, Any]

    def read(self, evaluation: Judged, preset: Preset) -> list[tuple[Row, Any]]:
        """The row of a prediction file and the answer of each item, by the rules of ``preset``."""
        read: Callable[..., tuple[Row, Any]] = (
            _read_paragraph if evaluation.benchmark == "processbench" else _read_scores
        )
        return [read(item, found, preset) for item, found in zip(evaluation.items, self.texts, strict=True)]


def ask(critic: Critic, evaluation: Judged, settings: CriticSettings, served: str = "") -> Asked:
    """Ask a judge about every item; ``served`` is its name at the servers, if different. Raises as ``criticise``."""
    benchmark, model = evaluation.benchmark, served or critic.served
    votes = settings.votes or critic.votes_on(benchmark)
    prompt_of = critique_prompt if benchmark == "processbench" else prmbench_prompt
    prompts = [prompt_of(item.problem, item.steps, FOREIGN_SPECIALS) for item in evaluation.items]
    sampling = critic.sampling(benchmark, votes)
    before = prmbench_turns(critic.first) if benchmark == "prmbench" else ()
    first = critic.first if before else ""
    identity = {"model": model, "sampling": asdict(sampling), "prompts": DIGESTS, "first": first}
    keys = [[f"{sha256(prompt.encode()).hexdigest()}:{vote}" for vote in range(votes)] for prompt in prompts]
    prompt_by_key = {key: prompt for prompt, of_prompt in zip(prompts, keys, strict=True) for key in of_prompt}
    server = settings.base_urls, settings.concurrency, settings.timeout_s, settings.retries, model
    judge = ServerJudge(lambda: connect(*server), identity, sampling, before)
    note("judge", describe(judge, asdict(sampling)))
    meter = Meter(settings, lambda _key, entry: {"parsed": "outcome" not in entry})
    with Journal(STATE / digest_of(identity)[:32] / "journal.jsonl") as journal:
        with meter.wave(f"{benchmark} {critic.name}", len(prompt_by_key)):
            failed = judge.ask(sorted(prompt_by_key), prompt_by_key.__getitem__, journal, meter)
        if failed:
            raise TransientError(
                f"{len(failed)} of {len(prompt_by_key)} calls failed ({next(iter(failed.values()))}); the other "
                "answers are kept: the same command asks only for the missing ones"
            )
        entries = [[journal[key] for key in of_prompt] for of_prompt in keys]
    texts = [[Text(e["text"], e["finish"] == "length") for e in found if "outcome" not in e] for found in entries]
    outcomes = Counter(str(entry.get("outcome", "answered")) for found in entries for entry in found)
    cut = sum(answer.cut for found in texts for answer in found)
    return Asked(votes, texts, {"calls": meter.calls, "tokens": meter.tokens, "answers": outcomes, "cut": cut})


def _read_paragraph(item: ProcessBenchItem, answers: Sequence[Text], preset: Preset) -> tuple[Row, int | None]:
    votes = [paragraph(answer.text, len(item.steps), answer.cut) for answer in answers]
    prediction = official_vote([answer.text for answer in answers]) if preset == "official" else majority(votes)
    row = {"subset": item.subset, "id": item.id, "prediction": prediction, "label": item.label, "votes": votes}
    return row, prediction


def _read_scores(item: PRMBenchItem, answers: Sequence[Text], preset: Preset) -> tuple[Row, Verdicts | None]:
    """The row that the published runners write, and the verdicts on the steps.

    A score that JSON cannot represent is null in the row.
    """
    found = (step_scores(answer.text, len(item.steps), answer.cut, preset) for answer in answers)
    scores = mean_scores([score for score in found if score is not None])
    if scores is None:
        return {"idx": item.idx, "validity": False}, None
    given = {
        f"step_level_{kind}_scores": [value if math.isfinite(value) else None for value in values]
        for kind, values in asdict(scores).items()
    }
    verdicts = Verdicts([value > 0 for value in scores.validity], [value > 0 for value in scores.redundancy])
    return {"idx": item.idx, "validity": True, "scores": given | prmbench.columns(verdicts)}, verdicts
