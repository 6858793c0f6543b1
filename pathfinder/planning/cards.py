"""NVIDIA's cards by name (``cards.yaml``): memory and peaks, for plans, estimates and the doctor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ground.io import DataError
from ground.settings import read_yaml
from ground.text import printable
from pathfinder.models.cards import GIB, Device, gpus

_FILE = Path(__file__).with_name("cards.yaml")
_SIMILAR = 0.9
"""Cards are alike in memory if the smaller has this share of the larger."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card's memory in GiB, its peaks (TFLOP/s in dense bfloat16, TB/s), and where they are from."""

    name: str
    gib: float
    tflops: float
    tbps: float
    source: str


@cache
def known() -> tuple[Card, ...]:
    """The cards of the table."""
    return tuple(Card(**row) for row in read_yaml(_FILE)["cards"])


def machine(name: str, count: int) -> Device:
    """``count`` free cards of this name; raises ``DataError`` if the table has no such card."""
    card = _named(name)
    if card is None:
        names = ", ".join(card.name for card in known())
        raise DataError(f"{printable(name)[:80]}: no such card; expected one of {names}, or --memory without a name")
    return gpus(card.gib, count, card.name)


def card_of(device: Device) -> Card:
    """The card whose peaks ``device`` has: by its name or, without a name, the slowest card of similar memory."""
    gib = device.total / GIB
    found = _named(device.name)
    alike = {card: min(card.gib, gib) / max(card.gib, gib) for card in known()}
    return found or min(alike, key=lambda card: (-min(alike[card], _SIMILAR), card.tflops))


def _named(name: str) -> Card | None:
    """The card whose words all occur in ``name``, which a person or nvidia-smi wrote."""
    words = _words(name)
    return max((card for card in known() if _words(card.name) <= words), key=lambda card: len(card.name), default=None)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[A-Z0-9]+", name.upper()))
