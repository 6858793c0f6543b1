"""Evaluate a PRM or a chat model on the benchmarks.

On ProcessBench and PRMBench, a PathFinder-PRM gives a row for each of its readings (``core.readings``), the benchmark's
own first, and on PRMBench a row for "official", the labels under the published prompt. A published PRM gives a row by
the rule of its "authors" and, if the benchmark's evaluator differs, a row by the rule of the "benchmark". A chat model
that judges whole solutions gives rows by the "repaired" and the "official" rules for its answers. The modules
``search`` and ``rows`` explain the search and the rows.

Finished chunks of solutions are kept in ``.pathfinder/bench`` until the last row is made, so the same command resumes
after an interruption. Chat model answers are never deleted, because they cost money.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from ground.io import DataError, digest_of, remove, write_jsonl
from ground.text import UsageError
from pathfinder.baselines.evaluate import open_baseline
from pathfinder.baselines.named import Named
from pathfinder.baselines.registry import system as system_named
from pathfinder.bench.rows import Paper, Row, judged_rows
from pathfinder.bench.search import SearchOptions, Task, bench_search
from pathfinder.benchmarks import paper
from pathfinder.benchmarks.evaluation import BenchmarkName, PRMBenchEvaluation, ProcessBenchEvaluation, read_evaluation
from pathfinder.core.params import CriticSettings, Preset, Score
from pathfinder.core.steps import Verdicts
from pathfinder.engines.workers import STATE, Job, chunk_folder
from pathfinder.judge.critics import CRITICS, Critic, ask
from pathfinder.models.folders import digests_of
from pathfinder.prm.evaluate import OFFICIAL, Scores, open_scoring, readings_on, score_chunks, verdicts, workers_of
from pathfinder.prm.steps import preset_of
from pathfinder.tree.passes import Mode

Name = Literal["processbench", "prmbench", "search"]
BENCHMARKS: dict[str, Name] = {name: name for name in get_args(Name)}
RULE_OF_PAPER = {"processbench": "soundness", "prmbench": OFFICIAL}
"""The rules behind the paper's figures of its own models: the published runners read only the error labels."""
Evaluation = ProcessBenchEvaluation | PRMBenchEvaluation


@dataclass(frozen=True, slots=True)
class Selection:
    """The items to evaluate on: the folder of the benchmarks' folders, and items per file (0: all).

    ``subsets`` adds a row per subset; ``predictions`` names a folder for the predictions.
    """

    data: Path
    limit: int = 0
    subsets: bool = False
    predictions: Path | None = None

    def read(self, benchmark: BenchmarkName) -> Evaluation:
        """The items of a benchmark; raises ``DataError`` for a missing folder or a bad row."""
        folder = self.data / benchmark
        if not folder.is_dir():
            held = f"the folder that holds {', '.join(BENCHMARKS)} (`make run` in a clone fills artifacts/raw)"
            raise DataError(f"{folder}: no such folder; --data names {held}")
        return read_evaluation(benchmark, folder, self.limit)

    def rows(self, evaluation: Evaluation, answers: Mapping[str, Sequence[Any]], paper: Paper) -> list[Row]:
        """The rows of a benchmark from the answers by each rule; writes the predictions if they are wanted."""
        if self.predictions is not None:
            predictions = evaluation.rows(answers, [{} for _ in evaluation.items])
            write_jsonl(self.predictions / f"{evaluation.benchmark}.jsonl", predictions)
        return [
            row for rule, given in answers.items() for row in judged_rows(evaluation, rule, given, paper, self.subsets)
        ]


