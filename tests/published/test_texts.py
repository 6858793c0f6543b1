from __future__ import annotations

from pathfinder.core.prompts import unnumbered, without_captions
from tests.published.kept import cases, differences


def test_step_numbers_are_removed_as_the_prmbench_kit_does() -> None:
    assert not differences(cases("texts", "remove_step_prefix"), unnumbered)


def test_captions_of_a_step_are_removed_as_published() -> None:
    assert not differences(cases("texts", "clean_prev_and_curr_steps"), without_captions)
