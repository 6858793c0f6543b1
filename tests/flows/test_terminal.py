"""The output of a run: prefixes without markup, the summary, stage logs, and metrics as Markdown."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
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
        "| by.list | \\[1, 2\\] |",
    ]
    path.write_text("not JSON")
    assert metrics_table(path).splitlines()[-1] == "| --- | --- |"


def test_no_metric_becomes_markup(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"<img src=x>": "[a](javascript:b)", "`a`|b": "\n# c\x1b[2J"}))
    assert metrics_table(path).splitlines()[4:] == [
        r"| \<img src=x\> | \[a\](javascript:b) |",
        r"| \`a\`\|b | \# c\ufffd\[2J |".replace(r"\ufffd", "\ufffd"),
    ]


def on_terminal() -> tuple[io.StringIO, Terminal]:
    buffer = io.StringIO()
    return buffer, Terminal(Console(file=buffer, force_terminal=True, width=60, soft_wrap=True, highlight=False))


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text)


def test_a_running_stage_has_one_live_line_and_only_bad_lines_stay() -> None:
    buffer, terminal = on_terminal()
    terminal.expect(["prepare", "train@full", "report"])
    with terminal.running("train@full"):
        terminal.print("train@full", "step 1\x1b[2J")
        terminal.print("train@full", "step 2")
        terminal.print("storage", "one line")
        grid = Console(width=60, file=io.StringIO(), record=True)
        grid.print(terminal._lines())
        assert [line.split() for line in grid.export_text().splitlines()] == [
            ["train@full", "0:00", "step", "2"],
            ["total", "0:00", "0", "of", "3", "stages"],
        ]
        terminal.print("train@full", "broken", bad=True)
    terminal.print("train@full", "afterwards")
    kept = plain(buffer.getvalue())
    assert "\x1b[2J" not in buffer.getvalue(), "no text may control the terminal"
    assert kept.count("[storage] one line") == kept.count("[train@full] broken") == kept.count("afterwards") == 1
    assert "step 1" not in kept
    assert re.search(r"\[train@full\] \d\.\d s: step 2", kept), "often a figure"
    assert buffer.getvalue().rstrip().endswith("afterwards")


def test_the_time_left_follows_from_earlier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("flows.terminal.time.monotonic", lambda: clock[0])
    _, terminal = on_terminal()

    def total() -> str:
        grid = Console(width=80, file=io.StringIO(), record=True)
        grid.print(terminal._lines())
        return grid.export_text().splitlines()[-1].split(maxsplit=2)[-1].strip()

    seconds = {"a": 10.0, "b": 20.0, "c": 70.0}
    terminal.expect(["a", "b", "c"], seconds)
    assert total() == "0 of 3 stages"
    with terminal.running("a"):
        clock[0] = 20.0  # twice as long as before
    with terminal.running("b"):
        assert total() == "1 of 3 stages, about 3:00 left"
        clock[0] = 40.0
        assert total() == "1 of 3 stages, about 1:33 left"
        clock[0] = 90.0
        assert total() == "1 of 3 stages, about 3:30 left"
    with terminal.running("c"):
        clock[0] = 300.0  # longer than before: nobody knows
        assert total() == "2 of 3 stages"
    terminal.expect(["a", "d"], seconds)
    with terminal.running("a"):
        clock[0] += 9.0
        assert total() == "0 of 2 stages", "d never ran"


def test_a_stage_that_fails_leaves_no_live_line_behind() -> None:
    buffer, terminal = on_terminal()
    with pytest.raises(KeyboardInterrupt), terminal.running("a"):
        raise KeyboardInterrupt
    assert "[a]" not in plain(buffer.getvalue())
    assert buffer.getvalue().rpartition("\x1b[?25")[2].startswith("h"), "the cursor is shown again"


def test_a_terminal_has_the_table_only_for_failures_or_if_verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "closing", [])
    outcomes = [
        Outcome("a", "ran", 1.26, ("out/a",)),
        Outcome("b", "ran", 61.0, ()),
        Outcome("c", "up to date", 0.0, ()),
    ]
    buffer, terminal = on_terminal()
    terminal.summary(outcomes)
    assert buffer.getvalue() == ""
    assert Terminal.closing == ["slowest stages: b 61 s, a 1 s"]
    terminal.summary([*outcomes, Outcome("d", "failed", 0.0, (), "broken")])
    assert "broken" in buffer.getvalue()
    assert "out/a" not in buffer.getvalue()
    monkeypatch.setattr(Terminal, "is_verbose", True)
    terminal.summary(outcomes)
    assert "out/a" in buffer.getvalue()
    with terminal.running("a"):
        terminal.print("a", "a line")
    assert "[a] a line" in plain(buffer.getvalue())
