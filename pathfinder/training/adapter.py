"""LoRA: only a small adapter is trained, and at the end it is merged into the model's own weights.

The rows of the three label tokens, or the layer of the classes, are trained as well, because a base model has never
learned them. The merged folder is an ordinary model folder. Its subfolder ``adapter/`` holds the adapter by itself for
other tools (peft).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ground.io import DataError
from pathfinder.core.params import Lora
from pathfinder.models.tokens import LabelIds

FOLDER = "adapter"


def with_adapter(model: Any, settings: Lora, ids: LabelIds | None) -> Any:
    """``model`` with a new adapter, seeded by torch's generator. Raises ``DataError`` for targets it does not have.

    Without ``ids`` of label tokens, ``model`` classifies tokens.
    """
    from peft import LoraConfig, get_peft_model  # takes seconds

    modules = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    unknown = sorted(set(settings.targets) - modules)
    if unknown:
        raise DataError(
            f"train.lora.targets: the model has no module {', '.join(unknown)}; name linear layers such as q_proj"
        )
    more: dict[str, Any] = {"task_type": "TOKEN_CLS"}  # which trains the layer of the classes
    if ids is not None:
        rows = [ids.good, ids.bad, ids.mask]
        tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
        trained = {"embed_tokens": rows} | ({} if tied else {"lm_head": rows})
        more = {"task_type": "CAUSAL_LM", "trainable_token_indices": trained}
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,  # dropout would make a tree's loss differ from the sum over its samples
        target_modules=sorted(settings.targets),
        **more,
    )
    network = get_peft_model(model, config, autocast_adapter_dtype=False)
    for parameter in network.parameters():
        if parameter.requires_grad:  # peft makes it in the type of the base
            parameter.data = parameter.data.float()
    return network


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter of a ``with_adapter`` model to ``folder / FOLDER``, without the path of its base model."""
    for config in model.peft_config.values():
        config.base_model_name_or_path = None
        config.inference_mode = True
    model.save_pretrained(folder / FOLDER, safe_serialization=True, save_embedding_layers=False)
    (folder / FOLDER / "README.md").unlink(missing_ok=True)  # an empty model card


def merge(model: Any) -> Any:
    """The base model of a ``with_adapter`` model with its weights changed by the adapter, in float32.

    A bfloat16 base is converted first, so that every weight is rounded once, when it is saved.
    """
    return model.float().merge_and_unload()
