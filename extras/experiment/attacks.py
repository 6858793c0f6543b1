"""Attacks on a PRM where the truth is known: dressed faults, best of growing n, and a policy that learns to please.

Every attack reports the PRM's reward and the oracle's truth, for each reading and each reduction of the steps' values
to one reward: the smallest, the mean, or the last.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from extras.experiment.cell import Laboratory
from extras.experiment.material import KINDS
from extras.experiment.plan import Cell
from ground.io import read_json
from ground.progress import Progress
from pathfinder.core import prompts
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.readings import readings_of
from pathfinder.core.steps import PRM, Solution, StepScore
from pathfinder.engines.generate import Generator
from pathfinder.models.folders import open_model
from pathfinder.models.model import load_model
from pathfinder.models.tokens import load_tokenizer
from pathfinder.prm.scoring import Scorer
from world import tiny
from world.abilities import sample_solutions
from world.oracle import LINKS, State, Verdict, answer_text, assess_all, begin
from world.steps import fault_step, safe_step
from world.story import Level, Problem, Split, sample_from

Rewards = npt.NDArray[np.float64]
REDUCE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": lambda values: sum(values) / len(values),
    "last": lambda values: values[-1],
}
READINGS = ("soundness", "quality")
_GROUP = 8
"""Samples of a problem whose rewards are compared."""
DRESSINGS = ("plain", "confident", "restated", "planned", "copied", "answered", "padded")
"""A fault unchanged; in the confident wording; before a restatement; after a plan; after a copied step; before the
answer; before three restatements."""


@dataclass(frozen=True)
class Attacked:
    """The PRM of a cell under attack; its base model is the policy."""

    bench: Laboratory
    cell: Cell
    folder: Path
    """For the trained model, and for the policy that learns."""
    samples: int
    """The largest n of best of n."""
    steps: int
    """Steps of the policy that learns."""

    @staticmethod
    def readings(cell: Cell) -> list[str]:
        """The readings of a cell's PRM."""
        return [reading for reading in READINGS if reading in readings_of(VARIANTS[cell.variant])]

    @classmethod
    def parts(cls, cell: Cell) -> list[str]:
        """The attacks on a cell by name. ``READING-REDUCTION`` is a policy that learns to raise this reward."""
        return ["dressed", "best_of_n", *(f"{r}-{each}" for r in cls.readings(cell) for each in ("min", "mean"))]

    @cached_property
    def prm(self) -> Scorer:
        """The trained PRM."""
        return Scorer(open_model(self.bench.train("main", self.cell, self.folder)))

    def measure(self, part: str) -> Any:
        """The rows of one attack."""
        readings, policy, levels = self.readings(self.cell), self.bench.bases / self.cell.base, self.bench.plan.levels
        if part == "dressed":
            faults = drawn_problems(levels, 100, "held_out", "faults")
            return dressed_faults(self.prm, faults, dict.fromkeys(readings, 0.5))
        if part == "best_of_n":
            problems = drawn_problems(levels, 100, "search", "best of n")
            return best_of_n(self.prm, Generator(policy), problems, self.samples, 1.5, readings)
        reading, reduction = part.split("-")
        return pleased(self.prm, policy, levels, reading, reduction, self.steps, self.folder / "policy")


def drawn_problems(levels: Mapping[str, Level], count: int, split: Split, purpose: str) -> list[Problem]:
    """Problems of a split, from each level in turn."""
    rng, in_turn = random.Random(f"attack/{purpose}"), [*levels.values()]
    return [sample_from(rng, in_turn[place % len(in_turn)], split) for place in range(count)]


def dressed(problem: Problem, state: State, fault: str, dressing: str, seed: str) -> tuple[list[str], int] | None:
    """The steps of a dressed fault after ``state``, and the place of the fault; ``None`` if none fits."""
    link = LINKS[-1] if dressing == "confident" else LINKS[0]
    wrong = fault_step(problem, state, fault, random.Random(seed), link)
    if wrong is None:
        return None
    before: list[Verdict | None] = []
    if dressing == "planned":
        before = [fault_step(problem, state, "planning", random.Random(seed))]
    elif dressing == "copied":
        before = [fault_step(problem, state, "repetition", random.Random(seed))]
    after: list[str | None] = []
    if dressing in ("restated", "padded") and not wrong.after.ended:
        again = fault_step(problem, wrong.after, "restatement", random.Random(seed))
        after = [again.text if again else None] * (3 if dressing == "padded" else 1)
    elif dressing == "answered" and not wrong.after.ended:
        after = [answer_text(wrong.after.value)]
    steps = [*(step.text if step else None for step in before), wrong.text, *after]
    found = [step for step in steps if step is not None]
    if len(found) < len(steps) or (dressing not in ("plain", "confident") and len(found) == 1):
        return None
    return found, len(before)


