"""In every Python process of the rehearsal: let accelerate's FSDP run on CPUs with gloo.

accelerate shards only on GPUs, torch on any device. Only the processes of a launcher are changed.
"""

import os

if "RANK" in os.environ and os.environ.get("ACCELERATE_USE_FSDP") == "true":
    import torch
    from accelerate.state import DistributedType, PartialState

    def _backend(self: object, *_: object, **__: object) -> tuple[str, DistributedType]:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
        return "gloo", DistributedType.MULTI_GPU

    PartialState._prepare_backend = _backend
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
