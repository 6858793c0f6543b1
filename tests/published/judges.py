"""How the published scripts read what a judge writes: the labelling judge, and the critics of the two benchmarks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ground.io import text_digest
from tests.published.sources import Source, absent

LABELLER = "src/data_generation/run_inference.py"
CRITIC = "code/run_eval.py"
KIT = "mr_eval/utils/model_utils.py"
BLOCK = "Score A: 1\nScore B: 0\nScore C: 1"
ANSWERS = (
    BLOCK, "Score A: 1 Score B: 1 Score C: 1", "Score A:0Score B:0Score C:0", "", "no scores",
    f"<think>{BLOCK}</think>", f"{BLOCK}\n\nScore A: 0\nScore B: 1\nScore C: 0", f"{BLOCK}\nScore A: 0",
    "Score A: 2\nScore B: 9\nScore C: 1", "Score A: 1\nScore B: 1\nScore C: 0.5",
    "Score A: 1\nScore B: 1\nScore C: 1.0", "Score A: 1\nScore B: 1\nScore C: 10",
    "Score A: 1\nScore B: 1\nScore C: 2", "Score A: 10\nScore B: 1\nScore C: 1",
    "**Score A:** 1\n**Score B:** 1\n**Score C:** 1", "score a: 1\nscore b: 1\nscore c: 1",
    "Score A: 1, Score B: 1, Score C: 1", "Score A: 1\n\n\tScore B: 1\r\nScore C: 1\n",
    "Score A: {1}\nScore B: {1}\nScore C: {1}", "Score A: ١\nScore B: ٠\nScore C: 1",
    "Score A: 1\nScore C: 1\nScore B: 1", "Score A: -1\nScore B: 1\nScore C: 1", "Score A : 1\nScore B: 1\nScore C: 1",
    "Score A: 1\u00a0Score B: 1\u2028Score C: 1", "> " + BLOCK, f'He said "{BLOCK}"',
    "Score A: 1\nScore B: 1\nScore C: 0.5.5", "Score A: 1\nScore B: 1\nScore C: 1.",
    "Score A: 1/1\nScore B: 1\nScore C: 1", f"{BLOCK}\nFinal: Score A: 1\nScore B: 1\nScore C: x",
)  # fmt: skip
BOXED = (
    r"\boxed{2}", r"\boxed{-1}", r"\boxed{ 3 }", r"\boxed{}", "none", "", r"\boxed{1} and \boxed{0}",
    r"\boxed{\text{2}}", r"\boxed{paragraph_2}", r"\boxed{2.0}", r"\boxed{1_0}", r"\boxed{+1}", r"\boxed{٢}",
    r"\boxed{99}", r"\boxed{1", r"\boxed{1 \boxed{2}", r"\boxed{{1}}", "\\boxed{\n0\n}", r"\boxed {1}", r"\boxed{-2}",
    r"<think>\boxed{1}", r"\boxed{ - 1}",
)  # fmt: skip
VOTES: tuple[list[int], ...] = (
    [0, 0, 1], [0, 1], [1, 0], [4, 4, 4], [4, 0], [5, 5, 0], [3, 3, 0], [3, 0, 0], [9, 10, 0], [2, 0, 0, 2],
    [11, 12, 13], [7, 7, 0], [8, 0, 1], [6, 17, 6, 17, 0],
)  # fmt: skip
GOOD = '{"validity": [1, -0.5, 0], "redundancy": [-1, 0.2, 0]}'
JSONS = (
    GOOD, f"text {GOOD} more", f"```json\n{GOOD}\n```", "{}", "", "no", "{", "}" + GOOD, '{"validity": [1]}',
    f"{{}} {GOOD}", f"{{broken}} {GOOD}", f'{GOOD} {{"validity": [0], "redundancy": [0]}}', '{"a": ' + GOOD + "}",
    '{"validity": [1, // first\n 0], "redundancy": [0, # second\n 0]}', '{"validity": [], "redundancy": []}',
    '{"validity": [1], "redundancy": [0, 0]}', '{"validity": [true], "redundancy": [false]}',
    '{"validity": [1,], "redundancy": [0]}', "{'validity': [1], 'redundancy': [0]}",
    '{"validity": [2], "redundancy": [-7]}', '{"redundancy": [1], "validity": [0], "x": "}"}',
)  # fmt: skip
STEPS: tuple[list[str], ...] = (["a"], ["a", "b"], [""], ["", "b"], ["a\n\nb", " c "], [], ["{problem}", "\\boxed{1}"])


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Scores, boxes, votes and JSON in answers of our own, and the prompt of ProcessBench's critics."""
    source, critic, kit = (
        sources[name] for name in ("declare-lab/PathFinder-PRM", "QwenLM/ProcessBench", "ssmisya/PRMBench")
    )
    with absent("vllm", "transformers"):
        labeller = source.package("src/data_generation", "run_inference")
    with absent("vllm", "transformers", "datasets"):
        script = critic.module(CRITIC)
    names = ("remove_comments_from_json", "extract_nested_json", "process_policy_lm_evaluation_response")
    reader = kit.parts(KIT, names, re=re, json=json, deepcopy=deepcopy)
    template = (critic.folder / "code/templates/critique_template.txt").read_text(encoding="utf-8").strip()
    asked = [{"problem": problem, "steps": steps} for problem in ("Q?", "", "{x} \\frac{1}{2}") for steps in STEPS]
    return [
        source.recorded(
            LABELLER, "VLLMInferenceWithRetry.batch_infer_score", lambda text: _labelled(labeller, text), ANSWERS
        ),
        critic.recorded(CRITIC, "extract_answer", script.extract_answer, BOXED),
        critic.recorded(CRITIC, "main", lambda given: _voted(script, given), _votes()),
        critic.recorded(
            CRITIC,
            "prepare_input_boxed",
            lambda given: text_digest(script.prepare_input_boxed(template, given)[0]["content"]),
            asked,
        ),
        kit.recorded(KIT, names[-1], reader.process_policy_lm_evaluation_response, JSONS),
    ]


def _labelled(module: Any, text: str) -> Any:
    judge = object.__new__(module.VLLMInferenceWithRetry)
    judge.max_retries = 1
    judge.llm = SimpleNamespace(generate=lambda prompts, _: [_output([text]) for _ in prompts])
    return judge.batch_infer_score(["prompt"])[0]


def _output(texts: Sequence[str]) -> Any:
    return SimpleNamespace(outputs=[SimpleNamespace(text=text) for text in texts])


def _votes() -> list[list[str]]:
    single = [[text] for text in BOXED]
    return single + [[BOXED[place] for place in places] for places in VOTES]


def _voted(script: Any, texts: list[str]) -> Any:
    """The prediction of a whole run over one problem; several texts vote."""
    Path("templates").mkdir(exist_ok=True)
    Path("templates/critique_template.txt").write_text("{problem}{tagged_response}")
    item = {"problem": "Q?", "steps": ["a", "b"], "label": 1}
    script.load_dataset = lambda *_, split: [item]
    script.LLM = lambda **_: SimpleNamespace(generate=lambda **_: [_output(texts)])
    before, sys.argv = sys.argv, ["script", "--model_path", "m", "--configs", "gsm8k", "--output_dir", "out"]
    sys.argv += ["--use_voting"] if len(texts) > 1 else []
    try:
        script.main()
    finally:
        sys.argv = before
    folder = Path("out") / ("m_voting" if len(texts) > 1 else "m")
    return json.loads((folder / "gsm8k_error.jsonl").read_text())["prediction"]
