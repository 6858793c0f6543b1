"""Reward-guided greedy search: n candidate steps a round, the PRM takes the best (paper section 4.1, prm@8).

All open problems advance together: a round is one batched call of the policy and one of the scorer, where the
published script asks once a problem and round. Preset ``official`` keeps its rules to the letter
(``Greedy-Seach-Zero-Shot.py``). ``repaired`` differs where that script loses or misreads something: a candidate cut by
the token limit is not a finished one, a round without an accepted candidate stays in the history, a second one in a
row takes the best of the rejected, empty steps are no steps, and typographic symbols are legal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import regex  # type: ignore[import-untyped]

from stages.core.benchmarks import SearchProblem
from stages.core.generate import Completion, Sampling
from stages.core.grading import Preset, boxes, extract_boxed, last_boxed
from stages.core.io import digest_of, read_json, sha256_file, write_json
from stages.core.params import Search
from stages.core.policy import Policy, safe_prompt
from stages.core.progress import Progress
from stages.core.prompts import END_OF_TURN, STEP_SEPARATOR

_ILLEGAL = {
    "official": regex.compile(
        r"[^\p{Latin}\p{Greek}\d\s\+\-\*/=\^\_\'\".,:;?!\(\)\{\}\[\]\\\$%<>|&@#√∞±×÷°]",
    ),
    "repaired": regex.compile(r"[^\p{Latin}\p{Greek}\p{N}\p{M}\p{P}\p{S}\s\u2060]|\uFFFD"),
}
"""Characters that no candidate may hold; they keep other scripts and rubble out."""
STATE = Path(".pathfinder")
_PATIENCE = 2  # rounds in a row without an accepted candidate before the best of the rejected is taken


@dataclass(frozen=True, slots=True)
class Round:
    """Distinct candidate steps of one open problem. ``counts``: how many samples each stands for."""

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


class StepScorer(Protocol):
    """Scores the candidates of all open problems in one call."""

    def __call__(self, rounds: Sequence[Round]) -> list[list[Scored]]:
        """One list a round, one score a step."""
        ...


@dataclass(frozen=True, slots=True)
class RandomPick:
    """The control: rewards that pick a random *sample*. A step that was drawn twice is twice as likely, or else
    de-duplication would favour rare steps, which are mostly wrong."""

    seed: int

    def __call__(self, rounds: Sequence[Round]) -> list[list[Scored]]:
        """The highest of ``count`` uniform numbers for each step."""
        return [
            [
                Scored(self._uniform(f"{r.name}/{r.number}/{step}") ** (1 / count))
                for step, count in zip(r.steps, r.counts, strict=True)
            ]
            for r in rounds
        ]

    def _uniform(self, key: str) -> float:
        digest = hashlib.sha256(f"{self.seed}/random/{key}".encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:7], "little") / 2**56


@dataclass(slots=True)
class _Open:
    problem: SearchProblem
    steps: list[str] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    waited: int = 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    step: str
    finished: bool

    @property
    def published(self) -> str:
        """As the published script writes it: the end token marks a finished one."""
        return self.step + END_OF_TURN if self.finished else self.step


def search(
    problems: Sequence[SearchProblem], policy: Policy, score: StepScorer, settings: Search, preset: Preset
) -> list[dict[str, Any]]:
    """Rows as the published script writes them, with ``set``, ``id`` and ``finished``, in the problems' order."""
    searches = [_Open(problem) for problem in problems]
    sampling = Sampling(
        settings.temperature, settings.top_p, settings.max_tokens, stop=(STEP_SEPARATOR,), include_stop=True
    )
    for number in range(1, settings.max_rounds + 1):
        going = [one for one in searches if not one.finished]
        if not going:
            break
        prompts = [safe_prompt(policy, one.problem.problem, one.steps) for one in going for _ in range(settings.n)]
        keys = [f"{settings.seed}/{_name(one)}/{number}/{i}" for one in going for i in range(settings.n)]
        drawn = policy.sample(prompts, keys, sampling)
        candidates = [
            _candidates(drawn[i * settings.n : (i + 1) * settings.n], one.steps, preset) for i, one in enumerate(going)
        ]
        rounds = [
            Round(
                _name(one),
                number,
                one.problem.problem,
                tuple(one.steps),
                tuple(candidate.step for candidate in found),
                tuple(found.values()),
            )
            for one, found in zip(going, candidates, strict=True)
        ]
        scored = score(rounds)
        for one, found, marks in zip(going, candidates, scored, strict=True):
            _advance(one, number, list(found), marks, preset, last=number == settings.max_rounds)
    return [_row(one, preset) for one in searches]


