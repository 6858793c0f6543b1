"""Reward-guided search: the policy draws n candidate steps per round, the PRM selects (paper section 4.1, prm@8).

All open problems advance together: a round is one batched call of the policy and one of the scorer, whereas the
published script makes a call per problem and round. Greedy search is a beam of width 1. In a wider beam, the paths of a
problem share its n samples of a round, and the ``width`` next steps with the highest rewards remain.

Preset ``official`` follows the published rules exactly (``Greedy-Seach-Zero-Shot.py``). Preset ``repaired`` differs
where that script loses or misreads something:

- A candidate cut at the token limit is not finished, and an empty step is not a candidate.
- A round without an accepted candidate stays in the history; the second in a row takes the best rejected candidate.
- Typographic symbols are allowed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import regex  # type: ignore[import-untyped]

from pathfinder.benchmarks.grading import GradingPreset, boxes, extract_boxed, last_boxed
from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.core.params import Search
from pathfinder.core.prompts import END_OF_TURN, STEP_SEPARATOR
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.policy.policy import Policy, safe_prompt

_ILLEGAL = {
    "official": regex.compile(
        r"[^\p{Latin}\p{Greek}\d\s\+\-\*/=\^\_\'\".,:;?!\(\)\{\}\[\]\\\$%<>|&@#√∞±×÷°]",
    ),
    "repaired": regex.compile(r"[^\p{Latin}\p{Greek}\p{N}\p{M}\p{P}\p{S}\s\u2060]|\uFFFD"),
}
"""Characters that no candidate may contain: those of other scripts, and decoding errors."""
_PATIENCE = 2
"""Rounds in a row without an accepted candidate before the best rejected one is taken."""


@dataclass(frozen=True, slots=True)
class Round:
    """Distinct candidate steps of one open problem. ``counts``: the number of samples per candidate."""

    name: str
    number: int
    problem: str
    prefix: tuple[str, ...]
    steps: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate's reward, and whether a first-pass label rejects it."""

    reward: float
    rejected: bool = False


StepScorer = Callable[[Sequence[Round]], list[list[Scored]]]
"""Scores the candidates of all open problems in one call: one list per round, one score per candidate."""


