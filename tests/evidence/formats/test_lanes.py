"""The drawing of the graph: every edge is one unbroken line, and no two lines share a place by mistake."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from evidence.formats.page.lanes import path_of, reduced, rows_of, width_of

Graph = dict[str, list[str]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Nodes in an order in which each comes before its parents."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 12)))]
    return {name: [other for other in names[place + 1 :] if draw(st.booleans())] for place, name in enumerate(names)}


def way(graph: Graph, start: str, end: str) -> bool:
    return start == end or any(way(graph, parent, end) for parent in graph[start])


@given(graphs())
def test_an_edge_is_left_out_only_if_a_longer_way_leads_there(graph: Graph) -> None:
    kept = reduced(graph)
    for node, parents in graph.items():
        assert set(kept[node]) <= set(parents)
        assert all(way(kept, node, parent) for parent in parents)
        for parent in kept[node]:
            assert not any(way(graph, other, parent) for other in graph[node] if other != parent)


@given(graphs())
def test_lines_go_on_from_row_to_row_and_end_at_their_node(graph: Graph) -> None:
    order = list(graph)
    rows = rows_of(order, graph)
    open_lanes: dict[int, str] = {}
    arrived: dict[str, set[str]] = {node: set() for node in order}
    for node in order:
        row = rows[node]
        tops = {strand.top: strand.to for strand in row.strands if strand.top is not None}
        assert tops == open_lanes
        assert all(strand.bottom is None for strand in row.strands if strand.top is not None and strand.to == node)
        arrived[node] |= {name for s in row.strands if s.top is not None and s.to == node for name in s.by}
        passing = {s.bottom for s in row.strands if s.top is not None and s.bottom is not None}
        assert row.lane not in passing  # a line never runs through another node
        open_lanes = {strand.bottom: strand.to for strand in row.below if strand.bottom is not None}
        assert {s.bottom: s.to for s in row.strands if s.bottom is not None} == open_lanes
    assert open_lanes == {}
    assert {(child, node) for node, names in arrived.items() for child in names} == {
        (node, parent) for node, parents in graph.items() for parent in parents
    }


def test_a_line_and_a_fork_have_the_expected_lanes() -> None:
    order: Sequence[str] = "abcd"
    rows = rows_of(order, {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []})
    assert [rows[node].lane for node in order] == [0, 0, 1, 0]
    assert width_of(rows) == 2 * 12 + 14
    fork = [path_of(strand, 0) for strand in rows["a"].strands]
    assert fork == ["M12,50V100", "M12,50C12,80 26,70 26,100"]
