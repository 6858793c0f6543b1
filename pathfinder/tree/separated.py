"""The prompt of a PRM that classifies tokens: the problem and the steps, with a separator after every step.

It is the prompt of TRL's PRMTrainer (``baselines.trl`` names the source). Each text is tokenised separately, and the
label of a step is read at the last token of the separator after it. So no text can add, hide or move a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ground.io import DataError
from pathfinder.core.prompts import VARIANTS
from pathfinder.models.tokens import LabelIds, neutralise, special_strings
from pathfinder.tree.passes import Encoded, Prompts, Query

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SEPARATOR = "\n"
"""TRL's default; its checkpoints do not record it."""
WRONG, CORRECT = 0, 1
"""The classes, as TRL numbers them."""
CLASSES = {WRONG: "wrong", CORRECT: "correct"}
_KEPT = 100_000
"""The number of texts whose tokens are kept, because problems and steps are parts of many prompts."""
SETTING = "step_separator"
"""The name of the separator in config.json."""


def separator_of(config: Any, name: str) -> str:
    """The separator that a config.json names (``SETTING``); TRL's default if it names none.

    ``config`` is the JSON object, ``name`` the model for messages. Raises ``DataError`` if the value is not a text.
    """
    found = config.get(SETTING, SEPARATOR)
    if not isinstance(found, str) or not found:
        raise DataError(f"{name}: config.json has {SETTING} {found!r:.40}; expected a text, the one of its training")
    return found


class Separated(Prompts):
    """The prompts of steps with ``separator`` after each, whose only label is Correctness."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, separator: str = SEPARATOR) -> None:
        """Raises ``DataError`` if the tokenizer has no token for the separator."""
        super().__init__(VARIANTS["no_subtasks"], LabelIds(CORRECT, WRONG, -1))
        self.separator = separator
        encode, specials = tokenizer.backend_tokenizer.encode, special_strings(tokenizer)
        self._start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        self._end = encode(separator, add_special_tokens=False).ids
        self._ids = lru_cache(_KEPT)(lambda text: encode(neutralise(text, specials), add_special_tokens=False).ids)
        if not self._end:
            raise DataError(f"the tokenizer has no token for the separator {separator!r}; name another one")

    def solution(self, problem: str, steps: Sequence[str]) -> Encoded:
        """A whole solution: its ids, int32 (tokens,), and the position of each step's label."""
        ids, reads = [*self._start, *self._ids(problem)], []
        for step in steps:
            ids += [*self._ids(step), *self._end]
            reads.append(len(ids) - 1)
        return np.asarray(ids, dtype=np.int32), tuple(reads)

    def encode(self, queries: Sequence[Query]) -> list[Encoded]:
        """Each query's prompt, up to the separator after its step, and the position after it.

        A label is read one token before its position, as a label token is.
        """
        found = [self.solution(query.problem, (*query.prefix, query.step))[0] for query in queries]
        return [(ids, (len(ids),)) for ids in found]
