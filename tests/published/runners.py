"""The published runners of ProcessBench, PRMBench and the PRM of the search, with a model whose answers a case gives.

Each case is a solution and, per step, the probabilities of ``<+>``, ``<->`` and any other token at both masks.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.published.prompts import SEARCH, search_script
from tests.published.scripted import Model, Tokenizer, loaded
from tests.published.sources import Source, absent

PROCESSBENCH = "src/evaluation/ProcessBench/code/run_eval_pathfinder_prm.py"
KIT = "src/evaluation/PRMBench"
SUBSETS = ("gsm8k", "math", "olympiadbench", "omnimath")
SOLUTIONS: tuple[list[str], ...] = (
    ["a"], [""], ["", "b"], ["", "", "c"], ["a", "", "c"], [" ", "b"], ["\n", "b"], ["1. ", "b"], ["Step 1.", "2."],
    ["Step 1. one", "step 2.two", "3. three"], ["Step 1: one", "1.5 is", " 2. two "], ["a\n\nb", "c"],
    ["x <+>", "y <extra"],
)  # fmt: skip
GOOD, BAD = (0.9, 0.05, 0.05), (0.2, 0.7, 0.1)
TIE, HALF, LOW, OTHER = (0.4, 0.4, 0.2), (0.5, 0.3, 0.2), (0.45, 0.2, 0.35), (0.3, 0.2, 0.5)
SAID: tuple[list[Sequence[float]], ...] = (
    [GOOD, GOOD], [GOOD, BAD], [BAD, GOOD], [BAD, BAD], [TIE, GOOD], [GOOD, TIE], [HALF, HALF], [LOW, GOOD],
    [OTHER, GOOD], [BAD, OTHER],
)  # fmt: skip


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """One run of a runner per case, with its prompts and its files."""
    source = sources["declare-lab/PathFinder-PRM"]
    return [_processbench(source), _prmbench(source), _search(source)]


def solutions() -> list[dict[str, Any]]:
    """Every solution with answers that accept all its steps, and one with each kind of answer at each step."""
    found = [{"problem": "Q?", "steps": steps, "said": [SAID[0]] * len(steps)} for steps in SOLUTIONS]
    steps = ["a", "b", "c"]
    for place, said in itertools.product(range(3), SAID[1:]):
        answers = [SAID[0]] * 3
        answers[place] = said
        found.append({"problem": "Q?", "steps": steps, "said": answers})
    return found


def _processbench(source: Source) -> dict[str, Any]:
    with absent("datasets"):
        script = source.module(PROCESSBENCH)

    def run(given: dict[str, Any]) -> Any:
        tokenizer = Tokenizer()
        items = [{"id": "gsm8k-0", "label": given["label"], **given}]
        script.load_dataset = lambda _, split: items if split == "gsm8k" else []
        script.AutoTokenizer, script.AutoModelForCausalLM = loaded(tokenizer), loaded(Model(iter(given["said"])))
        with arguments("--model_path", "prm", "--output_dir", "out"):
            script.main()
        rows = [json.loads(line) for path in sorted(Path("out").glob("gsm8k_*")) for line in path.open()]
        (row,) = rows
        return {"turns": tokenizer.turns, "prediction": row["prediction"], "match": row["match"]}

    inputs = [given | {"label": number % 4 - 1} for number, given in enumerate(solutions())]
    return source.recorded(PROCESSBENCH, "main", run, inputs, {"SYSTEM_TRAINING": script.SYSTEM_PROMPT})


def _prmbench(source: Source) -> dict[str, Any]:
    """``respond`` on the kit's own data set and loader, which writes the file of ``save_to_ckpt``."""
    (source.folder / KIT / "mr_eval/scripts/logs/generated").mkdir(parents=True, exist_ok=True)
    with absent("loguru", "requests", "PIL", "PIL.Image", "peft", "box"):
        module = source.package(KIT, "mr_eval.models.disc_PRM")
        from mr_eval.tasks.base_dataset import base_evaluation_dataset as base  # type: ignore[import-not-found]
    module.AutoTokenizer = module.AutoModelForCausalLM = loaded(None)
    module.Accelerator = lambda: SimpleNamespace(
        device="cpu", process_index=0, prepare=lambda given: given, wait_for_everyone=lambda: None
    )
    file = f"{KIT}/mr_eval/models/disc_PRM.py"
    return source.recorded(
        file,
        "MyDiscriminativePRM",
        lambda given: _responded(module, base, given),
        solutions(),
        {"SYSTEM_PRMBENCH": _prmbench_system(module)},
    )


def _kit_model(module: Any, said: Sequence[Any]) -> Any:
    tokenizer = Tokenizer()
    module.AutoTokenizer, module.AutoModelForCausalLM = loaded(tokenizer), loaded(Model(iter(said)))
    return module.MyDiscriminativePRM("prm")


def _prmbench_system(module: Any) -> str:
    return str(_kit_model(module, []).system_prompt)


def _responded(module: Any, base: Any, given: dict[str, Any]) -> Any:
    from torch.utils.data import DataLoader

    reader = _kit_model(module, given["said"])
    item = {"idx": "circular_0", "question": given["problem"], "steps": given["steps"]}
    checkpoint = Path("checkpoint.jsonl")
    checkpoint.unlink(missing_ok=True)
    dataset = base.BaseEvalDataset(
        lambda: [item],
        reader.getitem_function,
        evaluate_function=None,
        task_config={"task_name": "prmtest_classified"},
        task_args=SimpleNamespace(resume_from_ckpt={}, save_to_ckpt={"prmtest_classified": str(checkpoint)}),
        model_args=SimpleNamespace(model="disc_PRM"),
    )
    collator = base.DataCollatorForSupervisedDataset(tokenizer=reader.tokenizer)
    reader.respond(DataLoader(dataset, batch_size=1, collate_fn=collator))
    return {"turns": reader.tokenizer.turns, "lines": [json.loads(line) for line in checkpoint.open()]}


def _search(source: Source) -> dict[str, Any]:
    search_script(source)
    module = sys.modules["PathFinderPRM"]

    def run(given: dict[str, Any]) -> float:
        reader = object.__new__(module.PathFinderPRM)
        reader.tokenizer, reader.model = Tokenizer(), Model(iter([given["first"], [given["second"]]]))
        reader.pos_token_id, reader.neg_token_id = 1, 2
        turns = [{"role": "user", "content": "Q"}, {"role": "user", "content": "s Math: <extra>, Consistency: <extra>"}]
        return float(reader.inference_single(turns))

    seconds = (GOOD, BAD, TIE, HALF, OTHER, (0.0, 0.9, 0.1), (1.0, 0.0, 0.0))
    inputs = [{"first": first, "second": second} for first, second in itertools.product(SAID, seconds)]
    return source.recorded(f"{SEARCH}/PathFinderPRM.py", "PathFinderPRM.inference_single", run, inputs)


@contextlib.contextmanager
def arguments(*given: str) -> Any:
    before, sys.argv = sys.argv, ["script", *given]
    try:
        yield
    finally:
        sys.argv = before
