"""Reward-guided search: the policy draws n candidate steps per round, the PRM selects (paper section 4.1, prm@8).

All open problems advance together: a round is one batched call of the policy and one of the scorer, whereas the
published script makes a call per problem and round. Greedy search is a beam of width 1. In a wider beam, the paths of a
problem share its n samples of a round, and the ``width`` next steps with the highest rewards remain.

Preset ``official`` follows the published rules exactly (``Greedy-Seach-Zero-Shot.py``). Preset ``repaired`` differs if
that script loses or misreads something; docs/search.md compares the two.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import regex  # type: ignore[import-untyped]

from pathfinder.benchmarks.grading import GradingPreset, extract_boxed, last_boxed
from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.core.params import Search
from pathfinder.core.prompts import END_OF_TURN, STEP_SEPARATOR
from pathfinder.core.steps import Candidates, RoundScorer, StepScore
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.policy.policy import Policy, safe_prompt

_ILLEGAL = {
    "official": regex.compile(r"[^\p{Latin}\p{Greek}\d\s\+\-\*/=\^\_\'\".,:;?!\(\)\{\}\[\]\\\$%<>|&@#√∞±×÷°]"),
    "repaired": regex.compile(r"[^\p{Latin}\p{Greek}\p{N}\p{M}\p{P}\p{S}\s\u2060]|\uFFFD"),
}
"""Characters that no candidate may contain: foreign scripts, and decoding errors."""
_PATIENCE = 2
"""Rounds in a row without an accepted candidate before the best rejected one is taken."""


@dataclass(frozen=True, slots=True)
class RandomPick:
    """The control: rewards that pick a random *sample*.

    The score of a step is the highest of ``count`` uniform numbers, so a step that was drawn twice is twice as likely.
    Otherwise de-duplication would favour rare steps, which are mostly incorrect.
    """

    seed: int

    def rounds(self) -> RoundScorer:
        """A scorer of candidates for one search."""
        return lambda rounds: {name: self._scores(name, candidates) for name, candidates in rounds.items()}

    def _scores(self, name: str, of: Candidates) -> list[StepScore]:
        counted = zip(of.steps, of.counts, strict=True)
        return [StepScore({}, self._uniform(f"{name}/{of.round}/{step}") ** (1 / count)) for step, count in counted]

    def _uniform(self, key: str) -> float:
        digest = hashlib.sha256(f"{self.seed}/random/{key}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:7], "little") / 2**56


@dataclass(frozen=True, slots=True)
class _Path:
    """A partial solution. ``reward``: its last step's; ``idle``: rounds since that step.

    ``too_long``: the next step would exceed the context of the policy or the PRM, so the path ends unfinished.
    """

    steps: tuple[str, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    reward: float = -1.0
    finished: bool = False
    idle: int = 0
    too_long: bool = False

    @property
    def open(self) -> bool:
        """True if the path can be continued."""
        return not self.finished and not self.too_long


@dataclass(frozen=True, slots=True)
class _Candidate:
    step: str
    finished: bool
    reward: float = 0.0
    rejected: bool = False

    @property
    def published(self) -> str:
        """The published script's form: the end token marks a finished candidate."""
        return self.step + END_OF_TURN if self.finished else self.step


@dataclass(slots=True)
class _Search:
    """The search for one problem's solution."""

    problem: SearchProblem
    paths: list[_Path] = field(default_factory=lambda: [_Path()])
    rounds: int = 0

    @property
    def name(self) -> str:
        return f"{self.problem.set}/{self.problem.id}"

    @property
    def open_paths(self) -> dict[str, _Path]:
        """The paths that can be continued, by name."""
        return {self.name + (f"/path {i}" if i else ""): path for i, path in enumerate(self.paths) if path.open}


def search(
    problems: Sequence[SearchProblem],
    policy: Policy,
    score: RoundScorer,
    settings: Search,
    preset: GradingPreset,
    rejects: bool = True,
) -> list[dict[str, Any]]:
    """Search every problem; with ``rejects``, a predicted error rejects a candidate, as published.

    Returns the published script's rows plus ``set``, ``id``, ``finished`` and ``rounds``, in the order of the problems.
    A row whose path ended at a model's context has ``too_long``.
    """
    searches = [_Search(problem) for problem in problems]
    width = settings.width if settings.strategy == "beam" else 1
    for number in range(1, settings.max_rounds + 1):
        running = [state for state in searches if state.open_paths]
        if not running:
            break
        drawn = _draw(running, number, policy, settings)
        paths = {name: (state, path) for state in running for name, path in state.open_paths.items()}
        found = {name: _candidates(drawn[name], path.steps, preset) for name, (_, path) in paths.items()}
        asked = {}
        for name, (state, path) in paths.items():
            steps = tuple(candidate.step for candidate in found[name])
            asked[name] = Candidates(state.problem.problem, path.steps, steps, tuple(found[name].values()), number)
        scores = score(asked)
        for state in running:
            state.paths = [path for path in state.paths if not path.open]
        last = number == settings.max_rounds
        for name, (state, path) in paths.items():
            pairs = [(c, s) for c, s in zip(found[name], scores[name], strict=True) if s is not None]
            if _ends(drawn[name], len(found[name]), len(pairs)):
                state.paths.append(replace(path, too_long=True))
                continue
            scored = [replace(c, reward=s.reward, rejected=rejects and s.has_error) for c, s in pairs]
            state.paths += _extended(path, number, scored, preset, last, width)
        for state in running:
            state.paths = sorted(state.paths, key=lambda path: -path.reward)[:width]  # stable: the first wins a tie
            state.rounds = number
    return [_row(state, preset) for state in searches]


