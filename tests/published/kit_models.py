"""Inputs that the PRMBench kit's model files make of a solution, on tiny models of ``tests/baselines/model_folders``.

``getitem_function``, the collator and ``respond`` run as they are. Only two things are ours: the ids of the tiny
tokenizer's answers, which the constructor takes, and the two models whose code the kit fetches from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from transformers import Qwen2Model

from tests.baselines.model_folders import FOLDERS
from tests.published.sources import Source, absent

KIT, SKYWORK = "ssmisya/PRMBench", "huggingface/search-and-learn"
PROBLEM = "How many eggs do 16 ducks lay?\nEach lays (at most) $\\frac{1}{2}$ an egg."
SOLUTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (PROBLEM, ("Step 1: the ducks are 16.", "2. Each lays half an egg, + or - some.", "  So 16/2 = 8. ")),
    (PROBLEM, ("Step 1: the ducks are 16.", "2. Each lays two.", "So 32.", "\\boxed{32}")),
    ("1 + 1 = ?", ("Zwei, été, 二.",)),
    ("Empty.\n", ("", "a", " ", "", "b")),
    ("Lines", ("one\ntwo", "one\n\ntwo", "step 3. three\n\n\nfour", "Step 4. \n five\n")),
    ("Add up.", tuple(f"We add {n} and come to {n * (n + 1) // 2}." for n in range(12))),
    ("A long one.", tuple(f"Step {n}. We add {n} and so come to {n * (n + 1) // 2}, as one sees." for n in range(70))),
)
PLACES = {
    "llemma": ("llemma7b_prm", "Llemma7bPRM"),
    "math-shepherd": ("math_shepherd", "MathShepherd"),
    "qwen-prm": ("qwen_prm", "QwenPRM"),
    "reasoneval": ("reasoneval", "ReasonEval"),
    "rlhflow-mistral": ("llama3_1_8b_prm", "LLaMA318BPRM"),
    "skywork": ("skywork_prm", "SkyworkPRM"),
}
"""The kit's file and class for each system. It has none for Math-PSA, and one for both of RLHFlow and of Qwen."""


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Per system, the ``scores`` that ``respond`` stores for each solution."""
    kit, recorded = sources[KIT], []
    prepare = sources[SKYWORK].module("src/sal/models/skywork_o1_prm/io_utils.py")
    given = {"model_utils": {}, "model_utils.prm_model": {"PRM_MODEL": _Loaded(_values)}}
    for system, (file, name) in PLACES.items():
        FOLDERS[system](Path("folders", system))
        with kit_imports(kit, **given, **{"model_utils.io_utils": vars(prepare)}):
            data = kit.package("", "mr_eval.tasks.base_dataset.base_evaluation_dataset")
            model = _model(kit.package("", f"mr_eval.models.{file}"), name, Path("folders", system))
            inputs = [{"problem": problem, "steps": list(steps)} for problem, steps in SOLUTIONS]
            run = partial(_scores, data, model)
            recorded.append(kit.recorded(f"mr_eval/models/{file}.py", f"{name}.respond", run, inputs))
    return recorded


def _scores(data: Any, model: Any, given: dict[str, Any]) -> Any:
    """The lists of figures per step, to six digits."""
    return {
        key: [round(value, 6) if isinstance(value, float) else value for value in values]
        for key, values in sent(data, model, given)["scores"].items()
        if isinstance(values, list)
    }


def sent(data: Any, model: Any, given: dict[str, Any]) -> Any:
    """The entry of the kit's model for one solution, which goes through its data set and collator (``data``)."""
    config = _Settings(task_name="prmtest_classified", generation_config=_Settings(max_length=2048, temperature=0))
    model.set_generation_config(config.generation_config)
    solution = {"idx": "0", "question": given["problem"], "steps": given["steps"]}
    arguments, named = SimpleNamespace(resume_from_ckpt=None, save_to_ckpt=None), SimpleNamespace(model="")
    items = data.BaseEvalDataset(lambda: [solution], model.getitem_function, None, config, arguments, named)
    collate = data.DataCollatorForSupervisedDataset(getattr(model, "tokenizer", None))
    collate.max_length = config.generation_config.max_length
    model.respond(DataLoader(items, batch_size=1, collate_fn=collate))
    (stored,) = items.fetch_results()
    return stored


class _Settings(dict[str, Any]):
    """The keys as attributes too, as ``box.Box`` does."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@contextmanager
def kit_imports(kit: Source, **given: Mapping[str, Any]) -> Iterator[None]:
    """The kit's folder for its loggers, and the packages that it imports and the project does not have."""
    (kit.folder / "mr_eval/scripts/logs/generated").mkdir(parents=True, exist_ok=True)
    Accelerator()  # the loggers need one
    logger = SimpleNamespace(remove=lambda: None, add=lambda *_, **__: None, error=lambda *_: None)
    with absent("PIL", "PIL.Image", loguru={"logger": logger}, box={"Box": _Settings}, **given):
        yield


def _model(module: Any, name: str, folder: Path) -> Any:
    """The kit's class on the tiny model, in float32."""
    if name == "QwenPRM":
        module.AutoModel = _Loaded(_classes)  # the kit runs the code of the model's folder
    arguments: dict[str, Any] = {"tokenizer_pretrained": folder} if name == "Llemma7bPRM" else {}
    if name == "LLaMA318BPRM":
        tokenizer = module.AutoTokenizer.from_pretrained(folder)
        turn = tokenizer.encode("<|start_header_id|>assistant<|end_header_id|>\n\n+<|eot_id|>")
        start = turn.index(tokenizer.encode("+")[0]) - 4  # the published pattern has the last four before the answer
        arguments = {"positive_token": tokenizer.encode("+")[0], "pattern": turn[start:]}
    model = getattr(module, name)(pretrained=folder, **arguments)
    model.model.float()
    # transformers 5 returns a dictionary unless told otherwise
    model.tokenizer.apply_chat_template = partial(model.tokenizer.apply_chat_template, return_dict=False)
    return model


class _Loaded:
    """A class with ``from_pretrained``: Qwen2 with a head of the published shape."""

    def __init__(self, head: Callable[[torch.Tensor, dict[str, torch.Tensor]], Any]) -> None:
        self._head = head

    def from_pretrained(self, folder: Path, **_: Any) -> torch.nn.Module:
        """The model in ``folder``."""
        return _Headed(Qwen2Model.from_pretrained(folder), load_file(folder / "model.safetensors"), self._head)


class _Headed(torch.nn.Module):
    def __init__(self, backbone: torch.nn.Module, weights: dict[str, torch.Tensor], head: Callable[..., Any]) -> None:
        super().__init__()
        self.backbone, self.weights, self.head = backbone, weights, head

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> Any:
        return self.head(self.backbone(input_ids, attention_mask).last_hidden_state, self.weights)


def _classes(hidden: torch.Tensor, weights: dict[str, torch.Tensor]) -> Any:
    inner = (hidden @ weights["score.0.weight"].T + weights["score.0.bias"]).relu()
    return SimpleNamespace(logits=inner @ weights["score.2.weight"].T + weights["score.2.bias"])


def _values(hidden: torch.Tensor, weights: dict[str, torch.Tensor]) -> Any:
    value = hidden @ weights["v_head.summary.weight"].T + weights["v_head.summary.bias"]
    return None, None, value.sigmoid().squeeze(-1)
