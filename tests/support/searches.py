"""A scripted policy, a scorer with a table of rewards, and searches with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, cast

from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.core.params import Search
from pathfinder.core.steps import Candidates, StepScore
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.policy.search import search

SERVER = {
    "command": ["no-such-vllm"],
    "replicas": 1,
    "dtype": "float32",
    "tensor_parallel": 1,
    "gpu_memory_utilization": 0.5,
    "max_num_batched_tokens": 4096,
    "max_num_seqs": 64,
    "options": [],
    "start_timeout_s": 20.0,
}
END = "The answer is \\boxed{7}."


class Script:
    """A policy: ``say(problem id, round, draw)`` returns a text and how it ended ("stop" or "length")."""

    specials: Collection[str] = ("<|im_end|>", "<+>")

    def __init__(self, say: Callable[[str, int, int], tuple[str, str]]) -> None:
        self.say = say
        self.calls: list[int] = []
        self.prompts: list[str] = []

    def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
        self.calls.append(len(prompts))
        self.prompts += prompts
        assert sampling.include_stop
        out = []
        for key in keys:
            _, _, name, number, draw = key.split("/")
            text, finish = self.say(name, int(number), int(draw))
            out.append(Completion(text, len(text), cast(Literal["stop", "length", "too_long"], finish)))
        return out


class Table:
    """A scorer: a reward per step; a negative one rejects."""

    def __init__(self, rewards: dict[str, float]) -> None:
        self.rewards = rewards
        self.calls: list[Mapping[str, Candidates]] = []

    def __call__(self, rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore]]:
        self.calls.append(rounds)
        return {name: [labelled(self.rewards[step]) for step in one.steps] for name, one in rounds.items()}


def labelled(reward: float) -> StepScore:
    """A score whose only label is the sign of ``reward``."""
    return StepScore({"math": float(reward >= 0)}, abs(reward))


def settings(**changes: Any) -> Search:
    values: dict[str, Any] = {
        "preset": "default",
        "engine": "transformers",
        "base_url": "",
        "vllm": SERVER,
        "shared_card": False,
        "sets": ["math"],
        "strategy": "greedy",
        "width": 2,
        "n": 4,
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": 64,
        "max_rounds": 5,
        "solution_tokens": 256,
        "limit": 0,
        "batch_size": 8,
        "seed": 42,
    }
    return Search.model_validate(values | changes)


def problem(name: str = "0", text: str = "what is 3 + 4?") -> SearchProblem:
    return SearchProblem("math", name, text, "7")


def run(policy: Script, rewards: dict[str, float], preset: GradingPreset, **changes: Any) -> dict[str, Any]:
    return search([problem()], policy, Table(rewards), settings(**changes), preset)[0]
