"""The ``pathfinder`` command. Thin: each verb calls the library, and imports what it needs when it is called."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pathfinder.core.io import DataError, PathfinderError

app = typer.Typer(
    name="pathfinder",
    help="Reproduce PathFinder-PRM: run the pipeline, score steps, grade predictions, audit results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
lineage = typer.Typer(no_args_is_help=True, help="Who made this from what, and is it still so.")
app.add_typer(lineage, name="lineage")


class Benchmark(StrEnum):
    """What a prediction file is graded against."""

    processbench = "processbench"
    prmbench = "prmbench"
    search = "search"


class Measured(StrEnum):
    """What other people's PRMs are measured on."""

    processbench = "processbench"
    prmbench = "prmbench"


class GradePreset(StrEnum):
    """Decision rules: the published evaluator's to the letter, or the repaired ones."""

    repaired = "repaired"
    official = "official"


class GradeFormat(StrEnum):
    """How a result is printed."""

    table = "table"
    json = "json"
    latex = "latex"
    markdown = "markdown"


@app.command()
def score(
    file: Annotated[str, typer.Argument(help='JSON Lines of {"id", "problem", "steps"}; - is standard input.')],
    model: Annotated[Path, typer.Option(help="Folder of a trained variant.")] = Path("models/full"),
    preset: Annotated[str, typer.Option(help="Prompt preset of the scorer.")] = "default",
    mode: Annotated[
        str,
        typer.Option(
            help="What is asked of a step. both: the labels, then the reward given them. pass1: the labels alone; the "
            "reward is null. positive: the reward given <+> at every label. all: the reward averaged over all labels."
        ),
    ] = "both",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    url: Annotated[
        str | None, typer.Option(help="A server (…/v1) that offers this model; the folder's tokenizer is still read.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="Whose PRM the folder holds, where it is not ours.")] = None,
    pretty: Annotated[bool, typer.Option(help="Draw every problem instead of printing JSON Lines.")] = False,
) -> None:
    """Score the steps of solutions: probabilities of math, consistency, and the reward; of others, the reward."""
    from pathfinder.core.progress import Progress
    from pathfinder.prm.score_lines import mode_of, read_solutions, render_scores, score_lines
    from pathfinder.prm.scorers import PRM
    from pathfinder.prm.scoring import Scorer
    from pathfinder.prm.served_scoring import ServedScorer
    from pathfinder.tree.passes import Mode

    with plain_errors():
        asked, solutions = mode_of(mode), read_solutions(file)
        scorer: PRM
        if system is not None:
            if asked is not Mode.BOTH:
                raise DataError(f"--mode {mode} asks for labels, which {system} does not have; leave it out")
            from pathfinder.baselines.adapter import AUTHORS
            from pathfinder.baselines.registry import system as named
            from pathfinder.baselines.scorer import BaselineScorer

            scorer = BaselineScorer(model, named(system).methods[AUTHORS], dtype)
        elif url is not None:
            scorer = ServedScorer(model, [url], preset, mode=asked)
        else:
            scorer = Scorer(model, preset, dtype, mode=asked)
        if pretty:
            for solution, scores in zip(solutions, scorer.score(solutions), strict=True):
                typer.echo(render_scores(solution, scores, colour=sys.stdout.isatty()))
            return
        with Progress("score", len(solutions), "solution") as progress:
            rows = score_lines(scorer, solutions, progress.advance)
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=True, allow_nan=False))


