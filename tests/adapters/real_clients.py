"""One run of a library with our adapter: ``python -m tests.adapters.real_clients NAME FOLDER``.

``FOLDER`` has the library and what it needs; the packages of this environment come first. Prints one JSON value.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from pathfinder.adapters import inspect_ai, its_hub, trl
from pathfinder.demo import MODEL
from pathfinder.pages.picture import EXAMPLE_PROBLEM, EXAMPLE_STEPS

TEXT = "\n\n".join(EXAMPLE_STEPS)


def run_inspect_ai(folder: str) -> Any:
    """The scores of a task with an answer and with an empty one."""
    library, data, model, solver = (
        importlib.import_module(name)
        for name in ("inspect_ai", "inspect_ai.dataset", "inspect_ai.model", "inspect_ai.solver")
    )

    def told() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            state.output = model.ModelOutput.from_content("mockllm/model", TEXT if state.sample_id == "a" else "")
            return state

        return solve

    samples = [data.Sample(id=name, input=EXAMPLE_PROBLEM, target="7") for name in ("a", "none")]
    scorer = inspect_ai.step_reward(model=str(MODEL))
    task = library.Task(data.MemoryDataset(samples), solver=solver.solver(told)(), scorer=scorer)
    (log,) = library.eval(task, model="mockllm/model", log_dir=folder, display="none")
    return {sample.id: sample.scores["step_reward"].value for sample in log.samples}


def run_its_hub(folder: str) -> Any:
    """The score that beam search gives to the answer."""
    search = importlib.import_module("its_hub.core.algorithms.beam_search")
    steps = importlib.import_module("its_hub.core.lms.step_generation")

    class Told:
        """A language model that gives the steps of the example in turn."""

        def __init__(self) -> None:
            self._left = iter(EXAMPLE_STEPS)

        async def agenerate(self, conversations: Any, *_: Any, **__: Any) -> Any:
            return [{"role": "assistant", "content": next(self._left)} for _ in conversations]

    generation = steps.StepGeneration(max_steps=len(EXAMPLE_STEPS) - 1, step_token="\n\n")  # noqa: S106
    beam = search.BeamSearch(generation, its_hub.ProcessRewardModel(str(MODEL)), beam_width=1)
    found = asyncio.run(beam.ainfer(Told(), EXAMPLE_PROBLEM, budget=1, return_response_only=False))
    return {"answer": found.responses[0]["content"], "score": found.scores[0]}


def run_trl(folder: str) -> Any:
    """The mean rewards of one step of GRPO with texts and with turns."""
    datasets, library = importlib.import_module("datasets"), importlib.import_module("trl")
    turns = [{"role": "user", "content": EXAMPLE_PROBLEM}]
    found = []
    for prompt in (EXAMPLE_PROBLEM, turns):
        rows = datasets.Dataset.from_list([{"prompt": prompt, "model": "other", "split": "train"}] * 4)
        settings = {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 4, "report_to": "none"}
        config = library.GRPOConfig(folder, max_completion_length=24, use_cpu=True, bf16=False, **settings)
        reward = partial(trl.step_reward, prm=str(MODEL))
        trainer = library.GRPOTrainer(str(MODEL), reward_funcs=reward, train_dataset=rows, args=config)
        trainer.train()
        logged = {key: value for row in trainer.state.log_history for key, value in row.items()}
        found.append(logged["rewards/step_reward/mean"])
    return found


if __name__ == "__main__":
    sys.path.append(sys.argv[2])
    with TemporaryDirectory() as made:
        result = {"inspect_ai": run_inspect_ai, "its_hub": run_its_hub, "trl": run_trl}[sys.argv[1]](made)
    print("\n" + json.dumps(result))
