"""The catalogue of faults: its rows fit the tree, one is put back in every test run, and all by ``make faults``."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError
from tests.campaigns.faults import ledger, results
from tests.campaigns.faults.__main__ import select
from tests.campaigns.faults.catalogue import GROUPS
from tests.campaigns.faults.ledger import table
from tests.campaigns.faults.planting import misfit, plant
from tests.campaigns.faults.trial import Trial, differing, expected, first_traceback, running
from tests.conftest import is_left_out

ROOT = Path(__file__).resolve().parents[3]
FAULTS = [fault for faults in GROUPS.values() for fault in faults]


@pytest.mark.parametrize("group", GROUPS)
def test_every_row_names_lines_and_a_test_that_exist(group: str) -> None:
    reasons = {fault.key: misfit(fault, ROOT) for fault in GROUPS[group]}
    assert {key: reason for key, reason in reasons.items() if reason} == {}


def test_a_row_that_does_not_fit_is_named_with_the_reason(tmp_path: Path) -> None:
    (fault,) = select(["separator"])
    wrong = {
        "there is no no_such.py": replace(fault, file="no_such.py"),
        f"{fault.file} has no 'no such line'": replace(fault, fixed="no such line"),
        "unmatched ')'": replace(fault, faulty=f"{fault.fixed} )("),
        "there is no test tests/no_such.py": replace(fault, test="tests/no_such.py"),
        f"there is no test {fault.test}_at_all": replace(fault, test=f"{fault.test}_at_all"),
        "the fault changes nothing": replace(fault, faulty=fault.fixed),
    }
    for reason, row in wrong.items():
        assert misfit(row, ROOT).startswith(reason)
    assert misfit(fault, ROOT) == ""


def test_every_test_of_the_page_exists() -> None:
    page = (ROOT / "tests/campaigns/reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py::\w+)`", page)
    assert len(named) > 20
    (fault,) = select(["separator"])
    assert [name for name in named if misfit(replace(fault, test=name), ROOT)] == []


def test_a_name_selects_a_row_a_pattern_or_a_group() -> None:
    assert [fault.key for fault in select(["D4-cause"])] == ["D4-cause"]
    assert {fault.key for fault in select(["json-*"])} == {"json-nested", "json-digits"}
    assert tuple(select(["small"])) == GROUPS["small"]
    assert list(select([])) == FAULTS


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the test of one row needs."""
    copy = tmp_path_factory.mktemp("copy") / "tree"
    for name in ("pathfinder/core", "tests/core", "tests/support"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "pathfinder/__init__.py", "tests/__init__.py", "tests/conftest.py"):
        shutil.copyfile(ROOT / name, copy / name)
    return copy


@pytest.mark.campaign
def test_a_fault_is_noticed_and_the_file_restored(copy: Path) -> None:
    (fault,) = select(["separator"])
    before = (copy / fault.file).read_bytes()
    assert plant(fault, copy).problem == ""
    harmless = replace(fault, faulty=fault.fixed + "  # still fixed")
    assert plant(harmless, copy).problem == f"{fault.test} passes"
    assert "out of date" in plant(replace(fault, fixed="no such line"), copy).problem
    assert plant(replace(fault, test="tests/core/no_such_test.py"), copy).problem.endswith("ends with status 4")
    assert (copy / fault.file).read_bytes() == before


def test_a_flow_run_that_another_trial_left_is_known_by_its_name(tmp_path: Path) -> None:
    assert running(tmp_path / "prefect.db") == set()
    with contextlib.closing(sqlite3.connect(tmp_path / "prefect.db")) as database, database:
        database.execute("create table flow_run (id text, state_type text)")
        database.executemany(
            "insert into flow_run values (?, ?)", [("a", "RUNNING"), ("b", "COMPLETED"), ("c", "PENDING")]
        )
    assert running(tmp_path / "prefect.db") == {"a", "c"}


def test_a_ledger_adds_up_pieces_and_counts_a_repeated_trial_once(tmp_path: Path) -> None:
    log, page = tmp_path / "logs/kills.jsonl", tmp_path / "page.md"
    times: dict[str, Any] = {"hit": True, "seconds": 1800.0, "date": "2026-11-22"}
    wrong = Trial(2, "disk full", 1.5, ended=None, problems=["stuck"], usual_s=31.2, **times)
    ledger.append(log, 7, wrong)
    ledger.append(log, 7, Trial(1, "flow", 1.0, ended=-9, resumes=1, usual_s=10.4, **times))
    first = "2 runs with seed 7 on 2026-11-22 took 1.0 hours. An undisturbed run took 10 to 31 s on the machine."
    assert first in ledger.summary(ledger.read(log)).splitlines()
    assert "Run 2 of seed 7 (disk full): stuck." in ledger.summary(ledger.read(log))
    ledger.append(log, 7, replace(wrong, ended=0, problems=[]))
    page.write_text("before\n<!-- kills -->\nold\n<!-- /kills -->\nafter\n")
    results.write_page([ledger.result(ledger.read(log))], page)
    text = page.read_text()
    assert [number for _, number in ledger.read(log)] == [1, 2]
    assert "| all | 2 | 2 | 1 | 1 | 0 | 0 |" in text
    assert text.startswith("before\n<!-- kills -->\n2 runs with seed 7")
    assert text.endswith("<!-- /kills -->\nafter\n")
    assert "stuck" not in text
    with log.open("a") as handle:
        handle.write("{\n")
    with pytest.raises(DataError, match=r"kills\.jsonl, line 4: no trial"):
        ledger.read(log)


def test_the_first_traceback_is_kept_with_its_surroundings() -> None:
    lines = ["one", "two", "[even] Traceback (most recent call last):", "  File", "ValueError: odd", "Traceback (most"]
    assert first_traceback(lines[:2]) == ""
    assert first_traceback(lines).splitlines() == lines


def test_the_table_counts_a_wrong_run_as_neither_right_nor_resumed() -> None:
    right, resumed = Trial(1, "flow", 0.0, hit=True, ended=0), Trial(2, "flow", 0.0, hit=True, ended=-9, resumes=1)
    wrong = Trial(3, "store killed", 0.0, hit=True, ended=1, resumes=3, traceback="Traceback", problems=["other bytes"])
    lines = table([right, resumed, wrong]).splitlines()
    assert lines[2:] == [
        "| flow | 2 | 2 | 1 | 1 | 0 | 0 |",
        "| store killed | 1 | 1 | 0 | 0 | 1 | 1 |",
        "| all | 3 | 3 | 1 | 1 | 1 | 1 |",
    ]


def test_an_output_that_differs_or_is_missing_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name, text in expected(10).items():
        (tmp_path / "out" / name).write_text(text)
    assert differing(tmp_path, 10) == []
    (tmp_path / "out/total.txt").write_text("286\n")
    (tmp_path / "out/odd.txt").unlink()
    assert sorted(differing(tmp_path, 10)) == ["odd.txt", "total.txt"]


def test_the_campaign_waits_until_it_is_asked_for() -> None:
    campaign = "test_writers_of_a_disturbed_store_lose_no_entry"
    assert is_left_out(campaign, {"faults"}, set())
    assert not is_left_out(campaign, {"faults"}, {campaign})
    assert not is_left_out("test_a_name", {"slow"}, set())


def test_tests_in_a_script_s_background_can_be_interrupted() -> None:
    """A script's ``&`` ignores SIGINT, and every process that a test starts would inherit that."""
    look = "import signal, tests.conftest; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run(["sh", "-c", 'trap "" INT; exec "$0" "$@"', sys.executable, "-c", look], cwd=ROOT, check=True)
