"""The queues of a work pool by priority: what a person waits for starts before what can wait."""

from __future__ import annotations

from prefect.client.orchestration import SyncPrefectClient

ORDER = ("on-demand", "default", "scheduled", "background")
"""The queues that prefect.yaml names, and Prefect's own, the most urgent one first."""


def prioritise(client: SyncPrefectClient) -> None:
    """Give the queues of every pool that has them their priorities."""
    queues = {(queue.work_pool_name or "", queue.name): queue for queue in client.read_work_queues()}
    for pool in sorted({pool for pool, _ in queues}):
        ours = [queues[pool, name] for name in ORDER if (pool, name) in queues]
        if [queue.name for queue in ours] != ["default"]:
            for number, queue in enumerate(ours, start=1):
                client.update_work_queue(queue.id, priority=number)