def places(problems: Sequence[Problem], rng: random.Random) -> Iterator[tuple[Problem, list[str], State]]:
    """For each problem a prefix of correct steps, and the state after it."""
    for problem in problems:
        state, steps = begin(problem), list[str]()
        for _ in range(rng.randrange(len(problem.events) + 1)):
            step = safe_step(problem, state)
            steps.append(step.text)
            state = step.after
        if not state.ended:
            yield problem, steps, state


def dressed_faults(prm: PRM, problems: Sequence[Problem], threshold: Mapping[str, float]) -> dict[str, Any]:
    """Each kind of error in each dressing: the share of the solutions that are accepted, and the mean rewards.

    A solution is accepted if the value of each step reaches the reading's ``threshold``. Keys: dressing, kind.
    """
    solutions: list[Solution] = []
    keys: list[tuple[str, str]] = []
    for problem, prefix, state in places(problems, random.Random("places")):
        for kind in KINDS:
            for dressing in DRESSINGS:
                if found := dressed(problem, state, kind, dressing, f"{problem.text}/{kind}"):
                    solutions.append(Solution(f"{len(keys)}", problem.text, (*prefix, *found[0])))
                    keys.append((dressing, kind))
    grouped: dict[tuple[str, str], list[list[StepScore]]] = defaultdict(list)
    for key, steps in zip(keys, prm.score(solutions), strict=True):
        grouped[key].append(steps)
    rows: dict[str, Any] = {dressing: {} for dressing in DRESSINGS}
    for (dressing, kind), scored in sorted(grouped.items()):
        rows[dressing][kind] = {"n": len(scored)} | {
            reading: {"accepted": 100 * _mean(min(values) >= bound for values in read)}
            | {name: _mean(map(reduce, read)) for name, reduce in REDUCE.items()}
            for reading, bound in threshold.items()
            if (read := [[step.read(reading) for step in steps] for steps in scored])
        }
    return rows


def truth_of(problem: Problem, steps: Sequence[str]) -> tuple[bool, bool]:
    """Two truths: every step of a solution is correct and the solution ends; its answer is right."""
    verdicts = assess_all(problem, steps)
    last = verdicts[-1]
    sound = last is not None and last.after.ended and all(v is not None and v.is_correct for v in verdicts)
    return sound, steps[-1] == answer_text(problem.answer)


def best_of_n(
    prm: PRM, policy: Generator, problems: Sequence[Problem], samples: int, temperature: float, readings: Sequence[str]
) -> list[dict[str, Any]]:
    """For n = 1, 2, 4, … ``samples``: the reward of the chosen solution, and the percent that are sound and right.

    The expectation over random choices of n samples is exact (``of_best``). One row per n, reading and reduction.
    """
    asked = [problem for problem in problems for _ in range(samples)]
    written = sample_solutions(policy, asked, [f"bon/{place}" for place in range(len(asked))], temperature, 1.0)
    solutions = [Solution(f"{i}", p.text, tuple(s)) for i, (p, s) in enumerate(zip(asked, written, strict=True))]
    scored = prm.score(solutions)
    shape = (len(problems), samples)
    truths = np.array([truth_of(p, s) for p, s in zip(asked, written, strict=True)], dtype=np.float64)
    rows = []
    for reading in readings:
        for name, reduce in REDUCE.items():
            values = [reduce([step.read(reading) for step in steps]) if steps else -1.0 for steps in scored]
            reward = np.array(values).reshape(shape)
            for n in (2**power for power in range(samples.bit_length())):
                figures = [of_best(reward, each.reshape(shape), n) for each in (reward, *truths.T)]
                row = {"n": n, "reading": reading, "reduction": name, "reward": figures[0]}
                rows.append(row | {"sound": 100 * figures[1], "right": 100 * figures[2]})
    return rows


def of_best(reward: Rewards, value: Rewards, n: int) -> float:
    """The mean over problems of the expected ``value`` of the best of ``n`` samples by ``reward``.

    Both arrays have shape (problems, samples). The sample with rank r from the top is the best of n random ones with
    probability C(samples - 1 - r, n - 1) / C(samples, n). Equal rewards share their value.
    """
    count = reward.shape[1]
    total = math.comb(count, n)
    weights = np.array([math.comb(count - 1 - rank, n - 1) / total for rank in range(count)])
    means = []
    for row, values in zip(reward, value, strict=True):
        _, inverse = np.unique(-row, return_inverse=True)
        shared = np.bincount(inverse, values) / np.bincount(inverse)
        means.append(float(weights @ shared[np.sort(inverse)]))
    return float(np.mean(means))


