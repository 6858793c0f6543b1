"""Settings for drawing text from a language model, and the result of a call, in process or from a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Turns = Sequence[tuple[str, str]]
"""The role and text of each turn."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings for drawing and ending a completion.

    ``temperature`` 0 takes the most probable token. ``include_stop`` keeps the stop string in the text.
    """

    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...] = ()
    include_stop: bool = False


@dataclass(frozen=True, slots=True)
class ServerSampling(Sampling):
    """Settings for a server; ``max_tokens`` 0 leaves the limit to the server.

    ``reasoning`` marks OpenAI's reasoning models, which accept no sampling settings and name the limit differently.
    """

    top_k: int = 0
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """A sampled text without special tokens. ``tokens`` counts every sampled token, including the end token.

    ``finish`` is "stop" at an end token or a stop string, and "length" if ``max_tokens`` cut the text. It is
    "too_long", with an empty text, if the prompt leaves no room for ``max_tokens`` in the model's context.
    """

    text: str
    tokens: int
    finish: Literal["stop", "length", "too_long"]


@dataclass(frozen=True, slots=True)
class Reply(Completion):
    """The completion of a call that also counts the tokens of its prompt; a server names its ``response``."""

    prompt_tokens: int = 0
    response: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason that a call returned no text."""

    outcome: Literal["too_long", "refused", "engine_error"]
    message: str
