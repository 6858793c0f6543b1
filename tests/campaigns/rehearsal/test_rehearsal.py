"""The rehearsal as a test: what `make rehearse` does, for every GPU profile. ``make test`` leaves it out."""

from __future__ import annotations

import pytest

from tests.campaigns.rehearsal.__main__ import rehearse


@pytest.mark.rehearsal
def test_every_gpu_profile_runs_to_its_end_on_a_cpu() -> None:
    assert rehearse()
