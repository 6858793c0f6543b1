"""The network to train: the base model with the label tokens, whole or sharded, possibly under an adapter.

With LoRA only a small adapter is trained, and at the end it is merged into the model's own weights. The rows of the
three label tokens, or the layer of the classes, are trained as well, because a base model has never learned them. The
merged folder is an ordinary model folder. Its subfolder ``adapter/`` holds the adapter by itself for other tools
(peft).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ground.io import DataError
from pathfinder.core.params import Lora, Train
from pathfinder.models import decoder, launch, model, tokens
from pathfinder.models.folders import OpenedModel, open_model
from pathfinder.models.tokens import LabelIds
from pathfinder.tree.attention import use_trees
from pathfinder.tree.separated import CLASSES, SETTING

_ADAPTER = "adapter"


def open_tokenizer(base: OpenedModel, settings: Train) -> Any:
    """The tokenizer to train with. A ``PlainTokenizer`` means that the network is a ``Decoder`` in one process.

    Neither needs transformers, whose import takes seconds. A ``Decoder`` has no gradient checkpointing, and its
    autocast is not tested.
    """
    is_own = decoder.is_plain(base) and settings.dtype == "float32" and not settings.gradient_checkpointing
    is_own = is_own and not settings.lora.rank and not launch.launched()
    return base.tokenizer if is_own else tokens.load_tokenizer(base.files)


def load_network(base: Path, tokenizer: Any, settings: Train) -> tuple[Any, list[str]]:
    """The network to train from the model in ``base``, and the label tokens that were added to it.

    Under a launcher that shards, each process reads only its own rows. Two cases are exceptions, in which every process
    loads the whole model into main memory first: an adapter, and a model without rows for the label tokens.
    """
    if isinstance(tokenizer, tokens.PlainTokenizer):
        network: Any = decoder.load_decoder(open_model(base))
        use_trees(network)  # an extra tensor in the weights means a transformers model
        return network.train(), []
    if not launch.sharded():
        return _whole(base, tokenizer, settings, None)
    from pathfinder.models import sharding

    if settings.lora.rank or not sharding.has_rows(base, tokenizer):
        network, added = _whole(base, tokenizer, settings, "cpu")
        sharding.cut(network, settings.dtype)
    else:
        network, added = sharding.load_sharded(base, tokenizer, settings.dtype)
        use_trees(network)
    return network, added


def load_classifier(base: Path, settings: Train, separator: str) -> Any:
    """The network that classifies tokens, for TRL's PRMTrainer; if the base has no layer ``score``, it is drawn.

    config.json names the classes and the separator. Dropout is off, because it would make the branches of a tree
    differ. Raises ``DataError`` as ``load_model`` does, and for a base with different classes.
    """
    from transformers import AutoConfig, AutoModelForTokenClassification

    config: Any = AutoConfig.from_pretrained(base, trust_remote_code=False)
    names = {name: number for number, name in CLASSES.items()}
    config.update({"id2label": CLASSES, "label2id": names, "classifier_dropout": 0.0, SETTING: separator})
    torch.manual_seed(settings.seed)
    dtype = settings.lora.base_dtype if settings.lora.rank else "float32"
    new = ("score.weight", "score.bias")
    network: Any = model.load_model(
        open_model(base), dtype, kind=AutoModelForTokenClassification, new=new, config=config
    )
    use_trees(network)
    return with_adapter(network, settings.lora, None) if settings.lora.rank else network


def gathered_network(base: Path, tokenizer: Any, settings: Train, weights: dict[str, torch.Tensor]) -> Any:
    """The whole network with the ``weights`` gathered from all processes; it uses them without a copy."""
    if settings.lora.rank:
        network, _ = _whole(base, tokenizer, settings, "cpu")
    else:
        from pathfinder.models import sharding

        network = sharding.empty_model(base, len(weights["model.embed_tokens.weight"]))
    network.load_state_dict(weights, assign=True)
    return network


def positions(base: OpenedModel) -> int:
    """The longest text that a model can read as a tree, in tokens."""
    if decoder.is_plain(base):
        return base.config.positions
    from transformers import AutoConfig

    return model.longest(AutoConfig.from_pretrained(base.files, trust_remote_code=False))


def _whole(base: Path, tokenizer: Any, settings: Train, where: str | None) -> tuple[Any, list[str]]:
    dtype = settings.lora.base_dtype if settings.lora.rank else "float32"
    network: Any = model.load_model(open_model(base), dtype, where=where)
    torch.manual_seed(settings.seed)  # without spare rows, the new tokens' rows are drawn
    added = model.add_labels(network, tokenizer)
    use_trees(network)
    if settings.lora.rank:
        torch.manual_seed(settings.seed)
        network = with_adapter(network, settings.lora, tokens.label_ids(tokenizer))
    return network, added


def with_adapter(model: Any, settings: Lora, ids: LabelIds | None) -> Any:
    """``model`` with a new adapter, seeded by torch's generator. Raises ``DataError`` for unknown targets.

    Without ``ids`` of label tokens, ``model`` classifies tokens.
    """
    from peft import LoraConfig, get_peft_model  # takes seconds

    modules = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    unknown = sorted(set(settings.targets) - modules)
    if unknown:
        raise DataError(
            f"LoRA: the model has no module {', '.join(unknown)}; train all weights, or name its linear layers in "
            "train.lora.targets of a profile"
        )
    more: dict[str, Any] = {"task_type": "TOKEN_CLS"}  # this trains the layer of the classes
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
    """Write the adapter of a ``with_adapter`` model to ``folder / "adapter"``, without the path of its base model."""
    for config in model.peft_config.values():
        config.base_model_name_or_path = None
        config.inference_mode = True
    model.save_pretrained(folder / _ADAPTER, safe_serialization=True, save_embedding_layers=False)
    (folder / _ADAPTER / "README.md").unlink(missing_ok=True)  # an empty model card


def merge(model: Any) -> Any:
    """The base model of a ``with_adapter`` model with its weights changed by the adapter, in float32.

    A bfloat16 base is converted first, so that every weight is rounded once, when it is saved.
    """
    return model.float().merge_and_unload()
