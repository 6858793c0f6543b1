"""The verbs ``bench`` and ``leaderboard`` of the command ``pathfinder``."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ground.io import make_folder, write_json, write_text
from ground.show import AsJson, show, table
from ground.text import UsageError
from pathfinder.options import Precision, Revision, Rules, System, addresses

_CRITIC = "critic:"
_GUIDED, _JUDGE = "Search (--on search)", "A chat model as judge (MODEL critic:NAME)"


def bench(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="Folder of a PRM, a repository of the Hub, or the name of a published PRM such as qwen-prm "
            "(docs/benchmarks.md). critic:NAME is a chat model that judges whole solutions, such as critic:GPT-4o "
            "(docs/judge.md)."
        ),
    ] = "models/full",
    on: Annotated[
        str, typer.Option(help="Benchmarks, separated by commas: processbench, prmbench, search.")
    ] = "processbench,prmbench",
    revision: Revision = None,
    dtype: Precision = "auto",
    system: System = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            help="An OpenAI-compatible server (…/v1) with MODEL; repeat it for equal servers of a judge.",
            callback=addresses,
        ),
    ] = None,
    data: Annotated[Path, typer.Option(help="The folder of the benchmarks' folders.")] = Path("artifacts/raw"),
    limit: Annotated[int, typer.Option(min=0, help="Items per file; 0: all.")] = 0,
    subsets: Annotated[bool, typer.Option("--subsets", help="Also a row per subset, class or set.")] = False,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Write rows and predictions there, for `pathfinder leaderboard` and `pathfinder grade`."),
    ] = None,
    as_json: AsJson = False,
    policy: Annotated[
        str | None,
        typer.Option(
            help="The model that solves the problems: a folder, or a repository of the Hub (default: "
            "artifacts/raw/models/policy). The paper's is Qwen/Qwen2.5-7B-Instruct.",
            rich_help_panel=_GUIDED,
        ),
    ] = None,
    policy_url: Annotated[
        str | None,
        typer.Option(
            help="A server (…/v1) that offers the policy, and no other model.",
            rich_help_panel=_GUIDED,
            callback=addresses,
        ),
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option(
            help='JSON lines of {"problem", "answer"}, or a folder of the six sets (default: DATA/search).',
            rich_help_panel=_GUIDED,
        ),
    ] = None,
    candidates: Annotated[
        int, typer.Option(min=1, help="Candidates per step, and solutions per problem.", rich_help_panel=_GUIDED)
    ] = 8,
    rules: Annotated[
        Rules, typer.Option(help="Rules of the search; the paper's are official.", rich_help_panel=_GUIDED)
    ] = "repaired",
    served: Annotated[
        str, typer.Option(help="The model's name on the server (default: its own name).", rich_help_panel=_JUDGE)
    ] = "",
    votes: Annotated[
        int, typer.Option(min=0, help="Answers per solution; 0: as published.", rich_help_panel=_JUDGE)
    ] = 0,
    answer_tokens: Annotated[
        int, typer.Option(min=0, help="Most tokens per answer; 0: as published.", rich_help_panel=_JUDGE)
    ] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Concurrent calls per server.", rich_help_panel=_JUDGE)] = 32,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds per call.", rich_help_panel=_JUDGE)] = 1800.0,
    retries: Annotated[int, typer.Option(min=0, help="Retries per call.", rich_help_panel=_JUDGE)] = 6,
    max_calls: Annotated[
        int, typer.Option(min=0, help="Budget of calls over all runs; 0: no limit.", rich_help_panel=_JUDGE)
    ] = 0,
    max_tokens: Annotated[
        int, typer.Option(min=0, help="Budget of tokens over all runs; 0: no limit.", rich_help_panel=_JUDGE)
    ] = 0,
    max_hours: Annotated[
        float, typer.Option(min=0.0, help="Budget of hours for this run; 0: no limit.", rich_help_panel=_JUDGE)
    ] = 0.0,
    price: Annotated[
        float,
        typer.Option(min=0.0, help="Price per million tokens, for the cost estimate.", rich_help_panel=_JUDGE),
    ] = 0.0,
) -> None:
    """Evaluate a PRM, or a chat model as judge, on the benchmarks: a row per decision rule, in percent.

    A row has the 95 % interval and the paper's figure, or why there is none.
    The same command resumes after an interruption.
    The key of a server is read from OPENAI_API_KEY.
    """
    from pathfinder.bench import evaluate
    from pathfinder.bench.board import kept_results
    from pathfinder.bench.rows import RESULT, eval_results, printed
    from pathfinder.bench.search import SearchOptions

    start = time.monotonic()
    names, selection = evaluate.parse_benchmarks(on), evaluate.Selection(data, limit, subsets, predictions)
    if "search" not in names:
        _refuse(ctx, _GUIDED, "only for --on search")
    if not model.startswith(_CRITIC):
        _refuse(ctx, _JUDGE, "only for a chat model, critic:NAME")
    if predictions is not None:
        make_folder(predictions)  # an evaluation may take hours, and it ends with writing there
    identity: dict[str, Any] = {}
    if model.startswith(_CRITIC):
        from pathfinder.core.params import CriticSettings
        from pathfinder.judge.critics import critic_named

        _refuse_options_of_a_prm(revision, system, dtype)
        settings = CriticSettings(
            base_urls=_servers(model, url),
            votes=votes,
            preset="repaired",
            concurrency=concurrency,
            timeout_s=timeout,
            retries=retries,
            max_calls=max_calls,
            max_tokens_total=max_tokens,
            max_hours=max_hours,
            price_per_million_tokens=price,
        )
        critic = critic_named(model.removeprefix(_CRITIC), answer_tokens)
        kept, seconds = kept_results(predictions, model, identity, names)
        rows = evaluate.bench_critic(critic, names, selection, settings, served)
    else:
        from pathfinder.baselines.named import named

        server = _only(url)
        search = SearchOptions(policy, policy_url, problems, candidates, rules)
        tasks = evaluate.read_tasks(names, selection, search)  # before the files of a model are fetched
        found = named(model, revision, dtype, system)
        identity = evaluate.identity_of(found)
        kept, seconds = kept_results(predictions, model, identity, names)
        found.warn()
        rows = evaluate.bench_prm(found, identity, tasks, selection, server)
    made = [asdict(row) for row in rows]
    if predictions is not None:
        seconds += time.monotonic() - start
        held = [*map(asdict, kept), *made]
        result = {"model": model, "identity": identity, "seconds": seconds, "rows": held}
        write_json(predictions / RESULT, result)
        for file, content in eval_results(rows).items():
            write_text(predictions / ".eval_results" / file, content)
    show(made, as_json, printed(rows))


def leaderboard(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `bench MODEL --predictions FOLDER` wrote.")],
    data: Annotated[Path, typer.Option(help="The folder of the benchmarks' folders.")] = Path("artifacts/raw"),
    page: Annotated[Path | None, typer.Option(help="Also write the table as an HTML page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rank the results of several systems, and the paper's for as many items, with paired differences."""
    from pathfinder.bench.board import ALONE, as_html, cells, differences, ranked, read_results

    results = read_results(folders)
    rows, told = ranked(results), list(differences(results, data))
    noted = [*told, ALONE] if len(told) > 1 else told
    if page is not None:
        write_text(page, as_html(rows, noted))
    show({"rows": rows, "differences": told}, as_json, [*table(list(map(cells, rows))), *noted])


def _refuse(ctx: typer.Context, panel: str, why: str) -> None:
    """Raise ``UsageError`` if an option of this panel of the help is given."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name or "")
        if getattr(param, "rich_help_panel", None) == panel and source and source.name == "COMMANDLINE":
            raise UsageError(f"{param.opts[0]}: {why}; leave it out")


def _refuse_options_of_a_prm(revision: str | None, system: str | None, dtype: str) -> None:
    if revision or system or dtype != "auto":
        raise UsageError("--revision, --system, --dtype: only for a PRM; leave them out")


def _servers(model: str, urls: list[str] | None) -> list[str]:
    if not urls:
        raise UsageError(f"{model}: name the server of the model, as in --url http://localhost:8000/v1")
    return urls


def _only(urls: list[str] | None) -> str | None:
    if len(urls or ()) > 1:
        raise UsageError("--url: a PRM is scored behind one server; name one")
    return urls[0] if urls else None
