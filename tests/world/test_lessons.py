"""Lessons: their tokens are the tokens of their text."""

from __future__ import annotations

import random

from transformers import PreTrainedTokenizerFast

from world.judge_lessons import judge_lesson
from world.lessons import Encoder, base_lesson
from world.story import LEVELS


def test_lessons_are_what_the_tokenizer_makes_of_their_text(tokenizer: PreTrainedTokenizerFast) -> None:
    encoder, rng = Encoder(tokenizer), random.Random(5)
    branches = 0
    for _ in range(40):
        for lesson in (base_lesson(encoder, rng, LEVELS, 0.0, False), judge_lesson(encoder, rng, LEVELS)):
            for attached, piece in lesson.branches:
                ids = [*lesson.trunk.ids[:attached], *piece.ids]
                assert tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False) == ids
                branches += 1
    assert branches > 100
