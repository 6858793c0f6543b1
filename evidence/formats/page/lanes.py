"""The lanes of a graph that is drawn from top to bottom, one row per node, as version histories are drawn."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

_LANE = 14  # CSS pixels
_LEFT = 12


@dataclass(frozen=True, slots=True)
class Strand:
    """A part of an edge within a row: from lane ``top`` at the upper border to lane ``bottom`` at the lower one.

    ``None`` is the node itself. ``to`` is the node at the edge's end, ``by`` the nodes that it comes from.
    """

    top: int | None
    bottom: int | None
    to: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A node's lane, the strands of its row, and the strands below the row."""

    lane: int
    strands: tuple[Strand, ...]
    below: tuple[Strand, ...]


def reduced(parents: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The edges, except edges that a longer way replaces.

    ``parents`` names the nodes that each node was made from, and has each node before its parents.
    """
    above: dict[str, set[str]] = {}
    for node in reversed(list(parents)):
        ends = parents[node]
        above[node] = {*ends}.union(*(above.get(end, ()) for end in ends))
    return {
        node: [one for one in ends if not any(one in above.get(other, ()) for other in ends if other != one)]
        for node, ends in parents.items()
    }


def rows_of(order: Sequence[str], parents: Mapping[str, Sequence[str]]) -> dict[str, Row]:
    """A row per node; ``order`` names each node before its parents."""
    lanes: dict[int, tuple[str, tuple[str, ...]]] = {}  # the edge in each used lane: its end, and where it comes from
    rows = {}
    for node in order:
        strands = [Strand(lane, None if to == node else lane, to, by) for lane, (to, by) in lanes.items()]
        own = next((lane for lane, (to, _) in lanes.items() if to == node), _free(lanes))
        lanes = {lane: edge for lane, edge in lanes.items() if edge[0] != node}
        for parent in parents.get(node, ()):
            lane = next((lane for lane, (to, _) in lanes.items() if to == parent), None)
            if lane is None:
                lane = _free(lanes) if own in lanes else own
            _, by = lanes.get(lane, (parent, ()))
            lanes = dict(sorted({**lanes, lane: (parent, (*by, node))}.items()))
            strands.append(Strand(None, lane, parent, (node,)))
        below = tuple(Strand(lane, lane, *edge) for lane, edge in lanes.items())
        rows[node] = Row(own, tuple(strands), below)
    return rows


def width_of(rows: Mapping[str, Row]) -> int:
    """The width of all lanes in CSS pixels."""
    used = [row.lane for row in rows.values()]
    used += [lane for row in rows.values() for s in row.strands for lane in (s.top, s.bottom) if lane is not None]
    return 2 * _LEFT + _LANE * max(used, default=0)


def x_of(lane: int) -> int:
    """The middle of a lane in CSS pixels."""
    return _LEFT + _LANE * lane


def path_of(strand: Strand, lane: int) -> str:
    """The SVG path of a strand in a row of height 100 whose node is in ``lane``."""
    if strand.top is not None and strand.bottom is not None:
        return f"M{x_of(strand.top)},0V100"
    if strand.top is not None:
        start, end = x_of(strand.top), x_of(lane)
        return f"M{start},0V50" if start == end else f"M{start},0C{start},30 {end},20 {end},50"
    start, end = x_of(lane), x_of(strand.bottom or 0)
    return f"M{start},50V100" if start == end else f"M{start},50C{start},80 {end},70 {end},100"


def _free(lanes: Container[int]) -> int:
    return next(lane for lane in count() if lane not in lanes)