@app.command()
def evaluate(
    system: Annotated[str, typer.Option(help="Whose PRM it is; docs/baselines.md lists the names.")],
    model: Annotated[Path, typer.Option(help="Its model folder.")],
    benchmark: Annotated[Measured, typer.Option(help="What it is measured on.")],
    data: Annotated[Path | None, typer.Option(help="The benchmark's folder; default: artifacts/raw/…")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Items a file; 0 is all.")] = 0,
) -> None:
    """Measure somebody else's PRM, its authors' way and the benchmark's; writes predictions and metrics."""
    from pathfinder.baselines.evaluate import HEADLINES, headline
    from pathfinder.baselines.evaluate import evaluate as measure
    from pathfinder.baselines.registry import system as named
    from pathfinder.core.params import load_params

    with plain_errors():
        one, name = named(system), next(name for name in HEADLINES if name == benchmark.value)
        params = load_params()
        folder = data or Path("artifacts/raw") / benchmark.value
        typer.echo(headline(one, name, measure(one, model, name, folder, params.score, params.report, limit)))


@app.command()
def critic(
    benchmark: Annotated[Measured, typer.Argument(help="What it judges.")],
    model: Annotated[str, typer.Option(help="A chat model; docs/critics.md lists the paper's, others are welcome.")],
    url: Annotated[list[str], typer.Option(help="An OpenAI-compatible server (…/v1); several equal ones share.")],
    served: Annotated[str, typer.Option(help="The model's name at the server, where it is another.")] = "",
    votes: Annotated[int, typer.Option(min=0, help="Answers a solution; 0 is as published.")] = 0,
    preset: Annotated[GradePreset, typer.Option(help="How answers are read.")] = GradePreset.repaired,
    data: Annotated[Path | None, typer.Option(help="The benchmark's folder; default: artifacts/raw/…")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Items a file; 0 is all.")] = 0,
    answer_tokens: Annotated[int, typer.Option(min=0, help="Longest answer; 0 is as published.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Calls at a time, each server.")] = 32,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds a call.")] = 600.0,
    retries: Annotated[int, typer.Option(min=0, help="Tries after the first.")] = 6,
    max_calls: Annotated[int, typer.Option(min=0, help="Budget over all runs; 0 is none.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=0, help="Budget over all runs, prompts and answers.")] = 0,
    max_hours: Annotated[float, typer.Option(min=0.0, help="Budget of this run.")] = 0.0,
    price: Annotated[float, typer.Option(min=0.0, help="Of a million tokens, for the line of costs.")] = 0.0,
) -> None:
    """Measure a chat model as a judge of whole solutions; writes predictions and metrics. OPENAI_API_KEY is used."""
    from pathfinder.core.params import load_params
    from pathfinder.engines.metering import Budget
    from pathfinder.judge import critics

    with plain_errors(), passed_on() as status:
        one = critics.critic(model, answer_tokens)
        name = next(name for name in critics.BENCHMARKS if name == benchmark.value)
        endpoint = critics.Endpoint(tuple(url), concurrency, timeout, retries, served)
        budget = Budget(max_calls, max_tokens, max_hours, price)
        folder = data or Path("artifacts/raw") / name
        report = load_params().report
        metrics = critics.criticise(one, name, folder, endpoint, report, votes, preset.value, limit, budget)
        typer.echo(critics.headline(one, name, metrics))
    if status:
        raise typer.Exit(status[0])


@app.command()
def grade(
    benchmark: Annotated[Benchmark, typer.Argument(help="What the predictions answer.")],
    file: Annotated[Path, typer.Argument(help="The prediction file, or a published runner's output folder.")],
    data: Annotated[Path | None, typer.Option(help="The benchmark's folder; default: artifacts/raw/…")] = None,
    preset: Annotated[GradePreset, typer.Option(help="Decision rules.")] = GradePreset.repaired,
    output: Annotated[GradeFormat, typer.Option("--format", help="How the result is printed.")] = GradeFormat.table,
) -> None:
    """Grade anyone's prediction file as the benchmark does."""
    from pathfinder.benchmarks.grade import grade as grade_file
    from pathfinder.benchmarks.grade import notes, render

    with plain_errors():
        result = grade_file(benchmark.value, file, data or Path("artifacts/raw") / benchmark.value, preset.value)
        typer.echo(render(benchmark.value, result, output.value).rstrip("\n"))
        if output is not GradeFormat.json:  # which has the counts in its details
            for note in notes(benchmark.value, result, preset.value):
                typer.echo(f"note: {note}", err=True)


@app.command()
def record(
    identity: Annotated[str, typer.Argument(metavar="ID", help="A record's id; or a trajectory's, for its records.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show one record's whole life: upstream line, judge answers, label, filter, split, example, contamination."""
    from pathfinder.lineage.__main__ import main as audit

    with plain_errors(), passed_on() as status:
        audit(["record", *(["--json"] if as_json else []), "--", identity])
    if status:
        raise typer.Exit(status[0])


@lineage.command("up")
def lineage_up(path: Annotated[str, typer.Argument(help="An output, such as models/full.")]) -> None:
    """Print the whole way back from a path to the source files."""
    from pathfinder.lineage.__main__ import main as audit

    audit(["up", path])


@lineage.command("check")
def lineage_check(path: Annotated[str | None, typer.Argument(help="An output; none is everything.")] = None) -> None:
    """Re-hash what a path names; exit status 1 on any difference."""
    from pathfinder.lineage.__main__ import main as audit

    audit(["check", *([path] if path else [])])


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print a ``PathfinderError`` as one red line, without a traceback, and exit with its status."""
    try:
        yield
    except PathfinderError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(error.exit_status) from error


@contextmanager
def passed_on() -> Iterator[list[int]]:
    """Collect a command's exit status where it is not 0; its message, if any, is printed in red."""
    status: list[int] = []
    try:
        yield status
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            typer.secho(leaving.code, fg=typer.colors.RED, err=True)
            status.append(1)
        elif leaving.code:
            status.append(leaving.code)


def main() -> None:
    """The console command; inside a clone of the project it offers the pipeline's verbs too."""
    if Path("dvc.yaml").is_file() and Path("flows/cli.py").is_file():
        sys.path.insert(0, str(Path.cwd()))
        importlib.import_module("flows.cli")
    app()


if __name__ == "__main__":
    main()
