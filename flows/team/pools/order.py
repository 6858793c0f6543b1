"""A signed order: the one stage that a run asks a machine to compute. Any launcher may carry it there.

It is a DSSE envelope. The machine computes it only if its own clone trusts the key, so whoever can start a worker's
deployment or reach a machine's launcher still cannot choose what it computes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evidence.audit.trust import trusted_keys
from evidence.record.signing import opened_as, sign
from evidence.settings import VENDOR, Form, parsed

TYPE = f"application/vnd.{VENDOR}.order+json"
FAILED = "the order failed ({}): {}"
"""The line by which a machine says the class of an error (flows.places) and its message."""
_WHERE = "the order"
_REMEDY = (
    "no key that this machine trusts signed it; commit the public key of whoever starts the run to infra/keys/ "
    "(docs/audit.md), and update the clone of this machine"
)
Outs = list[dict[str, Any]]
"""Outs as the lock has them: path, md5, size."""


class Ordered(Form):
    """A stage of a commit, with the outs that it reads by the stage that made them.

    ``params`` is the text of params.yaml, empty for the commit's own. With ``force`` the stage runs even if its result
    is known, and ``part`` (2/3) asks for a part of its work. ``remote`` has the inputs and gets the result. ``parent``
    is the flow run that waits.
    """

    stage: str
    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$|^[0-9a-f]{64}$")]
    params: str = ""
    inputs: dict[str, Outs] = Field(default_factory=dict)
    force: bool = False
    remote: str
    parent: str = ""
    part: str = ""

    def __str__(self) -> str:
        return f"{self.stage}{self.part and f' part {self.part}'} at {self.commit[:8]}"


def signed(order: Ordered) -> str:
    """The order in an envelope that this user's key signed; raises ``DataError`` as ``own_key`` does."""
    return json.dumps(sign(order.model_dump_json().encode(), TYPE))


def verified(text: str, root: Path) -> Ordered:
    """The order in an envelope; raises ``DataError`` unless a key signed it that ``root`` trusts now."""
    keys = trusted_keys(root)
    payload, signers = opened_as(TYPE, text.encode(), keys, _WHERE, _REMEDY)
    keys.require_valid(signers, _WHERE, "start the run with a key that is valid now")
    return parsed(Ordered, payload, _WHERE)
