"""The command that runs every part of the campaign: lanes, the table, the status, the end by a signal, and the page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ground.io import DataError
from tests.campaigns.faults import results
from tests.campaigns.faults.all import PARTS, ROOT, Part, campaign
from tests.campaigns.faults.catalogue import GROUPS
from tests.flows.watch import gone, wait_for

_WORKS = """
import json, sys
print("[1/2] half")
result = {"part": "calls", "faults": 1234, "wrong": 0, "text": "it works"}
open(sys.argv[sys.argv.index("--result") + 1], "w").write(json.dumps(result))
"""
_ENDLESS = """
import sys
from pathlib import Path
from tests.campaigns.faults.all import Part, campaign

campaign([Part("endless", ("-c", sys.argv[2]), 60.0)], Path(sys.argv[1]), 1)
"""
_SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_a_failing_part_stops_no_other_and_its_last_lines_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = (
        Part("broken", ("-c", "raise SystemExit('nothing to see')"), 9.0, is_seeded=False),
        Part("calls", ("-c", _WORKS), 1.0),
        Part("tests", ("-c", "pass"), 1.0, is_seeded=False, has_result=False),
    )
    assert campaign(parts, tmp_path / "out", seed=7, lanes=1) == 1
    printed = capsys.readouterr().out
    assert "broken ended with status 1" in printed
    assert "nothing to see" in printed
    without_seconds = [line.rpartition(" | ")[0] for line in printed.splitlines()[-7:-2]]
    assert without_seconds == [
        "| part | faults | wrong",
        "| --- | --- | ---",
        "| broken | – | unknown",
        "| calls | 1,234 | 0",
        "| tests | – | 0",
    ]
    assert "--seed 7" in printed
    assert campaign(parts[1:], tmp_path / "out", seed=7) == 0
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- calls -->\nold\n<!-- /calls -->\nafter\n")
    results.write_page([results.read(tmp_path / "out/calls.json")], page)
    assert page.read_text() == "before\n<!-- calls -->\nit works\n<!-- /calls -->\nafter\n"


@pytest.mark.campaign
def test_a_signal_ends_the_parts(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _ENDLESS, str(tmp_path), _SLEEPS]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        part = int(wait_for(tmp_path / "endless.txt"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
        assert gone(part)
    finally:
        process.kill()
        process.wait()


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "calls.json").write_text(json.dumps({"part": "calls"}))
    with pytest.raises(DataError, match=r"calls\.json: no result of a part .*tests\.campaigns\.faults\.all"):
        results.read(tmp_path / "calls.json")


def test_every_test_with_the_marker_is_in_a_part() -> None:
    of_parts = {argument for part in PARTS for argument in part.arguments}
    rows = (fault for faults in GROUPS.values() for fault in faults)
    of_rows = {fault.test.partition("[")[0] for fault in rows}  # the part `planted` runs them
    left_out = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        if re.search(r"mark\.faults\b", text) and name not in of_parts:
            tests = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
            left_out += [test for test in (f"{name}::{test}" for test in tests) if test not in of_rows]
    assert left_out == []


def test_the_page_has_a_place_for_each_part(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(results.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    made = [results.Result(part.name, 1, 0, f"result of {part.name}") for part in PARTS if part.has_result]
    results.write_page(made, page)
    assert [one.part for one in made if one.text not in page.read_text(encoding="utf-8")] == []
