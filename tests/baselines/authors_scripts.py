"""The authors' scripts, rewritten for one solution at a time.

Each tokenises the whole text, looks up the step tokens in the ids, runs one plain forward pass of transformers' own
model and applies the head by hand. The texts must contain no step token.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

from pathfinder.core.steps import Solution


@functools.cache
def _tokenizer(folder: Path) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(folder)


@functools.cache
def _language_model(folder: Path) -> Any:
    """Eager attention: the engine must agree with another implementation than its own."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.eval()


@functools.cache
def _backbone(folder: Path) -> Any:
    return AutoModel.from_pretrained(folder, attn_implementation="eager", trust_remote_code=False).eval()


def _hidden(folder: Path, ids: list[int]) -> torch.Tensor:
    hidden: torch.Tensor = _backbone(folder)(torch.tensor([ids])).last_hidden_state[0]
    return hidden


@functools.cache
def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def math_shepherd(folder: Path, solution: Solution) -> list[float]:
    tokenizer, model = _tokenizer(folder), _language_model(folder)
    candidates = tokenizer.encode("+ -")[1:]
    tag = tokenizer.encode("ки")[-1]
    lines = [
        s.strip() if s.strip()[:4] in ("Step", "step") else f"Step {i + 1}: {s.strip()}" for i, s in _steps(solution)
    ]
    ids = torch.tensor([tokenizer.encode(f"{solution.problem} " + "".join(f"{line} ки\n" for line in lines))])
    scores: list[float] = model(ids).logits[:, :, candidates].softmax(-1)[:, :, 0][ids == tag].tolist()
    return scores


@functools.cache
def _merged(folder: Path) -> Any:
    model = copy.deepcopy(_language_model(folder))
    settings = json.loads((folder / "lora/adapter_config.json").read_text())
    tensors = load_file(folder / "lora/adapter_model.safetensors")
    for name in [name for name in tensors if "lora_A" in name]:
        module = model.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        change = tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
        module.weight.data += settings["lora_alpha"] / settings["r"] * change
    return model


def math_psa(folder: Path, solution: Solution) -> list[float]:
    tokenizer, model = _tokenizer(folder), _merged(folder)
    candidates, tag = tokenizer.encode(" + -"), tokenizer.encode(" \n\n\n\n\n")[-1]
    answer = "".join(f" {step.strip()} \n\n\n\n\n" for step in solution.steps)
    ids = torch.tensor([tokenizer.encode(f"{solution.problem}{answer}")])
    scores: list[float] = model(ids).logits[:, :, candidates].softmax(-1)[:, :, 0][ids == tag].tolist()
    return scores


def rlhflow(folder: Path, solution: Solution) -> list[float]:
    tokenizer, model = _tokenizer(folder), _language_model(folder)
    plus_minus = [tokenizer.encode("+")[-1], tokenizer.encode("-")[-1]]
    chat: list[dict[str, str]] = []
    scores = []
    for i, step in _steps(solution):
        text = solution.problem + " " + step.strip() if i == 0 else step.strip()
        chat += [{"role": "user", "content": text}, {"role": "assistant", "content": "+"}]
        ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)["input_ids"]
        scores.append(model(ids).logits[0, -3, plus_minus].softmax(-1)[0].item())
    return scores


def rlhflow_processbench(folder: Path, solution: Solution) -> list[float]:
    first = Solution("", "", (f"{solution.problem}\n\n{solution.steps[0].strip()}", *solution.steps[1:]))
    return rlhflow(folder, first)


def skywork(folder: Path, solution: Solution) -> list[float]:
    """Every step is one line."""
    tokenizer, weights = _tokenizer(folder), _weights(folder)
    ids = tokenizer.encode(tokenizer.bos_token + solution.problem + "\n")
    places = []
    for line in (step.strip() for step in solution.steps):
        ids += (tokenizer.encode(line) if line else []) + [tokenizer.encode("\n")[-1]]
        places.append(len(ids) - 1)
    value = _hidden(folder, ids) @ weights["v_head.summary.weight"].T + weights["v_head.summary.bias"]
    return value.sigmoid()[places, 0].tolist()


def reasoneval(folder: Path, solution: Solution) -> list[float]:
    tokenizer, weights = _tokenizer(folder), _weights(folder)
    separator = tokenizer.pad_token
    text = f"Question:\n{solution.problem}\nAnswer:\nLet's think step by step.\n{separator}"
    tokens = tokenizer(text + "".join(step + separator for step in solution.steps))["input_ids"]
    places, kept, seen = [], [], 0
    for i, token in enumerate(tokens):
        if token == tokenizer(separator)["input_ids"][-1]:
            places.append(i - 1 - seen)
            seen += 1
        else:
            kept.append(token)
    logits = _hidden(folder, [1, *kept]) @ weights["score_head.weight"].T + weights["score_head.bias"]
    classes = logits[places[2:]].softmax(-1)
    return (classes[:, 1] + classes[:, 2]).tolist()


def llemma(folder: Path, solution: Solution) -> list[float]:
    tokenizer, model = _tokenizer(folder), _language_model(folder)
    steps = "".join(f"{step.strip()}\n\n" for step in solution.steps)
    ids = tokenizer.encode(f"# Question\n\n{solution.problem}\n\n# Solution\n\n{steps}")
    begin = tokenizer.encode("\n\n# Solution", add_special_tokens=False)[1:]
    scoring = tokenizer.encode("\n\n", add_special_tokens=False)[1:]
    begun, places = False, []
    for i in range(len(ids)):
        begun = begun or ids[i : i + len(begin)] == begin
        if begun and ids[i : i + len(scoring)] == scoring:
            places.append(i)
    scores: torch.Tensor = model(torch.tensor([ids])).logits.mean(-1)[0].sigmoid()
    found: list[float] = scores[places[2:]].tolist()  # the first two are before and behind the heading
    return found


def qwen(folder: Path, solution: Solution) -> list[float]:
    tokenizer, weights = _tokenizer(folder), _weights(folder)
    chat = [
        {
            "role": "system",
            "content": r"Please reason step by step, and put your final answer within \boxed{}.",
        },
        {"role": "user", "content": solution.problem},
        {"role": "assistant", "content": "<extra_0>".join(solution.steps) + "<extra_0>"},
    ]
    ids = tokenizer.encode(tokenizer.apply_chat_template(chat, tokenize=False))
    places = [i for i, token in enumerate(ids) if token == tokenizer.encode("<extra_0>")[0]]
    hidden = _hidden(folder, ids)
    inner = (hidden @ weights["score.0.weight"].T + weights["score.0.bias"]).clamp(min=0)
    scores: list[float] = (
        (inner @ weights["score.2.weight"].T + weights["score.2.bias"]).softmax(-1)[places, 1].tolist()
    )
    return scores


def _steps(solution: Solution) -> list[tuple[int, str]]:
    return list(enumerate(solution.steps))


_Script = Callable[[Path, Solution], list[float]]
_RLHFLOW: dict[str, _Script] = {"authors": rlhflow, "processbench": rlhflow_processbench}
METHODS: dict[str, dict[str, _Script]] = {
    "math-shepherd": {"authors": math_shepherd},
    "math-psa": {"authors": math_psa},
    "rlhflow-mistral": _RLHFLOW,
    "rlhflow-deepseek": _RLHFLOW,
    "skywork": {"authors": skywork},
    "reasoneval": {"authors": reasoneval},
    "llemma": {"authors": llemma},
    "qwen-prm": {"authors": qwen},
    "qwen-prm800k": {"authors": qwen},
}
PAIRS = [(name, method) for name, methods in METHODS.items() for method in methods]
