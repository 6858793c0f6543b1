"""Grade final answers: mathematical equality by math-verify, in a worker process with a time limit.

math-verify's own time limits are signals. They do not work outside the main thread, and they do not stop a loop in C
code. Here, a worker process compares. It is killed and replaced when a comparison takes too long. A comparison that
fails is counted, never silently graded as incorrect.

Preset ``official`` grades as the published ``eval_results.py``: a key is ``str(value)``, so OlympiadBench's lists
are compared as ``"['2']"`` (a ceiling of 71 %). ``repaired`` reads lists, several answers, ``$…$``, float keys and ½.
"""

from __future__ import annotations

import logging
import math
import re
import resource
import sys
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any, Literal, Self, TypeVar

from pebble import ProcessExpired, ProcessPool

from ground.recording import report_as

GradingPreset = Literal["official", "repaired"]
Vote = TypeVar("Vote", int, str)
TIME_LIMIT_S = 10.0
_MEMORY_BYTES = 4 << 30
_DIGITS = r"(-?(?:0|[1-9]\d{0,17}))"
_INTEGER = re.compile(rf" *(?:{_DIGITS}(?:\.0)?|\$ *{_DIGITS} *\$|\['{_DIGITS}'\]) *")
"""An integer as the keys write it: ``27``, ``27.0``, ``$27$``, ``['27']``. The worker reads all of them as 27."""
_BOX = "\\boxed{"
_FRACTION = re.compile("[¼-¾⅐-⅞↉]")
"""A one-character fraction, which math-verify does not read."""


def boxes(text: str) -> list[str]:
    """The contents of every ``\\boxed{…}``; as published, unbalanced braces end the search."""
    found: list[str] = []
    start = text.find(_BOX)
    while start >= 0:
        depth, end = 1, start + len(_BOX)
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if depth:
            break
        found.append(text[start + len(_BOX) : end - 1])
        start = text.find(_BOX, end)
    return found


def extract_boxed(text: str) -> str | None:
    """The content of the only box; ``None`` for no box or several (published ``extract_boxed``)."""
    found = boxes(text)
    return found[0] if len(found) == 1 else None


def last_boxed(text: str) -> str | None:
    """The content of the last box that is not empty: a whole solution's answer; ``None`` for no such box."""
    found = [content for content in boxes(text) if content.strip()]
    return found[-1] if found else None


def gold_of(set_name: str, key: Any, preset: GradingPreset) -> tuple[str, ...]:
    """The key that an answer must equal; several texts if several answers are expected, in any order."""
    if set_name == "minerva_math":
        only = extract_boxed(str(key))
        return (str(key) if only is None else only,)
    if preset == "official":
        return (str(key),)
    values = key if isinstance(key, list) else [key]
    return tuple(_plain(value) for value in values)


def _plain(value: Any) -> str:
    """A key as text: 27.0 becomes 27, and ``$…$`` around the whole key is removed."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    inner = text[1:-1]
    return inner.strip() if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in inner else text


class Grader:
    """Compares answers, each distinct pair once. Use it as a context manager; threads may share it.

    ``failures`` counts comparisons without a verdict: "timeout", "error", and "unread" (math-verify cannot read the
    key, so the answer is compared as text).
    """

    def __init__(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.failures: Counter[str] = Counter()
        self._time_limit_s = time_limit_s
        self._known: dict[tuple[str, ...], bool] = {}
        self._pool = ProcessPool(1, initializer=_prepare_worker, context=_WorkerContext())  # starts at the first task
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker process."""
        with self._lock:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()

    def is_right(self, gold: Sequence[str], answer: str | None, preset: GradingPreset = "repaired") -> bool:
        """True if ``answer`` equals ``gold`` (see ``gold_of``); a missing answer is never right.

        Raises ``RuntimeError`` if no worker process can be started.
        """
        if answer is None:
            return False
        return self._equal(preset, answer, (gold[0],) if preset == "official" else tuple(gold))

    def votes(self, answers: Sequence[str | None]) -> list[str | None]:
        """The vote of each answer: the first spelling among the answers that equal it; ``None`` for ``None``."""
        votes: list[str | None] = []
        for answer in answers:
            spellings = [vote for vote in dict.fromkeys(votes) if vote is not None] if answer is not None else []
            same = (other for other in spellings if other == answer or self._equal("repaired", str(answer), (other,)))
            votes.append(next(same, answer))
        return votes

    def _equal(self, preset: GradingPreset, answer: str, gold: tuple[str, ...]) -> bool:
        read = [int(found[found.lastindex or 0]) for x in (*gold, answer) if (found := _INTEGER.fullmatch(x))]
        if len(gold) == 1 and len(read) == 2:
            return read[0] == read[1]  # the worker's verdict; a worker takes seconds to start
        key = (preset, answer, *gold)
        with self._lock:
            if key not in self._known:
                self._known[key], failure = self._compare(preset, gold, answer)
                if failure:
                    self.failures[failure] += 1
            return self._known[key]

    def _compare(self, preset: GradingPreset, gold: tuple[str, ...], answer: str) -> tuple[bool, str | None]:
        comparison = self._pool.schedule(_compare, args=(preset, gold, answer), timeout=self._time_limit_s)
        try:
            return comparison.result()
        except TimeoutError:
            return False, "timeout"
        except ProcessExpired:  # killed, out of memory, or crashed in C code
            return False, "error"


