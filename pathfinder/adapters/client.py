"""Step rewards for other libraries, from a model in this process or from ``pathfinder serve``.

A batch may be of any size. A solution that cannot be scored, because it is empty or longer than the model's context,
has no rewards, and a line on standard error counts it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import httpx

from ground.io import DataError
from ground.settings import require_address, require_certificate
from ground.text import printable
from pathfinder.core.layouts import Split, split_steps, text_of
from pathfinder.core.steps import Solution
from pathfinder.library import PRM
from pathfinder.policy.choosing import SCORES
from pathfinder.prm.batching import tokens_of
from pathfinder.prm.results import NO_STEP
from pathfinder.sources.http_fetch import RETRIED, retried
from pathfinder.tree.packing import split

Pair = tuple[Any, Any]
"""A problem and a solution: texts, lists of parts with texts, or turns of a chat. A solution may be a list of steps."""
_TOKENS = 1 << 14
"""Tokens per request. The server accepts four times as many, but must answer within its deadline."""
_SMALLER = (413, 422, 503)
"""Status codes that may mean a request is too large: the client then sends halves, down to one solution."""
_RETRIES = 8
_TIMEOUT_S = 600.0


class StepRewards:
    """The rewards that a PRM gives to solutions; it is a folder, a Hub repository or a server's address.

    Without ``model``, PATHFINDER_URL names the server. ``split`` says where steps of a text begin (``split_steps``),
    ``reduce`` turns the steps' rewards into one number ("min", "product", "last", "mean"), and ``floor`` is the number
    for a solution without rewards. PATHFINDER_SERVE_TOKEN is the server's token. Raises ``DataError`` for an unknown
    option or model.
    """

    def __init__(
        self, model: str | PRM = "", *, split: Split = "auto", reduce: str = "min", floor: float = 0.0
    ) -> None:
        if reduce not in SCORES:
            raise DataError(f"unknown reduce {reduce!r}; expected one of {', '.join(SCORES)}")
        split_steps("", split)
        self.floor, self._split, self._reduce = floor, split, SCORES[reduce]
        where = model or os.environ.get("PATHFINDER_URL", "http://127.0.0.1:8765")
        self._lock = threading.Lock()
        if isinstance(where, str) and where.startswith(("http://", "https://")):
            require_address(where, "give one such as http://127.0.0.1:8765")
            token = os.environ.get("PATHFINDER_SERVE_TOKEN", "").strip()
            headers = {b"Authorization": f"Bearer {token}".encode()} if token else {}
            self._url = f"{where.rstrip('/')}/v1/score"
            self._client = httpx.Client(headers=headers, timeout=_TIMEOUT_S)
            self._prm = None
        else:
            self._prm = PRM.load(where) if isinstance(where, str) else where

    def values(self, pairs: Iterable[Pair]) -> list[float]:
        """One number for each solution: its reduced rewards, or the floor. Raises as ``steps`` does."""
        return [self.value(rewards) for rewards in self.steps(pairs)]

    def value(self, rewards: Sequence[float]) -> float:
        """A solution's step rewards as one number; the floor if there are none."""
        return self._reduce(rewards) if rewards else self.floor

    def steps(self, pairs: Iterable[Pair]) -> list[list[float]]:
        """The rewards of the steps of each solution, empty for a solution that cannot be scored.

        Raises ``DataError`` for content that is not text and for a server that refuses every request, and
        ``TransientError`` for a server that fails ``_RETRIES`` times.
        """
        given = [self._solution(number, *pair) for number, pair in enumerate(pairs)]
        asked = [one for one in given if one.steps]
        reasons = Counter[str]({NO_STEP: len(given) - len(asked)})
        found = iter(self._remote(asked, reasons) if self._prm is None else self._local(self._prm, asked, reasons))
        if reasons.total():
            why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
            print(printable(f"no rewards for some of {len(given):,} solutions: {why}"), file=sys.stderr, flush=True)
        return [next(found) if one.steps else [] for one in given]

    def _solution(self, number: int, problem: Any, solution: Any) -> Solution:
        try:
            is_steps = isinstance(solution, list) and all(isinstance(step, str) for step in solution)
            steps = solution if is_steps else split_steps(_told(solution, "assistant"), self._split)
            return Solution(str(number), _told(problem, "user"), tuple(step for step in steps if step.strip()))
        except ValueError as error:
            raise DataError(f"solution {number}: {error}; give texts") from error

    def _local(self, prm: PRM, asked: Sequence[Solution], reasons: Counter[str]) -> list[list[float]]:
        with self._lock:
            scored = prm.score_many((one.problem, one.steps) for one in asked)
        reasons.update(one.reason for one in scored if not one.scored)
        return [one.rewards if one.scored else [] for one in scored]

    def _remote(self, asked: Sequence[Solution], reasons: Counter[str]) -> list[list[float]]:
        parts = split({number: tokens_of(one) for number, one in enumerate(asked)}, _TOKENS)
        return [rewards for part in parts for rewards in self._of([asked[number] for number in part], reasons)]

    def _of(self, part: list[Solution], reasons: Counter[str]) -> list[list[float]]:
        """The rewards of a request or, if it is refused as too large, of its halves."""
        response = self._answer(part)
        if response.status_code in _SMALLER and len(part) > 1:
            half = len(part) // 2
            return self._of(part[:half], reasons) + self._of(part[half:], reasons)
        if response.status_code in (413, 422):
            reasons[f"refused ({response.text[:200]})"] += 1
            return [[]]
        solutions = response.json()["solutions"]
        reasons.update(one["reason"] for one in solutions if not one["scored"])
        return [[step["reward"] for step in one["steps"]] if one["scored"] else [] for one in solutions]

    def _answer(self, part: list[Solution]) -> httpx.Response:
        """The answer to a request: scores, or a refusal because of its size. Other refusals raise or are retried."""
        asked = {"solutions": [{"problem": one.problem, "steps": one.steps} for one in part]}
        text = json.dumps(asked, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        body = text.decode("utf-16-le", "replace").encode()  # U+FFFD for half an emoji, as in a local model
        kind = {"Content-Type": "application/json"}

        def ask() -> httpx.Response:
            response = self._client.post(self._url, content=body, headers=kind)
            may_shrink = response.status_code != 503 or len(part) > 1
            return response if response.status_code in _SMALLER and may_shrink else response.raise_for_status()

        def explain(error: Exception) -> tuple[str, str]:
            if not isinstance(error, httpx.HTTPStatusError):
                require_certificate(error, self._url)
                return f"{self._url}: {error or type(error).__name__}", ""
            status = error.response.status_code
            failure = f"{self._url}: {status} {error.response.text[:200]}"
            if status < 500 and status not in RETRIED:
                raise DataError(f"{failure}; check the address and PATHFINDER_SERVE_TOKEN") from error
            return failure, error.response.headers.get("Retry-After", "")

        return retried(ask, (httpx.HTTPError,), explain, _RETRIES, "check that `pathfinder serve` runs")


def _told(given: Any, role: str) -> str:
    """The text of a problem or a solution. From turns, it takes the user's last turn, or all turns of the assistant."""
    if given is None:
        return ""
    if isinstance(given, list) and any(isinstance(turn, dict) and "role" in turn for turn in given):
        told = [turn.get("content") or "" for turn in given if turn.get("role") == role]
        return "\n\n".join(map(text_of, told[-1:] if role == "user" else told))
    return text_of(given)


def rewards_of(model: str = "", **options: Any) -> StepRewards:
    """``StepRewards`` with these options, made once in this process. Raises ``DataError`` as it does."""
    with _MAKING:
        return _made(model, **options)


_MAKING = threading.Lock()
_made = cache(StepRewards)
