"""The ``pathfinder`` command. Each verb calls the library and imports what it needs when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from importlib.metadata import distributions, version
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.main import get_group

from ground.io import DataError
from ground.show import PIPELINE, PIPELINE_VERBS, AsJson, AsJsonLines, Verbs, example, flushed, show, show_row
from ground.text import UsageError, columns_of, errors_without_traceback, has_colour, printable
from pathfinder import options

if TYPE_CHECKING:
    from pathfinder.core.given import Given

BENCHMARKS = "PRMs and benchmarks"


class AllVerbs(Verbs):
    """The verbs of the method and of the other wings, which are loaded when they are needed.

    Only pipeline verbs, unknown verbs and the list of all verbs import code of the current folder.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A verb of the method or, if there is none with this name, of another wing."""
        if cmd_name in ("train", "bench", "leaderboard"):
            self._join(large_verbs())
        wings = other_wings()
        while cmd_name not in self.commands and (wing := next(wings, None)):
            self._join(wing)
        if cmd_name not in self.commands:
            self._join(large_verbs(), pipeline_verbs(Path.cwd()))
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all verbs."""
        self._join(large_verbs(), *other_wings(), pipeline_verbs(Path.cwd()))
        return super().list_commands(ctx)

    def _join(self, *wings: typer.Typer) -> None:
        for verbs in wings:
            for name, verb in get_group(verbs).commands.items():
                self.commands.setdefault(name, verb)


app = typer.Typer(
    name="pathfinder",
    cls=AllVerbs,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"pathfinder {version('pathfinder-prm')}")
        raise typer.Exit


