"""The policy's servers and the GPUs of a stage that samples or searches.

The policy's servers have GPUs of their own. Each worker that holds a PRM, or the policy itself, has another one. With
``search.shared_card`` a server and a worker share a GPU: the server takes ``search.vllm.gpu_memory_utilization`` of its
memory, the PRM needs the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ground.io import DataError
from pathfinder.core.params import Search
from pathfinder.engines.vllm_server import gpus_of, vllm_servers
from pathfinder.models import cards
from pathfinder.models.folders import open_model

POLICY = Path("artifacts/raw/models/policy")
_LOGS = Path(".pathfinder/vllm/policy")


def policy_cards(search: Search) -> int:
    """The number of GPUs of a worker that draws from the policy and needs no other model."""
    return 1 if search.engine == "transformers" else 0


def deciding(search: Search) -> dict[str, Any]:
    """The settings that determine samples: neither addresses nor GPUs."""
    served = search.vllm.dtype if search.engine == "vllm" else None
    return search.model_dump(exclude={"vllm", "base_url", "shared_card"}) | {"served": served}


@contextmanager
def policy_servers(
    search: Search, workers: int, each: int, check: Callable[[], None]
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Start the policy's servers if the parameters ask for them, and lease every GPU of the stage.

    The stage has ``workers`` (0: as many as GPUs are left for, or one) with ``each`` GPUs. Yields the servers' URLs,
    none if the policy runs in the workers, and the number of workers. ``check`` is called before anything starts, while
    this process holds the GPUs. Raises ``DataError`` if there are too few GPUs.
    """
    servers = gpus_of(search.vllm) if search.engine == "vllm" else 0
    visible = len(cards.visible())
    left = servers if search.shared_card and servers else visible - servers
    workers = workers or max(left // max(each, 1), 1)
    needed = max(servers, workers * each) if search.shared_card else servers + workers * each
    if visible and needed > visible:
        raise DataError(
            f"the policy's servers and the PRM need {needed} GPUs, {visible} are visible; lower search.vllm.replicas, "
            "search.vllm.tensor_parallel or score.processes, or let them share: search.shared_card true"
        )
    with cards.lease(needed):
        check()
        if search.engine == "transformers":
            yield (), workers
            return
        if search.engine == "openai":
            yield (search.base_url,), workers
            return
        longest = open_model(POLICY).config.positions
        with (
            cards.lease(servers, shared=search.shared_card) as mine,
            vllm_servers(POLICY, "policy", longest, search.vllm, _LOGS, mine) as urls,
        ):
            yield tuple(urls), workers
