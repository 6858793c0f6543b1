"""What scores steps, and how stages open it: a model in this process, or one behind a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pathfinder.core.params import Score
from pathfinder.prm.scoring import Candidates, Scorer, Solution, StepScore

if TYPE_CHECKING:
    from pathfinder.prm.served_scoring import ServedScorer


class RoundScorer(Protocol):
    """Candidates of a search's open problems, round after round."""

    def score(self, rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore]]:
        """Scores of every problem's candidates, by key."""
        ...


class PRM(Protocol):
    """What scores steps: a model in this process, or one behind a server; ours, or other people's."""

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        """Scores of every step of every solution; ``on_done`` hears how many more solutions are finished."""
        ...

    def rounds(self) -> RoundScorer:
        """A search's scorer of candidates over the same model."""
        ...


@contextmanager
def open_scorer(folder: Path, settings: Score) -> Iterator[Scorer | ServedScorer]:
    """The scorer that the parameters name, over the PRM in ``folder``; a server that was started is ended with it."""
    if settings.engine == "local":
        yield Scorer(folder, settings.preset, settings.dtype, settings.token_budget)
        return
    from pathfinder.prm.served_scoring import serve  # its client takes a second to load, which most runs do not need

    with serve(folder, settings) as scorer:
        yield scorer
