"""LoRA: a small adapter is trained and the model's own weights stay as they are; at the end they are merged.

Beside the adapter the rows of the three label tokens are trained: a base model has never learned what they mean. The
merged folder is a model folder like any other; the adapter alone lies in its ``adapter/`` for other tools (peft).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from pathfinder.core.io import DataError
from pathfinder.core.params import Lora
from pathfinder.models.tokens import LabelIds

FOLDER = "adapter"


def with_adapter(model: PreTrainedModel, settings: Lora, ids: LabelIds) -> Any:
    """``model`` with a new adapter, seeded by torch's generator; raises ``DataError`` for targets that it lacks."""
    from peft import LoraConfig, get_peft_model  # seconds, and only where an adapter is asked for

    modules = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    unknown = sorted(set(settings.targets) - modules)
    if unknown:
        raise DataError(f"train.lora.targets: the model has no module {', '.join(unknown)}")
    whole: Any = model
    rows = [ids.good, ids.bad, ids.mask]
    tied = whole.get_input_embeddings().weight is whole.get_output_embeddings().weight
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,  # dropout would make a tree's loss differ from the sum over its samples
        target_modules=sorted(settings.targets),
        trainable_token_indices={"embed_tokens": rows} | ({} if tied else {"lm_head": rows}),
    )
    return get_peft_model(whole, config, autocast_adapter_dtype=False)


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapter of a model of ``with_adapter`` into ``folder / FOLDER``, without the place it came from."""
    for config in model.peft_config.values():
        config.base_model_name_or_path = None
        config.inference_mode = True
    model.save_pretrained(folder / FOLDER, safe_serialization=True, save_embedding_layers=False)
    (folder / FOLDER / "README.md").unlink(missing_ok=True)  # a model card that names nothing


def merged(model: Any) -> PreTrainedModel:
    """The plain model with the adapter's change added to its weights (in place)."""
    return model.merge_and_unload()  # type: ignore[no-any-return]
