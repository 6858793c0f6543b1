"""The words and numbers that a small model learnt from, so that it can say when a solution is unlike them.

A model of a few million weights has seen some hundred words and judges others at random. Large models learn from texts
with so many words that a list of them would say nothing, and have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ground.io import DataError

_TOKEN = re.compile(r"\d+\.\d+|\d+|[^\W\d_]+|[^\w\s]|_")
_DECIMAL = "decimal number"
_MOST_WORDS = 3_000
"""More different words are those of a language, not of a small world."""
_NAMED = 5
"""Words that a message names."""


@dataclass(frozen=True, slots=True)
class Known:
    """The words (in lower case) and signs of the texts that a model learnt from, and their largest whole number."""

    words: frozenset[str]
    largest: int

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self | None:
        """What the texts contain; None if they contain more than ``_MOST_WORDS`` different words."""
        words: set[str] = set()
        largest = 0
        for text in texts:
            found, number = _read(text)
            words |= found
            largest = max(largest, number)
            if len(words) > _MOST_WORDS:
                return None
        return cls(frozenset(words), largest)

    @classmethod
    def of_json(cls, value: Any, name: str) -> Self | None:
        """Reverse of ``as_json``; None for None. Raises ``DataError`` with the name of the file."""
        if value is None:
            return None
        words, largest = (value.get(key) if isinstance(value, dict) else None for key in ("words", "largest_number"))
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or type(largest) is not int:
            raise DataError(f"{name}: known needs words (texts) and largest_number (integer); train the model again")
        return cls(frozenset(words), largest)

    def as_json(self) -> Mapping[str, Any]:
        """The value of ``known`` in ``pathfinder.json``."""
        return {"words": sorted(self.words), "largest_number": self.largest}

    def unlike(self, problem: str, steps: Sequence[str]) -> tuple[str, ...]:
        """How a solution differs from everything that the model learnt from, in words; empty if nothing was found."""
        found, number = _read("\n".join([problem, *steps]))
        unknown = sorted(found - self.words)
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        named = ", ".join(word[:20] for word in unknown[:_NAMED])
        said = [f"unknown words or signs: {named}{more}"] if unknown else []
        return tuple(said + [f"a number above {self.largest}"] * (number > self.largest))


def _read(text: str) -> tuple[set[str], int]:
    """The words of a text, and its largest whole number. A number of more than 18 digits counts as 10 ** 18."""
    words, largest = set(), 0
    for token in _TOKEN.findall(text):
        if not token[0].isdigit():
            words.add(token.casefold())
        elif "." in token:
            words.add(_DECIMAL)
        else:
            largest = max(largest, int(token) if len(token) <= 18 else 10**18)
    return words, largest