def parse_benchmarks(text: str) -> list[Name]:
    """Names separated by commas, each once; raises ``UsageError`` for an unknown one."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if unknown := [name for name in names if name not in BENCHMARKS]:
        raise UsageError(f"--on: unknown benchmark {', '.join(map(ascii, unknown))}; use {', '.join(BENCHMARKS)}")
    return [BENCHMARKS[name] for name in names]


def identity_of(model: Named) -> dict[str, Any]:
    """The facts that determine a PRM's scores, as JSON: its folder's digest, its precision, and its published PRM."""
    return {"model": digest_of(digests_of(model.model.folder)), "dtype": model.dtype, "system": model.system}


def read_tasks(names: Sequence[Name], selection: Selection, search: SearchOptions) -> dict[Name, Evaluation | Task]:
    """The items of each benchmark, and the policy; raises as ``Selection.read`` and ``SearchOptions.read`` do."""
    data, limit = selection.data, selection.limit
    return {name: search.read(data / name, limit) if name == "search" else selection.read(name) for name in names}


def bench_prm(
    model: Named,
    identity: dict[str, Any],
    tasks: Mapping[Name, Evaluation | Task],
    selection: Selection,
    url: str | None = None,
) -> list[Row]:
    """Evaluate a PRM, on every GPU of this machine or behind the server at ``url``; ``identity`` is ``identity_of`` it.

    Raises ``DataError`` for a model or server that does not fit.
    """
    scoring = model.settings(url).model_copy(update={"processes": 0})
    kept = f"bench/{digest_of(identity | {'served': bool(url)})[:16]}"
    judged = _published if model.system else _ours
    rows: list[Row] = []
    for name, task in tasks.items():
        if isinstance(task, tuple):
            rows += bench_search(model, scoring, task, f"{kept}/{name}", selection.subsets)
            continue
        found = dict(judged(model, task, scoring, f"{kept}/{name}"))
        answers: dict[str, list[Any]] = {rule: task.answers(verdicts) for rule, verdicts in found.items()}
        theirs = Paper(model.titles, _rule_of_paper(model, task.benchmark), paper.differs(name, model.titles))
        rows += selection.rows(task, answers, theirs)
    for name in tasks:  # a parallel command may evaluate the same model on a different benchmark
        remove(STATE / kept / name)
    return rows


def bench_critic(
    critic: Critic, names: Sequence[Name], selection: Selection, settings: CriticSettings, served: str = ""
) -> list[Row]:
    """Evaluate a chat model as a judge of whole solutions; ``served`` is its name at the servers, if different.

    Raises ``UsageError`` for "search", ``DataError`` for a server without the model, and otherwise as ``ask`` does.
    """
    if "search" in names:
        raise UsageError(
            "--on search: a judge of whole solutions scores no steps, so it cannot guide a search; use "
            "processbench, prmbench"
        )
    rows: list[Row] = []
    for evaluation in [selection.read(name) for name in names if name != "search"]:
        asked = ask(critic, evaluation, settings, served)
        rules: tuple[Preset, ...] = ("repaired", "official")
        answers: dict[str, list[Any]] = {rule: [answer for _, answer in asked.read(evaluation, rule)] for rule in rules}
        is_published = critic in CRITICS and asked.votes == critic.votes_on(evaluation.benchmark)
        differs = "" if is_published else "the paper's judge has other votes or token limits"
        rows += selection.rows(evaluation, answers, Paper(critic.titles, "official", differs))
    return rows


def _rule_of_paper(model: Named, benchmark: BenchmarkName) -> str:
    """The paper takes the figures of published PRMs from the benchmarks' own evaluators, or from authors' rules."""
    if model.system is None:
        return RULE_OF_PAPER[benchmark]
    return system_named(model.system).conventions(benchmark)[-1]


Judged = Iterator[tuple[str, list[Verdicts]]]
"""For each decision rule, the verdicts on each solution."""


def _ours(model: Named, evaluation: Evaluation, scoring: Score, kept: str) -> Judged:
    scores = _scored(model, evaluation, scoring, kept, "default", Mode.BOTH)
    for reading in readings_on(evaluation.benchmark, model.model.variant):
        yield reading, verdicts(scores, reading)
    if evaluation.benchmark == "prmbench":
        scores = _scored(model, evaluation, scoring, kept, preset_of("prmbench", "official"), Mode.FIRST)
        yield OFFICIAL, verdicts(scores, OFFICIAL)


def _scored(model: Named, evaluation: Evaluation, scoring: Score, kept: str, preset: str, mode: Mode) -> Scores:
    name = evaluation.benchmark
    job = partial(open_scoring, model.model.folder, scoring, preset, mode)
    title = name if preset == "default" else f"{name}, rule official"
    (scores,) = _chunks(job, evaluation, scoring, kept, {title: ""}, {"preset": preset, "mode": mode}, served=True)
    return scores


def _published(model: Named, evaluation: Evaluation, scoring: Score, kept: str) -> Judged:
    name, system = evaluation.benchmark, system_named(model.system or "")
    conventions = system.conventions(name)
    job = partial(open_baseline, system, model.model.folder, name, scoring)
    titles = {f"{name}, rule {convention}": f"{convention}-" for convention in conventions}
    for convention, scores in zip(conventions, _chunks(job, evaluation, scoring, kept, titles, {}), strict=True):
        rule = system.method(name, convention).rule
        yield convention, list(map(rule.verdicts, scores))


def _chunks(
    job: Job,
    evaluation: Evaluation,
    scoring: Score,
    kept: str,
    titles: dict[str, str],
    identity: dict[str, Any],
    served: bool = False,
) -> Iterator[Scores]:
    """The scores of all solutions, once per title of a progress bar and prefix of the chunks' names."""
    solutions = evaluation.solutions
    content = identity | {"solutions": digest_of([asdict(solution) for solution in solutions])}
    folder = chunk_folder(kept, content, [])
    with workers_of(job, scoring, lambda: None, served) as workers:
        for title, prefix in titles.items():
            yield score_chunks(workers, folder, solutions, title, prefix)
