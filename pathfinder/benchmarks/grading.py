"""Is an answer right? Mathematical equality by math-verify, in a process of its own that can be stopped.

math-verify's own time-outs are signals: they fail outside the main thread and do not stop a loop inside C code. Here
a helper process (this module, run as a program) compares, and is ended and started again when a comparison takes too
long. A comparison that fails is counted and shown, never "wrong" in silence.

Preset ``official`` grades as the published ``eval_results.py``: gold is ``str(value)``, so OlympiadBench's lists meet
``"['2']"`` (a ceiling of 71 %). ``repaired`` reads lists and several answers, ``$…$`` and float keys.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import select
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, Any, Literal, Self, cast

Preset = Literal["official", "repaired"]
TIME_LIMIT_S = 10.0
_MEMORY_BYTES = 4 << 30
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
_BOX = "\\boxed{"


def boxes(text: str) -> list[str]:
    """Contents of every brace-balanced ``\\boxed{…}``; an unbalanced one ends the search, as published."""
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
    """The content of the only box; ``None`` for none or several (published ``extract_boxed``)."""
    found = boxes(text)
    return found[0] if len(found) == 1 else None


def last_boxed(text: str) -> str | None:
    """The content of the last box, if any: what a whole solution answers."""
    found = boxes(text)
    return found[-1] if found else None


def gold_of(set_name: str, key: Any, preset: Preset) -> tuple[str, ...]:
    """What an answer must equal; several texts where several answers are wanted, in any order."""
    if set_name == "minerva_math":
        only = extract_boxed(str(key))
        return (str(key) if only is None else only,)
    if preset == "official":
        return (str(key),)
    values = key if isinstance(key, list) else [key]
    return tuple(_plain(value) for value in values)


def _plain(value: Any) -> str:
    """A key as text: 27.0 as 27, and ``$…$`` around the whole of it taken off."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    inner = text[1:-1]
    return inner.strip() if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in inner else text


