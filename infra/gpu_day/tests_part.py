"""The tests that need a card."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from infra.gpu_day.day import ROOT, Day, Report, environment

MARK = "pytest.mark.gpu"


def marked_files(root: Path = ROOT) -> list[str]:
    """The test files with a test that needs a card."""
    found = [path for path in (root / "tests").rglob("test_*.py") if MARK in path.read_text(encoding="utf-8")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def tests(day: Day) -> Report:
    """Run them; in a rehearsal they are only collected."""
    report = Report()
    only = ["--collect-only"] if day.rehearsal else []
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *only, *marked_files()]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, flush=True)
    last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "no output")
    report.add("pytest -m gpu", last.strip("= "))
    report.check(done.returncode == 0, f"pytest ended with status {done.returncode}")
    report.check(day.rehearsal or "skipped" not in last, "some tests were skipped although there is a card")
    return report