@app.callback(
    help="Reproduce PathFinder-PRM: run the pipeline, score steps, grade predictions, audit results. "
    f"The verbs {', '.join(PIPELINE_VERBS)} need a clone of the project and run in its root folder. "
    "Start with `pathfinder demo`."
)
def command(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


def given_in(file: str, split: Any, columns: str, problems: str, has_candidates: bool = False) -> Given:
    """The solutions of a file; a line on standard error says how they were read if there was a choice."""
    from pathfinder.core.given import read_given

    given = read_given(file, split, columns, problems, has_candidates)
    if given.note:
        typer.echo(printable(given.note), err=True)
    return given


@app.command(rich_help_panel=BENCHMARKS, **example())
def demo(as_json: AsJson = False) -> None:
    """Score one solution with a math and a consistency error, using the small PRM of this package."""
    from pathfinder import demo

    if as_json:
        show_row(demo.as_row(demo.scored()))
    else:
        typer.echo(demo.shown())


@app.command(
    rich_help_panel=BENCHMARKS, **example("examples/solution.txt --model pathfinder/demo_model --pretty", in_clone=True)
)
def score(
    file: Annotated[
        str,
        typer.Argument(
            help='JSON lines or a JSON list of {"problem", "steps"[, "id"]} or of another layout (docs/library.md): '
            "ProcessBench, PRMBench, TRL, chat messages, question and solution, logs of lm-eval, inspect_ai and "
            "batches; also CSV, Parquet, hub:OWNER/NAME:SPLIT, or a text (.txt, .md, .tex) with blank lines between "
            "the problem and its steps; - reads standard input, but no CSV."
        ),
    ],
    model: options.Model = "models/full",
    revision: options.Revision = None,
    preset: options.Prompt = "default",
    mode: Annotated[
        Literal["both", "pass1", "positive", "all"],
        typer.Option(
            help="both: the labels, then the reward given them. pass1: only the labels; the reward is null if it has a "
            "second pass. positive: the reward given <+> at every label. all: the reward averaged over all labels."
        ),
    ] = "both",
    dtype: options.Precision = "auto",
    url: options.Server = None,
    system: options.System = None,
    split: options.Split = "auto",
    columns: options.Columns = "",
    problems: options.Problems = "",
    form: options.Form = "scores",
    pretty: options.Pretty = False,
    as_json: AsJsonLines = False,
) -> None:
    """Score every step of the solutions in a file: probabilities of the labels, and the reward.

    math and consistency are the probabilities that the step has no error of that kind.
    The reward is the probability that it is correct. Higher is better.
    """
    from ground.progress import Progress
    from pathfinder.baselines.named import open_named
    from pathfinder.prm import results
    from pathfinder.tree.passes import Mode

    if pretty and (as_json or form != "scores"):
        raise UsageError("give one of --json, --as and --pretty")
    solutions = results.read_solutions(given_in(file, split, columns, problems))
    with (
        open_named(model, revision, dtype, url, system, Mode(mode), preset) as scorer,
        Progress("score", len(solutions), "solutions") as progress,
    ):
        for part in results.batched(solutions):
            for solution, scores in zip(part, results.scored_part(scorer, part, progress.advance), strict=True):
                if pretty:
                    unlike = scorer.known.unlike(solution)
                    drawn = results.render_scores(
                        solution, scores, has_colour(sys.stdout), unlike, columns_of(sys.stdout)
                    )
                    typer.echo(f"{printable(solution.id)}:\n{drawn}\n" if len(solutions) > 1 else drawn)
                elif form == "scores":
                    show_row(results.score_row(solution, scores, scorer.known.unlike(solution)))
                else:
                    show_row(results.prediction(form, solution, scores))


@app.command(
    rich_help_panel=BENCHMARKS, **example("examples/candidates.jsonl --model pathfinder/demo_model", in_clone=True)
)
def rerank(
    file: Annotated[
        str,
        typer.Argument(
            help='JSON lines of {"problem", "solutions": […][, "answers", "id"]}; a solution is a list of steps, or a '
            "text with blank lines between them. Also every layout that `score` reads: rows with one solution are "
            "candidates if their problem is the same. - reads standard input, but no CSV."
        ),
    ],
    model: options.Model = "models/full",
    revision: options.Revision = None,
    preset: options.Prompt = "default",
    mode: Annotated[Literal["both", "positive", "all"], typer.Option(help="How rewards are read (`score`).")] = "both",
    dtype: options.Precision = "auto",
    url: options.Server = None,
    system: options.System = None,
    split: options.Split = "auto",
    columns: options.Columns = "",
    problems: options.Problems = "",
    pretty: options.Pretty = False,
    as_json: AsJsonLines = False,
) -> None:
    """Choose the best of several solutions per problem by their step rewards, the vote of their answers, or both.

    Prints one row per problem: the index that each rule chooses, and all rewards.
    The rules are min, product, last, mean, the votes weighted by them, and vote.
    """
    from ground.progress import Progress
    from pathfinder.baselines.named import open_named
    from pathfinder.policy.rerank import drawn, read_candidates, reranked
    from pathfinder.prm.results import warning
    from pathfinder.tree.passes import Mode

    if pretty and as_json:
        raise UsageError("give one of --json and --pretty")
    given = read_candidates(given_in(file, split, columns, problems, has_candidates=True))
    with (
        open_named(model, revision, dtype, url, system, Mode(mode), preset) as prm,
        Progress("rerank", len(given), "problems") as progress,
    ):
        for one, row in zip(given, reranked(prm, given), strict=True):
            if pretty:
                told = [warning(row["unlike"]), ""] if row["unlike"] else []
                show(row, as_json=False, lines=[f"{one.id}:", *drawn(one, row), "", *told])
            else:
                show_row(row)
            progress.advance(1)


@app.command(rich_help_panel=BENCHMARKS, **example("pathfinder/demo_model --port 8000"))
def serve(
    model: Annotated[str, typer.Argument(help="Folder of the PRM, or a repository of the Hub.")] = "models/full",
    revision: options.Revision = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 opens the server to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Also answer under this host name, for example a local proxy's; repeat it for several."),
    ] = None,
    dtype: options.Precision = "auto",
    request_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of one request, estimated as a third of its bytes; above it: 413 or 422.")
    ] = 1 << 16,
    queue_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of all requests that wait or are scored; above it: 429.")
    ] = 1 << 18,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds for one request; 503 after that.")] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Serve step scores over HTTP, with a page to try solutions on.

    PATHFINDER_SERVE_TOKEN in the environment is a token that clients must send: `Authorization: Bearer TOKEN`.
    """
    from pathfinder.baselines.named import open_named
    from pathfinder.prm.batching import Batcher, parts_of, threads_for
    from pathfinder.prm.gate import is_own
    from pathfinder.prm.serving import http_server, listening, make_app

    token = os.environ.get("PATHFINDER_SERVE_TOKEN", "")
    if token and not token.strip():
        raise DataError("PATHFINDER_SERVE_TOKEN is blank; give a token, or unset it to serve without one")
    with (
        listening(host, port) as (socket, address),
        open_named(model, revision, dtype) as prm,
        Batcher(prm.score, parts_of(prm), queue_tokens, threads_for(prm)) as batcher,
    ):
        if as_json:
            show_row({"model": model, "url": address})
        else:
            typer.echo(f"{model} at {address} (try it there; routes: {address}docs). Ctrl-C ends the server.")
        most = min(request_tokens, queue_tokens)
        served = make_app(batcher, model, is_own(host), allow_host or (), most, deadline, token, prm.known)
        http_server(served, batcher).run(sockets=[socket])


@app.command(rich_help_panel=BENCHMARKS, **example("prmbench artifacts/predictions/prmbench/full.jsonl", in_clone=True))
def grade(
    benchmark: Annotated[
        Literal["processbench", "prmbench", "search"],
        typer.Argument(help="processbench, prmbench or search.", show_choices=False),
    ],
    file: Annotated[
        Path, typer.Argument(help="The prediction file, or a published runner's output folder; - reads standard input.")
    ],
    data: options.Data = None,
    preset: Annotated[
        options.Rules, typer.Option(help="Decision rules: the published evaluator's or the repaired ones.")
    ] = "repaired",
    output: Annotated[
        Literal["table", "json", "latex", "markdown"],
        typer.Option("--format", help="Format of the result; json is the same as --json."),
    ] = "table",
    as_json: AsJson = False,
) -> None:
    """Grade a prediction file as the benchmark does."""
    from pathfinder.benchmarks.grade import grade, notes, render

    if as_json and output not in ("table", "json"):
        raise UsageError("give one of --json and --format")
    result = grade(benchmark, file, data or Path("artifacts/raw") / benchmark, preset)
    if as_json or output == "json":
        show(result, as_json=True)  # its details have the counts of the notes
    else:
        typer.echo(render(benchmark, result, output).rstrip("\n"))
        for note in notes(benchmark, result, preset):
            typer.echo(f"note: {note}", err=True)


@app.command(
    rich_help_panel=BENCHMARKS, **example("data/search/math.jsonl --policy data/models/base --out rows", in_clone=True)
)
def label(
    file: Annotated[
        str, typer.Argument(help="Solutions in any layout of `score`, each with the right `answer` (docs/data.md).")
    ],
    out: Annotated[Path, typer.Option(help="The new file of JSON lines.")],
    policy: Annotated[
        str | None,
        typer.Option(help="The model that completes: a folder, or a repository of the Hub (default: as in `bench`)."),
    ] = None,
    url: options.PolicyServer = None,
    completions: Annotated[int, typer.Option(min=1, help="Completions after each step.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens per completion.")] = 1024,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help="Temperature; top-p is 0.95.")] = 0.7,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the completions.")] = 42,
    split: options.Split = "auto",
    columns: options.Columns = "",
    problems: options.Problems = "",
    as_json: AsJson = False,
) -> None:
    """Label the steps of solutions by the share of completions after them that reach the right answer.

    The rows are TRL's stepwise supervision, which `pathfinder train` reads.
    A step is true if any completion is right; mc_value has the shares.
    The same command resumes after an interruption.
    """
    from pathfinder.label import labelled, told

    solutions = list(given_in(file, split, columns, problems).each())
    settings = {"n": completions, "solution_tokens": max_tokens, "temperature": temperature, "seed": seed}
    result = labelled(solutions, out, policy, url, settings)
    show(result, as_json, told(result))


def large_verbs() -> typer.Typer:
    """The verbs that have separate modules."""
    from pathfinder.compare import bench, leaderboard
    from pathfinder.train import train

    verbs = typer.Typer()
    for verb, words, in_clone in (
        (bench, "pathfinder/demo_model --data data --limit 5", True),
        (leaderboard, "one/ another/ --page board.html", False),
        (train, "examples/steps.jsonl --out my", True),
    ):
        verbs.command(rich_help_panel=BENCHMARKS, **example(words, in_clone))(verb)
    return verbs


def other_wings() -> Iterator[typer.Typer]:
    """The verbs that installed packages add by an entry point of the group ``pathfinder.commands``, this one's first.

    Finding the others means looking at every installed package.
    """
    seen = set[str]()
    for name in ("pathfinder-prm", None):
        for point in (point for package in distributions(name=name) for point in package.entry_points):
            if point.group == "pathfinder.commands" and point.value not in seen:
                seen.add(point.value)
                yield point.load()


def pipeline_verbs(root: Path) -> typer.Typer:
    """The verbs of ``flows/cli.py`` below ``root`` or, outside a clone, substitutes that report an error."""
    if (root / "dvc.yaml").is_file() and (root / "flows/cli.py").is_file():
        sys.path.insert(0, str(root))
        verbs: typer.Typer = importlib.import_module("flows.cli").app
        return verbs
    absent = typer.Typer()
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    for verb, text in PIPELINE_VERBS.items():
        absent.command(verb, help=text, rich_help_panel=PIPELINE, context_settings=anything)(_needs_clone)
    return absent


def _needs_clone(context: typer.Context) -> None:
    raise DataError(
        f"{Path.cwd()} is not a clone of the project (no dvc.yaml and flows/); clone the repository and run "
        f"`pathfinder {context.info_name}` in its root folder"
    )


def main() -> None:
    """Run a verb. A character that standard output cannot encode is shown as an escape."""
    if sys.stdout is None:
        raise SystemExit("error: standard output is closed; direct it to a file or to /dev/null")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    with errors_without_traceback(), flushed():  # for --help and --version, which are printed before a verb begins
        app()


if __name__ == "__main__":
    main()