def random_pick(seed: int) -> StepScorer:
    """The control: rewards that pick a random *sample*.

    Each step scores the highest of ``count`` uniform numbers, so a step that was drawn twice is twice as likely.
    Otherwise de-duplication would favour rare steps, which are mostly incorrect.
    """

    def uniform(key: str) -> float:
        digest = hashlib.sha256(f"{seed}/random/{key}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:7], "little") / 2**56

    def pick(rounds: Sequence[Round]) -> list[list[Scored]]:
        return [
            [
                Scored(uniform(f"{r.name}/{r.number}/{step}") ** (1 / n))
                for step, n in zip(r.steps, r.counts, strict=True)
            ]
            for r in rounds
        ]

    return pick


@dataclass(frozen=True, slots=True)
class _Path:
    """A partial solution. ``reward``: its last step's; ``idle``: rounds since that step."""

    steps: tuple[str, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    reward: float = -1.0
    finished: bool = False
    idle: int = 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    step: str
    finished: bool

    @property
    def published(self) -> str:
        """The published script's form: the end token marks a finished candidate."""
        return self.step + END_OF_TURN if self.finished else self.step


_Candidates = Counter[_Candidate]


@dataclass(slots=True)
class _Search:
    """The search for one problem's solution."""

    problem: SearchProblem
    paths: list[_Path] = field(default_factory=lambda: [_Path()])
    rounds: int = 0

    @property
    def open_paths(self) -> list[int]:
        """Indices of the paths that are not finished."""
        return [index for index, path in enumerate(self.paths) if not path.finished]

    def name(self, path: int = 0) -> str:
        """A path's name in every round."""
        return f"{self.problem.set}/{self.problem.id}" + (f"/path {path}" if path else "")

    def round(self, path: int, number: int, candidates: _Candidates) -> Round:
        steps = tuple(candidate.step for candidate in candidates)
        prefix, counts = self.paths[path].steps, tuple(candidates.values())
        return Round(self.name(path), number, self.problem.problem, prefix, steps, counts)


def search(
    problems: Sequence[SearchProblem], policy: Policy, score: StepScorer, settings: Search, preset: GradingPreset
) -> list[dict[str, Any]]:
    """Search every problem.

    Returns the published script's rows plus ``set``, ``id``, ``finished`` and ``rounds``, in the order of the problems.
    """
    searches = [_Search(problem) for problem in problems]
    width = settings.width if settings.strategy == "beam" else 1
    for number in range(1, settings.max_rounds + 1):
        running = [one for one in searches if one.open_paths]
        if not running:
            break
        found = _draw(running, number, policy, settings, preset)
        scores = score([one.round(path, number, candidates) for one, path, candidates in found])
        last = number == settings.max_rounds
        extended: dict[str, list[_Path]] = {one.name(): [] for one in running}
        for (one, path, candidates), scored in zip(found, scores, strict=True):
            pairs = list(zip(candidates, scored, strict=True))
            extended[one.name()] += _extended(one.paths[path], number, pairs, preset, last, width)
        for one in running:
            paths = [path for path in one.paths if path.finished] + extended[one.name()]
            one.paths = sorted(paths, key=lambda path: -path.reward)[:width]  # stable: the first of equals
            one.rounds = number
    return [_row(one, preset) for one in searches]


def _draw(
    running: Sequence[_Search], number: int, policy: Policy, settings: Search, preset: GradingPreset
) -> list[tuple[_Search, int, _Candidates]]:
    """Candidates of every open path, from one policy call; the paths of a problem take turns with its samples."""
    n = settings.n
    sampling = Sampling(
        settings.temperature, settings.top_p, settings.max_tokens, stop=(STEP_SEPARATOR,), include_stop=True
    )
    owners = [one.open_paths[i % len(one.open_paths)] for one in running for i in range(n)]
    keys = [f"{settings.seed}/{one.name()}/{number}/{i}" for one in running for i in range(n)]
    prompts = [
        safe_prompt(policy, running[row // n].problem.problem, running[row // n].paths[path].steps)
        for row, path in enumerate(owners)
    ]
    drawn = policy.generate(prompts, keys, sampling)
    found = []
    for place, one in enumerate(running):
        rows = range(place * n, (place + 1) * n)
        for path in one.open_paths:
            completions = [drawn[row] for row in rows if owners[row] == path]
            found.append((one, path, _candidates(completions, one.paths[path].steps, preset)))
    return found


def _candidates(drawn: Iterable[Completion], steps: Sequence[str], preset: GradingPreset) -> _Candidates:
    """Distinct legal candidates in the order of their first draw, with the number of draws."""
    found = _Candidates()
    for completion in drawn:
        text, cut = completion.text, completion.finish == "length"
        if _ILLEGAL[preset].search(text):
            continue
        ended = text.endswith(STEP_SEPARATOR)
        if preset == "official":
            candidate = _Candidate(text[: -len(STEP_SEPARATOR)].strip() if ended else text, not ended)
            # only a finished candidate needs an answer, and it needs exactly one
            if candidate.finished and extract_boxed(text) is None:
                continue
        else:
            candidate = _Candidate(text.strip(), not ended)
            if cut or not candidate.step:
                continue
            if candidate.finished and not any(boxes(step) for step in (*steps, text)):
                continue
        found[candidate] += 1
    return found


def _extended(
    path: _Path, number: int, pairs: list[tuple[_Candidate, Scored]], preset: GradingPreset, last: bool, width: int
) -> list[_Path]:
    """The path extended by each of its ``width`` best accepted candidates, the first of equals.

    Without an accepted candidate the path stays as it is, one round older.
    """
    idle = path.idle + 1
    accepted = [pair for pair in pairs if not pair[1].rejected]
    if not accepted and preset == "repaired" and (last or idle >= _PATIENCE):
        accepted = pairs
    shown = accepted if preset == "official" else pairs
    entry = {
        "iteration_index": number,
        "candidates_info": [
            {"candidate_step": candidate.published, "reward": score.reward}
            | ({"rejected": True} if score.rejected else {})
            for candidate, score in shown
        ],
        "chosen_step_index": None,
        "chosen_step": None,
    }
    best = sorted(accepted, key=lambda pair: -pair[1].reward)[:width]
    if not best:  # the published history omits such rounds
        return [replace(path, history=path.history if preset == "official" else (*path.history, entry), idle=idle)]
    return [
        _Path(
            (*path.steps, candidate.step),
            (
                *path.history,
                entry | {"chosen_step_index": shown.index((candidate, score)), "chosen_step": candidate.published},
            ),
            score.reward,
            candidate.finished,
        )
        for candidate, score in best
    ]


def _row(one: _Search, preset: GradingPreset) -> dict[str, Any]:
    """The row of the best finished path or, if none is finished, of the best path."""
    path = next((path for path in one.paths if path.finished), one.paths[0])
    steps = [*path.steps[:-1], _Candidate(path.steps[-1], path.finished).published] if path.steps else []
    if preset == "official":
        answer = extract_boxed(steps[-1]) if steps else None
    else:
        answer = last_boxed(STEP_SEPARATOR.join(path.steps))
    return {
        "set": one.problem.set,
        "id": one.problem.id,
        "question": one.problem.problem,
        "iteration_history": list(path.history),
        "final_steps": steps,
        "gt_answer": one.problem.key,
        "pred_answer": answer,
        "finished": path.finished,
        "rounds": one.rounds,
    }