def _name(one: _Open) -> str:
    return f"{one.problem.set}/{one.problem.id}"


def _candidates(drawn: Iterable[Completion], steps: Sequence[str], preset: Preset) -> Counter[_Candidate]:
    """Distinct legal candidates in the order of their first draw, with how often each was drawn."""
    found: Counter[_Candidate] = Counter()
    for completion in drawn:
        text, cut = completion.text, completion.finish == "length"
        if _ILLEGAL[preset].search(text):
            continue
        ended = text.endswith(STEP_SEPARATOR)
        if preset == "official":
            candidate = _Candidate(text[: -len(STEP_SEPARATOR)].strip() if ended else text, not ended)
            # only a finished candidate needs its answer, and it needs exactly one
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


def _advance(
    one: _Open, number: int, found: list[_Candidate], marks: Sequence[Scored], preset: Preset, last: bool
) -> None:
    """Take the candidate with the highest reward that no first-pass label rejects; the first of equals."""
    one.waited += 1
    pairs = list(zip(found, marks, strict=True))
    clean = [pair for pair in pairs if not pair[1].rejected]
    if not clean and preset == "repaired" and (last or one.waited >= _PATIENCE):
        clean = pairs
    shown = clean if preset == "official" else pairs
    chosen = max(clean, key=lambda pair: pair[1].reward, default=None)
    if chosen is None and preset == "official":
        return  # the published history leaves such rounds out
    one.history.append(
        {
            "iteration_index": number,
            "candidates_info": [
                {"candidate_step": candidate.published, "reward": mark.reward}
                | ({"rejected": True} if mark.rejected else {})
                for candidate, mark in shown
            ],
            "chosen_step_index": None if chosen is None else shown.index(chosen),
            "chosen_step": None if chosen is None else chosen[0].published,
        }
    )
    if chosen is not None:
        one.steps.append(chosen[0].step)
        one.finished, one.waited = chosen[0].finished, 0


def _row(one: _Open, preset: Preset) -> dict[str, Any]:
    steps = [*one.steps[:-1], _Candidate(one.steps[-1], one.finished).published] if one.steps else []
    if preset == "official":
        answer = extract_boxed(steps[-1]) if steps else None
    else:
        answer = last_boxed(STEP_SEPARATOR.join(one.steps))
    return {
        "set": one.problem.set,
        "id": one.problem.id,
        "question": one.problem.problem,
        "iteration_history": one.history,
        "final_steps": steps,
        "gt_answer": one.problem.key,
        "pred_answer": answer,
        "finished": one.finished,
    }


def journal(stage: str, identity: dict[str, Any], problems: Sequence[SearchProblem], models: Sequence[Path]) -> Path:
    """The folder where a run keeps its chunks: named by everything that determines them, the code included."""
    modules = sorted(Path(__file__).parent.glob("*.py"))
    content = {
        "identity": identity,
        "problems": [[p.set, p.id, p.problem, p.key] for p in problems],
        "models": [
            {str(file.relative_to(model)): sha256_file(file) for file in sorted(model.rglob("*")) if file.is_file()}
            for model in models
        ],
        "code": {module.name: sha256_file(module) for module in modules},
    }
    return STATE / stage / digest_of(content)[:32]


def in_chunks(
    problems: Sequence[SearchProblem],
    size: int,
    folder: Path,
    work: Callable[[Sequence[SearchProblem]], list[dict[str, Any]]],
    label: str,
) -> list[dict[str, Any]]:
    """Rows of ``work`` for every problem, ``size`` problems at a time, each chunk kept in ``folder`` as it is done.

    Chunks are fixed, so that a run that was ended goes on at the first chunk that lacks and comes to the same bytes.
    """
    rows: list[dict[str, Any]] = []
    with Progress(label, len(problems), "problems") as progress:
        for start in range(0, len(problems), size):
            chunk, path = problems[start : start + size], folder / f"{start:06d}.json"
            if path.exists():
                progress.resume(len(chunk))
            else:
                write_json(path, work(chunk))
                progress.advance(len(chunk))
            rows += read_json(path)
    return rows
