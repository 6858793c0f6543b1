"""Reward-guided search: n candidate steps a round, the PRM takes the best (paper section 4.1, prm@8), or the best few.

All open problems advance together: a round is one batched call of the policy and one of the scorer, where the
published script asks once a problem and round. Greedy search is a beam of width 1; in a wider one a problem's paths
share its n samples of a round, and of all their next steps the ``width`` with the highest rewards stay.
Preset ``official`` keeps the published rules to the letter (``Greedy-Seach-Zero-Shot.py``). ``repaired`` differs where
that script loses or misreads something: a candidate cut by the token limit is not a finished one, a round without an
accepted candidate stays in the history, a second one in a row takes the best of the rejected, empty steps are no
steps, and typographic symbols are legal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import regex  # type: ignore[import-untyped]

from pathfinder.benchmarks.grading import Preset, boxes, extract_boxed, last_boxed
from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.core.io import digest_of, read_json, sha256_file, write_json
from pathfinder.core.params import Search
from pathfinder.core.progress import Progress
from pathfinder.core.prompts import END_OF_TURN, STEP_SEPARATOR
from pathfinder.engines.generate import Completion, Sampling
from pathfinder.policy.policy import Policy, safe_prompt
from pathfinder.provenance.identity import code_digest

_ILLEGAL = {
    "official": regex.compile(
        r"[^\p{Latin}\p{Greek}\d\s\+\-\*/=\^\_\'\".,:;?!\(\)\{\}\[\]\\\$%<>|&@#√∞±×÷°]",
    ),
    "repaired": regex.compile(r"[^\p{Latin}\p{Greek}\p{N}\p{M}\p{P}\p{S}\s\u2060]|\uFFFD"),
}
"""Characters that no candidate may hold; they keep other scripts and rubble out."""
T = TypeVar("T")
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


@dataclass(frozen=True, slots=True)
class _Path:
    """One way through a problem; ``reward`` is its last step's, ``waited`` its rounds since then."""

    steps: tuple[str, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    reward: float = -1.0
    finished: bool = False
    waited: int = 0


@dataclass(slots=True)
class _Open:
    problem: SearchProblem
    paths: list[_Path] = field(default_factory=lambda: [_Path()])
    rounds: int = 0

    @property
    def going(self) -> list[int]:
        """Places of the paths that are not finished."""
        return [place for place, path in enumerate(self.paths) if not path.finished]

    def name(self, place: int = 0) -> str:
        """A path's name from round to round."""
        return f"{self.problem.set}/{self.problem.id}" + (f"/path {place}" if place else "")


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
    width = settings.width if settings.strategy == "beam" else 1
    for number in range(1, settings.max_rounds + 1):
        going = [one for one in searches if one.going]
        if not going:
            break
        # a problem's paths take turns with its n samples
        shares = [[one.going[i % len(one.going)] for i in range(settings.n)] for one in going]
        keys = [f"{settings.seed}/{one.name()}/{number}/{i}" for one in going for i in range(settings.n)]
        prompts = [
            safe_prompt(policy, one.problem.problem, one.paths[place].steps)
            for one, share in zip(going, shares, strict=True)
            for place in share
        ]
        drawn = iter(policy.sample(prompts, keys, sampling))
        found: list[tuple[_Open, int, Counter[_Candidate]]] = []
        for one, share in zip(going, shares, strict=True):
            mine = [(place, next(drawn)) for place in share]
            for place in one.going:
                texts = [completion for owner, completion in mine if owner == place]
                found.append((one, place, _candidates(texts, one.paths[place].steps, preset)))
        scored = score([_round(one, place, number, candidates) for one, place, candidates in found])
        last = number == settings.max_rounds
        grown: dict[str, list[_Path]] = {}
        for (one, place, candidates), marks in zip(found, scored, strict=True):
            grown.setdefault(one.name(), []).extend(
                _advanced(one.paths[place], number, list(candidates), marks, preset, last, width)
            )
        for one in going:
            paths = [path for path in one.paths if path.finished] + grown[one.name()]
            one.paths = sorted(paths, key=lambda path: -path.reward)[:width]  # stable: the first of equals
            one.rounds = number
    return [_row(one, preset) for one in searches]


def _round(one: _Open, place: int, number: int, candidates: Counter[_Candidate]) -> Round:
    return Round(
        one.name(place),
        number,
        one.problem.problem,
        one.paths[place].steps,
        tuple(candidate.step for candidate in candidates),
        tuple(candidates.values()),
    )


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


def _advanced(
    path: _Path,
    number: int,
    found: list[_Candidate],
    marks: Sequence[Scored],
    preset: Preset,
    last: bool,
    width: int,
) -> list[_Path]:
    """The path with each of its ``width`` best candidates that no first-pass label rejects; the first of equals.

    Without one the path stays as it is, a round older.
    """
    waited = path.waited + 1
    pairs = list(zip(found, marks, strict=True))
    clean = [pair for pair in pairs if not pair[1].rejected]
    if not clean and preset == "repaired" and (last or waited >= _PATIENCE):
        clean = pairs
    shown = clean if preset == "official" else pairs
    entry = {
        "iteration_index": number,
        "candidates_info": [
            {"candidate_step": candidate.published, "reward": mark.reward}
            | ({"rejected": True} if mark.rejected else {})
            for candidate, mark in shown
        ],
        "chosen_step_index": None,
        "chosen_step": None,
    }
    best = sorted(clean, key=lambda pair: -pair[1].reward)[:width]
    if not best:  # the published history leaves such rounds out
        return [replace(path, history=path.history if preset == "official" else (*path.history, entry), waited=waited)]
    return [
        _Path(
            (*path.steps, candidate.step),
            (
                *path.history,
                entry | {"chosen_step_index": shown.index((candidate, mark)), "chosen_step": candidate.published},
            ),
            mark.reward,
            candidate.finished,
        )
        for candidate, mark in best
    ]


def _row(one: _Open, preset: Preset) -> dict[str, Any]:
    """The best path's row: a finished one where there is one (``paths`` stand in the order of their rewards)."""
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


def journal(
    stage: str, identity: dict[str, Any], problems: Sequence[SearchProblem], models: Sequence[Path], work: str = ""
) -> Path:
    """The folder where a run of ``stage`` keeps the chunks of its ``work`` (default: the stage's name).

    The folder's name is a digest of everything that determines the chunks, the stage's code included.
    """
    content = {
        "identity": identity,
        "problems": [[p.set, p.id, p.problem, p.key] for p in problems],
        "models": [
            {str(file.relative_to(model)): sha256_file(file) for file in sorted(model.rglob("*")) if file.is_file()}
            for model in models
        ],
        "code": code_digest(stage),
    }
    return STATE / (work or stage) / digest_of(content)[:32]


def in_chunks(
    problems: Sequence[T],
    size: int,
    folder: Path,
    work: Callable[[Sequence[T]], list[dict[str, Any]]],
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
