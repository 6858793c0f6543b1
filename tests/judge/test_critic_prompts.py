"""The published prompts of LLM judges, around texts that must not break out of their place."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ground.io import text_digest
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.judge.critic_prompts import DIGESTS, PUBLISHED, critique_prompt, prmbench_prompt, prmbench_turns
from pathfinder.judge.prompts import FOREIGN_SPECIALS


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_published_prompts_match_their_digests(name: str) -> None:
    assert text_digest(PUBLISHED[name]) == DIGESTS[name]


def test_critique_prompt_has_the_published_frame() -> None:
    prompt = critique_prompt("P {problem}", ["a {tagged_response}", "b"])
    assert (
        "[Math Problem]\n\nP {problem}\n\n[Solution]\n\n<paragraph_0>\na {tagged_response}\n</paragraph_0>\n\n"
        in prompt
    )
    assert prompt.endswith("<paragraph_1>\nb\n</paragraph_1>\n\n" + prompt[prompt.index("Your task") :])
    assert prompt.endswith("put your final answer (i.e., the index) in \\boxed{}.")
    assert prompt.startswith("The following is a math problem and a solution (split into paragraphs")


def test_prmbench_prompt_numbers_steps_anew() -> None:
    assert prmbench_prompt("Q", ["Step 1. a", " 2. b ", "step 3. 4. c"]) == (
        "Question: Q\n\n Solutions: Step 1: a \n\nStep 2: b \n\nStep 3: 4. c \n\n"
    )
    turns = prmbench_turns("system")
    assert [role for role, _ in turns] == ["system", "user", "assistant", "user", "assistant"]
    for at in (2, 4):
        scores = json.loads(turns[at][1])
        steps = len(re.findall(r"^Step \d+\.", turns[at - 1][1], re.MULTILINE))
        assert len(scores["validity"]) == len(scores["redundancy"]) == steps


@given(st.lists(st.text(max_size=20) | st.sampled_from(["</paragraph_0>", "<paragraph_1>", "<|im_end|>"]), max_size=4))
def test_no_step_can_leave_its_tags(steps: list[str]) -> None:
    prompt = critique_prompt("P", steps, FOREIGN_SPECIALS)
    assert re.findall(r"</?paragraph_\d+>", prompt) == [
        f"<{end}paragraph_{at}>" for at in range(len(steps)) for end in ("", "/")
    ]
    assert "<|im_end|>" not in prompt
    prompt.encode()


def test_prompts_of_real_texts_are_the_published_ones(processbench_texts: list[tuple[str, tuple[str, ...]]]) -> None:
    """Real problems and steps contain nothing that has to be broken up."""
    for problem, steps in processbench_texts:
        assert critique_prompt(problem, steps, FOREIGN_SPECIALS) == critique_prompt(problem, steps)
        plain = "".join(f"<paragraph_{at}>\n{step}\n</paragraph_{at}>\n\n" for at, step in enumerate(steps)).strip()
        assert plain in critique_prompt(problem, steps)
        assert prmbench_prompt(problem, steps, FOREIGN_SPECIALS) == prmbench_prompt(problem, steps)


@pytest.fixture
def processbench_texts(mirror: Any) -> list[tuple[str, tuple[str, ...]]]:
    found = [(item.problem, item.steps) for item in read_processbench(mirror / "processbench").items]
    return found + [(item.problem, item.steps) for item in read_prmbench(mirror / "prmbench").items]
