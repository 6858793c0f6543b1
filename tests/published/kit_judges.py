"""The requests of the PRMBench kit's files for chat models, with made answers in place of a model's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from tests.published.kit_models import KIT, kit_imports, sent
from tests.published.sources import Source

OPENAI, VLLM = "mr_eval/models/openai_models.py", "mr_eval/models/vllm_models.py"
SOLUTIONS = (
    ("How many?", ("Step 1. add", "2. take", "Step 3: give", "plain")),
    ("", ("",)),
    ("Lines\n", (" \n one\n\ntwo ", "step 2.", "3.5 apples", "Solution: x", '{"validity": [1]}')),
)
GOOD = {"validity": [1, -0.5, 0, 0.2], "redundancy": [-1.0, 0.5, 0, 1]}
ANSWERS = (
    json.dumps(GOOD),
    f"```json\n{json.dumps(GOOD, indent=2)}\n```\nThat is all.",
    '{"validity": [1, 1, 1, 1], // all\n "redundancy": [-1, -1, # none\n -1, -1]}',
    '{"validity": [1], "redundancy": [1, 1, 1, 1]}',
    '{"validity": [1, 1, 1, 1, 1, 1], "redundancy": []}',
    '{"validity": [], "redundancy": []}',
    '{"validity": [2, -7, 1e3, 0.0], "redundancy": [0, 0, -0.0, 9]}',
    '{"validity": [true, false, 1, 0], "redundancy": [false, true, 0, 1]}',
    '{"validity": ["1", 1, 1, 1], "redundancy": [1, 1, 1, 1]}',
    '{"validity": [null, 1, 1, 1], "redundancy": [1, 1, 1, 1]}',
    '{"validity": [1, 1, 1, 1], "redundancy": [[1], 1, 1, 1]}',
    '{"validity": null, "redundancy": [1]}',
    '{"validity": 1, "redundancy": 1}',
    '{"validity": "", "redundancy": ""}',
    '{"validity": "1111", "redundancy": [1, 1, 1, 1]}',
    '{"validity": {}, "redundancy": {}}',
    '{"validity": {"1": 1}, "redundancy": [1]}',
    '{"validity": [1, 1, 1, 1]}',
    '{"a": 1} ' + json.dumps(GOOD),
    "{not json} " + json.dumps(GOOD),
    "{" + json.dumps(GOOD) + "}",
    "} " + json.dumps(GOOD),
    "{ " + json.dumps(GOOD),
    json.dumps(GOOD) + ' {"validity": [-1, -1, -1, -1], "redundancy": [1, 1, 1, 1]}',
    json.dumps({"scores": GOOD}),
    json.dumps(GOOD | {"note": "a } in a text"}),
    json.dumps(GOOD | {"note": "a # in a text"}),
    json.dumps(GOOD | {"note": "see https://example.org"}),
    "<think>{}</think> " + json.dumps(GOOD),
    "<think>\\boxed{4}</think> " + json.dumps(GOOD),
    json.dumps(GOOD)[:-1],
    json.dumps([GOOD]),
    "No step is wrong.",
    "",
)


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The turns of a request, and what each of two files stores for an answer."""
    kit = sources[KIT]
    with kit_imports(kit, vllm={"LLM": _Model, "SamplingParams": SimpleNamespace}):
        data = kit.package("", "mr_eval.tasks.base_dataset.base_evaluation_dataset")
        hosted = kit.package("", "mr_eval.models.openai_models").OpenaiModels
        served = kit.package("", "mr_eval.models.vllm_models").VllmModels()

    def asked(given: dict[str, Any]) -> dict[str, Any]:
        model = hosted(given["model"], api_key="none")
        model.client = _Model(answer=json.dumps(GOOD))
        sent(data, model, given)
        *before, (_, last) = turns = [(turn["role"], turn["content"]) for turn in model.client.asked]
        digests = [sha256(text.encode()).hexdigest()[:16] for _, text in before]
        return {"roles": [role for role, _ in turns], "digests": digests, "last": last}

    def stored(model: Any, answer: str) -> Any:
        model.client = model.model = _Model(answer=answer)
        found = sent(data, model, {"problem": "How many?", "steps": list("abcd")})
        return {key: found[key] for key in ("validity", "scores") if key in found}

    inputs = [
        {"model": model, "problem": problem, "steps": list(steps)}
        for model in ("gpt-4o", "o1-mini")
        for problem, steps in SOLUTIONS
    ]
    hosted_judge = hosted(api_key="none", retry_interval=0)
    return [
        kit.recorded(OPENAI, "OpenaiModels.getitem_function", asked, inputs),
        kit.recorded(OPENAI, "OpenaiModels.respond", partial(stored, hosted_judge), ANSWERS),
        kit.recorded(VLLM, "VllmModels.respond", partial(stored, served), ANSWERS),
    ]


class _Model:
    """A chat model, as a client of openai and as vLLM's, that gives one answer and keeps what it was asked."""

    def __init__(self, answer: str = "", **_: Any) -> None:
        self.answer = answer
        self.asked: list[dict[str, str]] = []
        self.chat = self.completions = self

    def create(self, messages: list[dict[str, str]], **_: Any) -> Any:
        """The answer of a server."""
        self.asked = messages
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=self.answer))])

    def __call__(self, messages: list[list[dict[str, str]]], **_: Any) -> Any:
        """The answers of vLLM."""
        return [SimpleNamespace(outputs=[SimpleNamespace(text=self.answer)]) for _ in messages]