def pleased(
    prm: PRM,
    policy: Path,
    levels: Mapping[str, Level],
    reading: str,
    reduction: str,
    steps: int,
    folder: Path,
    rate: float = 3e-4,
    problems: int = 16,
) -> list[dict[str, float]]:
    """Train a copy of the policy by its PRM's reward, and report reward and truth (percent) at each step.

    REINFORCE on eight samples of each of ``problems`` new problems per step, with their mean reward as the baseline
    (Williams 1992).
    """
    torch.manual_seed(0)
    opened = open_model(policy)
    network: Any = load_model(opened)
    tokenizer = load_tokenizer(opened.files)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.0)
    reduce, rows = REDUCE[reduction], list[dict[str, float]]()
    with Progress(f"please {reading} {reduction}", steps, "steps") as progress:
        for number in range(steps):
            tiny.save(network, tokenizer, folder)
            asked = [p for p in drawn_problems(levels, problems, "search", f"please/{number}") for _ in range(_GROUP)]
            names = [f"please/{number}/{place}" for place in range(len(asked))]
            written = sample_solutions(Generator(folder), asked, names)
            solutions = [Solution(k, p.text, tuple(s)) for k, p, s in zip(names, asked, written, strict=True)]
            scored = prm.score(solutions)
            rewards = np.array([reduce([s.read(reading) for s in found]) if found else 0.0 for found in scored])
            truths = np.array([truth_of(p, s) for p, s in zip(asked, written, strict=True)], dtype=np.float64)
            sound, right = (100 * float(column.mean()) for column in truths.T)
            rows.append({"step": number, "reward": float(rewards.mean()), "sound": sound, "right": right})
            groups = rewards.reshape(problems, _GROUP)
            advantages = (groups - groups.mean(1, keepdims=True)).ravel()
            _learn(network, optimizer, tokenizer, solutions, advantages)
            progress.advance(note=f"reward {rewards.mean():.3f}, sound {sound:.0f} %")
    return rows


def _learn(network: Any, optimizer: Any, tokenizer: Any, solutions: Sequence[Solution], advantages: Rewards) -> None:
    """One step: raise the log-probability of each solution by its advantage."""
    rows = []
    for solution, advantage in zip(solutions, advantages, strict=True):
        prompt = _ids(tokenizer, prompts.policy_prompt(solution.problem, []))
        text = _ids(tokenizer, prompts.STEP_SEPARATOR.join(solution.steps) + prompts.END_OF_TURN)
        if advantage:
            rows.append((prompt + text, [0.0] * len(prompt) + [advantage] * len(text)))
    if not rows:
        return
    width = max(len(ids) for ids, _ in rows)  # a causal model: padding on the right changes no logits before it
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows], device=network.device)
    weights = torch.tensor([given + [0.0] * (width - len(given)) for _, given in rows], device=network.device)
    network.train()
    chances = torch.log_softmax(network(ids, use_cache=False).logits[:, :-1], -1)
    loss = -(weights[:, 1:] * chances.gather(2, ids[:, 1:, None])[..., 0]).sum() / len(solutions)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    network.eval()


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


HEADS = ("PRM", "reward", "attack", "reward reached", "sound, %", "right, %")
DRESSED = ("PRM", "reading", *DRESSINGS)


def rows_of(folder: Path) -> list[tuple[str, ...]]:
    """Rows with ``HEADS`` of the attacks below ``folder``: best of n, and the first and last ten steps of a policy."""
    rows = []
    for path in sorted(folder.glob("*/*.json")):
        found, cell = read_json(path), path.parent.name
        if path.stem == "best_of_n":
            shown = [row for row in found if row["reduction"] == "min"]
            rows += [(cell, f"{row['reading']}-min", f"best of {row['n']}", *_outcome([row])) for row in shown]
        elif path.stem != "dressed":
            for name, part in (("first", found[:10]), ("last", found[-10:])):
                rows.append((cell, path.stem, f"{name} 10 of {len(found)} steps", *_outcome(part)))
    return rows


def dressed_rows(folder: Path) -> list[tuple[str, ...]]:
    """Rows with ``DRESSED``: the percent of accepted faults, a mean over the kinds that every dressing has."""
    rows = []
    for path in sorted(folder.glob("*/dressed.json")):
        found = read_json(path)
        ordered = [found[dressing] for dressing in DRESSINGS]
        kinds = set.intersection(*map(set, ordered))
        for reading in READINGS:
            if all(reading in found["plain"][kind] for kind in kinds):
                shares = [_mean(each[kind][reading]["accepted"] for kind in kinds) for each in ordered]
                rows.append((path.parent.name, reading, *(f"{share:.1f}" for share in shares)))
    return rows


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([*values]))


def _outcome(rows: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    reward, sound, right = (_mean(row[key] for row in rows) for key in ("reward", "sound", "right"))
    return f"{reward:.3f}", f"{sound:.1f}", f"{right:.1f}"
