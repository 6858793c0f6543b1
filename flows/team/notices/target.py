"""The receiver of notices: a block of the Prefect server, which holds the address and its secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast
from uuid import UUID

from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook

from ground.io import DataError

BLOCK = "pathfinder-notices"


@dataclass(frozen=True, slots=True)
class Target:
    """A block that the server sends with; a webhook gets JSON, every other block a subject and a text."""

    block: UUID
    is_webhook: bool


def target(name: str) -> Target:
    """The block ``name``, such as ``slack-webhook/team``; an address gets or updates a webhook block of its own.

    Raises ``DataError`` if the server has no such block, or the block sends no messages.
    """
    if "://" in name:
        webhook = Webhook(url=name, headers={"Content-Type": "application/json"})
        return Target(UUID(str(webhook.save(BLOCK, overwrite=True))), True)
    try:
        block = cast(Block, Block.load(name))
    except ValueError as error:
        raise DataError(
            f"{name}: the Prefect server has no such block; create it on the server's page, and name it as TYPE/NAME, "
            "for example slack-webhook/team"
        ) from error
    if not isinstance(block, Webhook) and "notify" not in block.get_block_capabilities():
        raise DataError(f"{name}: sends no messages; name a block for notifications or a webhook")
    return Target(UUID(str(block._block_document_id)), isinstance(block, Webhook))
