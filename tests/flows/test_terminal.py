"""The output of a run: prefixes without markup, the summary, stage logs, and metrics as Markdown."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from flows.terminal import Outcome, Terminal, log_path, metrics_table, stage_log


def test_lines_have_their_source_and_are_never_markup() -> None:
    buffer = io.StringIO()
    terminal = Terminal(Console(file=buffer, soft_wrap=True))
    terminal.print("train@full", "[bold]loss[/bold] 0.5")
    terminal.print("train@full", "x" * 300, bad=True)
    assert buffer.getvalue().splitlines() == ["[train@full] [bold]loss[/bold] 0.5", f"[train@full] {'x' * 300}"]


def test_the_summary_has_outputs_or_the_reason() -> None:
    buffer = io.StringIO()
    outcomes = [
        Outcome("a", "ran", 1.26, ("out/a",)),
        Outcome("b", "failed", 0.0, (), "[red]broken"),
        Outcome("c", "up to date", 0.0, ("out/c", "out/d")),
    ]
    Terminal(Console(file=buffer, width=100)).summary(outcomes)
    lines = [line for line in buffer.getvalue().splitlines() if line.startswith("│")]
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert rows == [
        ["a", "ran", "1.3", "out/a"],
        ["b", "failed", "", "[red]broken"],
        ["c", "up to date", "", "out/c, out/d"],
    ]
    assert [outcome.succeeded for outcome in outcomes] == [True, False, True]
    assert outcomes[2].as_row()["outs"] == "out/c, out/d"


def test_results_are_listed_if_they_exist(tmp_path: Path) -> None:
    buffer = io.StringIO()
    terminal = Terminal(Console(file=buffer, soft_wrap=True))
    terminal.where(tmp_path)
    assert buffer.getvalue() == ""
    (tmp_path / "metrics").mkdir()
    terminal.where(tmp_path)
    assert buffer.getvalue() == "[pathfinder] results: metrics\n"


def test_a_log_is_written_line_by_line_and_replaced_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / log_path("train@full")
    for run in ("first", "second"):
        with stage_log(tmp_path, "train@full") as log:
            log(f"{run} \ud800")
            assert path.read_text() == f"{run} \\ud800\n"


def test_metrics_are_a_markdown_table_with_dotted_names(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"loss": 0.123456789, "by": {"a|b": "x\ny", "list": [1, 2]}}))
    assert metrics_table(path).splitlines()[2:] == [
        "| metric | value |",
        "| --- | --- |",
        "| loss | 0.123457 |",
        "| by.a\\|b | x y |",
        "| by.list | [1, 2] |",
    ]
    path.write_text("not JSON")
    assert metrics_table(path).splitlines()[-1] == "| --- | --- |"
