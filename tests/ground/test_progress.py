"""Progress in a log: lines with rate and time left, and silence for short work."""

from __future__ import annotations

import pytest

from ground.progress import Progress, duration


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that tests move."""
    now = [0.0]
    monkeypatch.setattr("ground.progress.time.monotonic", lambda: now[0])
    return now


def test_short_work_prints_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("work", 3) as bar:
        for _ in range(3):
            clock[0] += 0.5
            bar.advance()
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_every_ten_seconds_and_a_last_one(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("work", 30, "rows") as bar:
        for _ in range(30):
            clock[0] += 1.0
            bar.advance(note="fine")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "work: 10/30 rows (33 %), 1.0/s, 20 s left; fine"
    assert lines[-1] == "work: 30/30 rows (100 %), 1.0/s, 0 s left; fine"
    assert len(lines) == 3, "the last line is not repeated"


def test_resumed_items_do_not_count_towards_the_rate(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("work", 100, "rows") as bar:
        bar.resume(80)
        clock[0] += 10.0
        bar.advance(10)
    assert "90/100 rows (90 %), 1.0/s, 10 s left" in capsys.readouterr().err


def test_preparation_does_not_count_towards_the_rate(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("work", 20, "calls") as bar:
        clock[0] += 100.0
        bar.begin()
        clock[0] += 10.0
        bar.advance(10)
    assert "10/20 calls (50 %), 1.0/s, 10 s left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (5400, "90 min"), (59_400, "16.5 h")]
)
def test_long_times_are_in_minutes_and_hours(seconds: float, text: str) -> None:
    assert duration(seconds) == text