class Grader:
    """Compares answers; every distinct pair once. Use as a context manager. Safe to share between threads.

    ``failures`` counts comparisons that ended without a verdict: "timeout", "error", "unread" (a gold that
    math-verify cannot read: such answers are compared as text).
    """

    def __init__(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.failures: Counter[str] = Counter()
        self._limit = time_limit_s
        self._known: dict[tuple[str, ...], bool] = {}
        self._helper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the helper process."""
        with self._lock:
            self._stop()

    def is_right(self, gold: Sequence[str], answer: str | None, preset: Preset = "repaired") -> bool:
        """Whether ``answer`` equals ``gold`` (see ``gold_of``); no answer is never right."""
        if answer is None:
            return False
        if preset == "official" or len(gold) == 1:
            return self._equal(preset, answer, (gold[0],))
        return self._equal(preset, answer, tuple(gold))

    def majority(self, answers: Sequence[str | None]) -> str | None:
        """The answer given most often, equal ones counted together (maj@k); of equals, the earliest.

        Answers that are ``None`` have no vote; of an answer's spellings the first stands.
        """
        groups: list[tuple[str, int]] = []
        for answer in answers:
            if answer is None:
                continue
            for place, (other, votes) in enumerate(groups):
                if other == answer or self._equal("repaired", answer, (other,)):
                    groups[place] = (other, votes + 1)
                    break
            else:
                groups.append((answer, 1))
        return max(groups, key=lambda group: group[1])[0] if groups else None

    def _equal(self, preset: Preset, answer: str, gold: tuple[str, ...]) -> bool:
        if len(gold) == 1 and _INTEGER.fullmatch(gold[0]) and _INTEGER.fullmatch(answer):
            return int(gold[0]) == int(answer)  # what the helper would say, a thousand times sooner
        with self._lock:
            key = (preset, answer, *gold)
            if key not in self._known:
                self._known[key] = self._ask({"preset": preset, "answer": answer, "gold": list(gold)})
            return self._known[key]

    def _ask(self, question: dict[str, Any]) -> bool:
        asked, replies = self._running()
        try:
            asked.write(json.dumps(question).encode() + b"\n")
            asked.flush()
            ready, _, _ = select.select([replies], [], [], self._limit)
            line = replies.readline() if ready else b""
        except BrokenPipeError:
            ready, line = [replies], b""
        if not line:
            self.failures["timeout" if not ready else "error"] += 1
            self._stop()
            return False
        reply = json.loads(line)
        if reply["failure"]:
            self.failures[reply["failure"]] += 1
        return bool(reply["equal"])

    def _running(self) -> tuple[IO[bytes], IO[bytes]]:
        """Where to write questions and where to read replies."""
        if self._helper is None:
            self._helper = subprocess.Popen(
                [sys.executable, "-m", "pathfinder.benchmarks.grading"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,  # so that select() tells the truth
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
            # "ready" says that the imports are done, which do not count against the limit
            if not cast(IO[bytes], self._helper.stdout).readline():
                raise RuntimeError("the grading process did not start; its reason stands above")
        return cast(IO[bytes], self._helper.stdin), cast(IO[bytes], self._helper.stdout)

    def _stop(self) -> None:
        if self._helper is not None:
            self._helper.kill()
            self._helper.communicate()
            self._helper = None


def pass_at_k(right: int, n: int, k: int) -> float:
    """Unbiased chance that one of ``k`` of the ``n`` samples is right (Chen et al. 2021, arXiv 2107.03374)."""
    if not 0 <= right <= n or not 1 <= k <= n:
        raise ValueError(f"{right} of {n} right, k {k}; expected 0 <= right <= n and 1 <= k <= n")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def _serve() -> None:
    """The helper: one question a line in, one reply a line out, until the input ends."""
    import logging

    from math_verify import parse, verify  # sympy takes a second

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))  # sympy can fill any memory
    logging.disable(logging.WARNING)  # math-verify warns that its time-outs are off; ours is the parent's

    def read(text: str) -> list[Any]:
        return list(parse(f"${text}$", parsing_timeout=None, raise_on_error=True))

    def equal(gold: str, answer: str) -> bool:
        pair = read(gold), read(answer)
        try:
            return bool(verify(*pair, timeout_seconds=None, raise_on_error=True))
        except Exception:
            # an error between two readings does not hide that two others are equal, as published
            if verify(*pair, timeout_seconds=None, raise_on_error=False):
                return True
            raise

    def compare(preset: Preset, gold: list[str], answer: str) -> tuple[bool, str | None]:
        if preset == "official":
            return equal(gold[0], answer), None if read(gold[0]) else "unread"
        whole = ", ".join(gold)
        if _same_text(whole, answer) or equal(whole, answer):
            return True, None
        wanted, given = [p for g in gold for p in split_answers(g)], split_answers(answer)
        if 1 < len(wanted) == len(given):
            return _matches([[_same_text(g, a) or equal(g, a) for a in given] for g in wanted]), None
        return False, None if read(whole) else "unread"

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            same, failure = compare(question["preset"], question["gold"], question["answer"])
        except Exception:  # whatever sympy raises is a failure that the parent counts
            same, failure = False, "error"
        sys.stdout.write(json.dumps({"equal": same, "failure": failure}) + "\n")
        sys.stdout.flush()


def split_answers(text: str) -> list[str]:
    """Parts between top-level commas and "and", ``$`` taken off: ``"(1,2), $3$"`` gives ``["(1,2)", "3"]``."""
    parts, depth, current = [], 0, ""
    for character in text.replace("$", "").replace("\\text{ and }", ",").replace(" and ", ","):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in (*parts, current) if part.strip()]


def _same_text(left: str, right: str) -> bool:
    return "".join(left.split()).strip("$") == "".join(right.split()).strip("$")


def _matches(table: Iterable[list[bool]]) -> bool:
    """Whether every row can take a column of its own (augmenting paths)."""
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


if __name__ == "__main__":
    _serve()
