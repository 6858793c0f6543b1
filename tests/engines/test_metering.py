from __future__ import annotations

from typing import Any

import pytest

from ground.progress import Progress
from pathfinder.core.params import CriticSettings
from pathfinder.engines.metering import BudgetSpentError, Meter

ENTRY = {"text": "x", "tokens": 30, "prompt_tokens": 70}


def limits_of(**limits: Any) -> CriticSettings:
    unlimited = {"max_calls": 0, "max_tokens_total": 0, "max_hours": 0.0, "price_per_million_tokens": 0.0}
    return CriticSettings.model_construct(**unlimited | limits)


def meter_of(**limits: Any) -> Meter:
    """A meter inside a wave."""
    meter = Meter(limits_of(**limits))
    meter._progress = Progress("test", 1)
    return meter


def test_calls_in_flight_count_against_the_budget() -> None:
    meter = meter_of(max_calls=3)
    meter.resumed("a", ENTRY)
    assert meter.take()
    assert meter.take()
    meter.failed()
    assert meter.take()
    assert not meter.take()
    assert meter.stopped == "max_calls 3"
    meter.answered("b", ENTRY)
    assert not meter.take(), "a stopped run stays stopped"


def test_a_batch_that_does_not_fit_is_not_started() -> None:
    meter = meter_of(max_calls=10)
    assert meter.take(8)
    assert not meter.take(8)


def test_prompts_and_answers_cost_tokens_and_refusals_are_calls_without_tokens() -> None:
    meter = meter_of(max_tokens_total=150)
    for _ in range(2):
        assert meter.take()
    meter.answered("a", {"outcome": "refused", "message": "no"})
    assert meter.take()
    meter.resumed("old", {"text": "x", "tokens": None, "prompt_tokens": None})
    meter.answered("b", ENTRY)
    assert meter.take()
    meter.answered("c", ENTRY)
    assert not meter.take()
    assert (meter.calls, meter.tokens, meter.stopped) == (4, 200, "max_tokens_total 150")


def test_hours_are_per_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("pathfinder.engines.metering.time.monotonic", lambda: now)
    meter = meter_of(max_hours=2.0)
    assert meter.take()
    now += 7200
    assert not meter.take()
    assert meter.stopped == "max_hours 2"


def test_the_progress_line_shows_rates_shares_and_cost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def shares(key: str, _: Any) -> dict[str, bool]:
        return {"parsed": key != "b"} | ({"agrees": True} if key == "a" else {})

    meter = Meter(limits_of(max_calls=3, price_per_million_tokens=1e4), shares)
    with pytest.raises(BudgetSpentError, match=r"wave 1: stopped by max_calls 3\.") as caught, meter.wave("wave 1", 8):
        meter.resumed("a", ENTRY)
        for key in "bc":
            assert meter.take()
            now += 10.0
            meter.answered(key, ENTRY)
        assert not meter.take()
    assert caught.value.exit_status == 69
    shown = capsys.readouterr().err
    assert "wave 1: 3/8 call (38 %), 0.1/s, 50 s left; 10 tokens/s, parsed 66.7 %, agrees 100.0 %" in shown
    assert "cost 3.00 of about 8.00" in shown
    assert "Paid so far: 3 calls, 300 tokens, cost 3.00. Left: 5 of the 8 calls of this wave" in str(caught.value)


def test_without_a_price_no_cost_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter = Meter(limits_of())
    with meter.wave("w", 1):
        meter.take()
        now += 20.0
        meter.answered("a", ENTRY)
    assert "5 tokens/s" in (shown := capsys.readouterr().err)
    assert "cost" not in shown