def _draw(
    running: Sequence[_Search], number: int, policy: Policy, settings: Search
) -> defaultdict[str, list[Completion]]:
    """Samples by name of the path, from one policy call; the paths of a problem take its samples in turn."""
    sampling = Sampling(settings.temperature, settings.top_p, settings.max_tokens, (STEP_SEPARATOR,), include_stop=True)
    keys, prompts, names = list[str](), list[str](), list[str]()
    for state in running:
        paths = list(state.open_paths.items())
        for i in range(settings.n):
            name, path = paths[i % len(paths)]
            keys.append(f"{settings.seed}/{state.name}/{number}/{i}")
            prompts.append(safe_prompt(policy, state.problem.problem, path.steps))
            names.append(name)
    drawn = defaultdict[str, list[Completion]](list)
    for name, completion in zip(names, policy.generate(prompts, keys, sampling), strict=True):
        drawn[name].append(completion)
    return drawn


def _ends(drawn: Sequence[Completion], candidates: int, fitting: int) -> bool:
    """True if a path is too long: for the policy, or with each of its candidates for the PRM."""
    finishes = {completion.finish for completion in drawn}
    return finishes == {"too_long"} or (candidates > 0 and not fitting)


def _candidates(drawn: Iterable[Completion], steps: Sequence[str], preset: GradingPreset) -> Counter[_Candidate]:
    """Distinct legal candidates in the order of their first draw, with the number of draws."""
    found = Counter[_Candidate]()
    for completion in drawn:
        text = completion.text
        if _ILLEGAL[preset].search(text):
            continue
        ended = text.endswith(STEP_SEPARATOR)
        if preset == "official":
            candidate = _Candidate(text.removesuffix(STEP_SEPARATOR).strip() if ended else text, not ended)
            # only a finished candidate needs an answer, and it needs exactly one
            allowed = ended or extract_boxed(text) is not None
        else:
            candidate = _Candidate(text.strip(), not ended)
            whole = bool(candidate.step) and completion.finish != "length"
            allowed = whole and (ended or any(last_boxed(step) for step in (*steps, text)))
        if allowed:
            found[candidate] += 1
    return found


def _extended(
    path: _Path, number: int, scored: list[_Candidate], preset: GradingPreset, last: bool, width: int
) -> list[_Path]:
    """The path extended by each of its ``width`` best accepted candidates; in a tie, the first is better.

    Without an accepted candidate, the path stays the same, one round older.
    """
    idle = path.idle + 1
    accepted = [candidate for candidate in scored if not candidate.rejected]
    if not accepted and preset == "repaired" and (last or idle >= _PATIENCE):
        accepted = scored
    shown = accepted if preset == "official" else scored
    infos = [
        {"candidate_step": candidate.published, "reward": candidate.reward}
        | ({"rejected": True} if candidate.rejected else {})
        for candidate in shown
    ]
    entry = {"iteration_index": number, "candidates_info": infos, "chosen_step_index": None, "chosen_step": None}
    best = sorted(accepted, key=lambda candidate: -candidate.reward)[:width]
    if not best:  # the published history omits such rounds
        return [replace(path, history=path.history if preset == "official" else (*path.history, entry), idle=idle)]
    paths = []
    for candidate in best:
        chosen = {"chosen_step_index": shown.index(candidate), "chosen_step": candidate.published}
        steps, history = (*path.steps, candidate.step), (*path.history, entry | chosen)
        paths.append(_Path(steps, history, candidate.reward, candidate.finished))
    return paths


def _row(state: _Search, preset: GradingPreset) -> dict[str, Any]:
    """The row of the best finished path or, if none is finished, of the best path."""
    path = next((path for path in state.paths if path.finished), state.paths[0])
    steps = [*path.steps[:-1], _Candidate(path.steps[-1], path.finished).published] if path.steps else []
    if preset == "official":
        answer = extract_boxed(steps[-1]) if steps else None
    else:
        answer = last_boxed(STEP_SEPARATOR.join(path.steps))
    return {
        "set": state.problem.set,
        "id": state.problem.id,
        "question": state.problem.problem,
        "iteration_history": list(path.history),
        "final_steps": steps,
        "gt_answer": state.problem.key,
        "pred_answer": answer,
        "finished": path.finished,
        "rounds": state.rounds,
    } | ({"too_long": True} if path.too_long else {})
