"""PathFinder-PRM as an object: load it once, score solutions, get typed results. ``docs/library.md`` has examples."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self

import torch

from ground.io import DataError
from pathfinder.baselines.named import named
from pathfinder.baselines.opening import method_of
from pathfinder.core.layouts import unless_blank
from pathfinder.core.steps import PRM as Scores
from pathfinder.core.steps import Solution
from pathfinder.prm.opening import CHECKPOINTS
from pathfinder.prm.results import ScoredSolution, UnscoredSolution, scored_part, scored_solution
from pathfinder.prm.scoring import Scorer
from pathfinder.sources.named_models import published_name
from pathfinder.tree.passes import Mode


class PRM:
    """A PathFinder-PRM in this process (``load``), or any PRM that ``open_prm`` opened; it returns typed results."""

    def __init__(self, scorer: Scores) -> None:
        self._scorer = scorer

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        revision: str | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] | torch.dtype = "auto",
        device: Literal["auto", "cpu", "cuda"] | str = "auto",
        mode: Literal["both", "pass1", "positive", "all"] = "both",
        preset: Literal["default", "official-processbench", "official-prmbench", "official-search"] = "default",
    ) -> Self:
        """Load a model folder or a repository of the Hub.

        A line on standard error warns if nothing marks the folder as a PathFinder-PRM.

        Args:
            model: a folder that ``train`` wrote, any folder in the form of the published checkpoint, a
                checkpoint of TRL's PRMTrainer, or ``owner/name``.
            revision: a commit, branch or tag of the repository; the authors' checkpoint has a pinned default.
            dtype: "auto" is the precision of the files; else a name, or PyTorch's ``torch.bfloat16``.
            device: "auto" is the GPU, if there is one. Other names are PyTorch's, such as "cuda:1".
            mode: "both" reads the labels and then the reward (paper, algorithm 1); ``pathfinder score --help`` explains
                the others.
            preset: the training prompt, or the prompt of a published runner.

        Raises:
            DataError: the model does not exist, is broken or is not a PathFinder-PRM; an option is unknown, or PyTorch
                cannot use the device.
            TransientError: the Hub cannot be reached.
        """
        if (system := published_name(model)) is not None and system not in CHECKPOINTS:
            raise DataError(f"{model} is {system}, not a PathFinder-PRM; use `pathfinder score FILE --model {model}`")
        if mode not in list(Mode):
            raise DataError(f"unknown mode {mode!r}; expected one of {', '.join(Mode)}")
        where = None if device == "auto" else _usable(device)
        found = named(model, revision, str(dtype).removeprefix("torch."))
        scorer: Scores
        if (method := method_of(found.system, Mode(mode))) is None:
            scorer = Scorer(found.model, preset, found.dtype, mode=Mode(mode), where=where)
        else:
            from pathfinder.baselines.scorer import BaselineScorer  # its models take seconds to import

            scorer = BaselineScorer(found.model, method, found.dtype, where=where)
        found.warn()
        return cls(scorer)

    def score(self, problem: str, steps: Iterable[str]) -> ScoredSolution | UnscoredSolution:
        """Score every step of one solution. Raises ``DataError`` if there is no step.

        A solution without text or longer than the model's context is an ``UnscoredSolution``: its ``scored`` is False,
        and asking for its steps, rewards or first error raises ``DataError``.
        """
        return self.score_many([(problem, steps)])[0]

    def score_many(self, solutions: Iterable[tuple[str, Iterable[str]]]) -> list[ScoredSolution | UnscoredSolution]:
        """Score pairs of problem and steps, in their order. Solutions of the same problem share its computation.

        A solution without text or too long is an ``UnscoredSolution``. Raises ``DataError``, which counts from 0, for
        an item that is not a pair, and for a solution without steps or with steps that are not texts.
        """
        given = [_solution(number, pair) for number, pair in enumerate(solutions)]
        scores = zip(given, scored_part(self._scorer, given), strict=True)
        return [scored_solution(one, found, self._scorer.known.unlike(one)) for one, found in scores]


def _usable(device: str) -> str:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        found = str(error).partition("\n")[0]
        raise DataError(
            f"device {device!r} cannot be used: {found}; use 'cpu', or 'auto' for a GPU if there is one"
        ) from error
    return device


def _solution(number: int, pair: tuple[str, Iterable[str]]) -> Solution:
    problem, steps = pair if isinstance(pair, tuple | list) and len(pair) == 2 else ("", "")
    texts = tuple(steps) if isinstance(steps, Iterable) and not isinstance(steps, str) else ()
    if not texts or not all(isinstance(text, str) for text in (problem, *texts)):
        raise DataError(f"solution {number}: expected a problem and a list of steps, at least one, all of them texts")
    return Solution(str(number), problem, unless_blank(texts))
