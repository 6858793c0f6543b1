"""The bodies of requests and answers of ``/v1/score``; their fields are the page's and ``docs/commands.md``'s."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

MOST_STEPS = 1024
LIMITS = f"give a problem and 1 to {MOST_STEPS} steps"

Step = Annotated[str, StringConstraints(min_length=1)]


class SolutionIn(BaseModel):
    """A problem and the steps of one solution."""

    problem: str
    steps: Annotated[list[Step], Field(min_length=1, max_length=MOST_STEPS)]


class ScoreRequest(BaseModel):
    """Solutions to score together."""

    solutions: Annotated[list[SolutionIn], Field(min_length=1, max_length=MOST_STEPS)]


class StepOut(BaseModel):
    """Probabilities that there is no error of each kind, and that the step is correct; higher is better."""

    math: float | None
    consistency: float | None
    reward: float | None
    soundness: Annotated[float | None, Field(description="The probability of no error")]
    quality: Annotated[float | None, Field(description="The probability of no error in a useful step")]
    optimality: Annotated[float | None, Field(description="Usefulness, for a step without a predicted error")]
    probabilities: Annotated[dict[str, float], Field(description="By label: the probability of no such error")]
    errors: Annotated[list[str], Field(description="Labels whose probability is below one half")]
    correct: bool


class ScoredOut(BaseModel):
    """The scores of a solution's steps."""

    scored: Literal[True]
    steps: list[StepOut]
    first_error: Annotated[int | None, Field(description="Index of the first incorrect step, from 0; null: none is")]
    unlike: Annotated[list[str], Field(description="Differences from all that a small model learnt from")]


class UnscoredOut(BaseModel):
    """A solution without scores, and the reason in words."""

    scored: Literal[False]
    reason: str


class ScoreResponse(BaseModel):
    """The scored solutions, in the order of the request."""

    model: str
    solutions: list[ScoredOut | UnscoredOut]