class _Worker(SpawnProcess):
    """A process that does not import the parent's main module; that could take seconds and most of the memory limit."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _WorkerContext(SpawnContext):
    Process = _Worker


def _prepare_worker() -> None:
    """Do the work that would otherwise count against the first comparison's time limit."""
    import math_verify  # noqa: F401 - sympy takes a second to import

    report_as("grader")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))  # sympy can fill any memory
    logging.disable(logging.WARNING)  # math-verify warns that its time limits are off


def _compare(preset: GradingPreset, gold: tuple[str, ...], answer: str) -> tuple[bool, str | None]:
    """In the worker: the verdict and the kind of failure."""
    try:
        return _verdict(preset, gold, answer)
    except Exception:  # sympy raises almost anything; the parent counts it
        return False, "error"


def _verdict(preset: GradingPreset, gold: tuple[str, ...], answer: str) -> tuple[bool, str | None]:
    if preset == "official":
        return _verify(gold[0], answer), None if _read(gold[0]) else "unread"
    gold, answer = tuple(map(_spelt, gold)), _spelt(answer)
    whole = ", ".join(gold)
    if _same_text(whole, answer) or _verify(whole, answer):
        return True, None
    wanted, given = [part for text in gold for part in split_answers(text)], split_answers(answer)
    if 1 < len(wanted) == len(given):
        return _matches([[_same_text(g, a) or _verify(g, a) for a in given] for g in wanted]), None
    return False, None if _read(whole) else "unread"


def _spelt(text: str) -> str:
    """The text with ``½`` as ``\\frac{1}{2}``, and so on."""
    parts = (unicodedata.normalize("NFKC", part).split("\u2044") for part in _FRACTION.findall(text))
    return _FRACTION.sub(lambda _: "\\frac{{{}}}{{{}}}".format(*next(parts)), text)


def _read(text: str) -> list[Any]:
    from math_verify import parse

    return list(parse(f"${text}$", parsing_timeout=None, raise_on_error=True))


def _verify(gold: str, answer: str) -> bool:
    from math_verify import verify

    pair = _read(gold), _read(answer)
    try:
        return bool(verify(*pair, timeout_seconds=None, raise_on_error=True))
    except Exception:
        # as published, an error on one pair of readings does not hide an equal pair
        if verify(*pair, timeout_seconds=None, raise_on_error=False):
            return True
        raise


def _same_text(left: str, right: str) -> bool:
    return "".join(left.split()).strip("$") == "".join(right.split()).strip("$")


def _matches(table: Iterable[list[bool]]) -> bool:
    """True if every row can have a separate column (augmenting paths)."""
    rows = list(table)
    owner: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, fits in enumerate(rows[row]):
            if fits and column not in seen:
                seen.add(column)
                if column not in owner or place(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(rows)))


def split_answers(text: str) -> list[str]:
    """Split at top-level commas and "and", without ``$``: ``"(1,2), $3$"`` gives ``["(1,2)", "3"]``."""
    parts, depth, current = [], 0, ""
    for character in text.replace("$", "").replace("\\text{ and }", ",").replace(" and ", ","):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in (*parts, current) if part.strip()]


def majority(votes: Sequence[Vote | None]) -> Vote | None:
    """The most frequent vote (maj@k), in a tie the earliest; ``None`` without votes."""
    counted = Counter(vote for vote in votes if vote is not None)
    return counted.most_common(1)[0][0] if counted else None


def pass_at_k(right: int, n: int, k: int) -> float:
    """Estimate the probability that at least one of ``k`` samples is right, from ``n`` samples of which ``right`` are.

    Chen et al. 2021, arXiv 2107.03374. Raises ``ValueError`` for impossible counts.
    """
    if not 0 <= right <= n or not 1 <= k <= n:
        raise ValueError(f"{right} of {n} right, k {k}; expected 0 <= right <= n and 1 <= k <= n")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)
