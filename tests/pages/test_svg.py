"""Charts by their elements: one mark per value, names that do not overlap, proportional widths, escaped text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from pathfinder.pages.svg import Bar, Station, dot_chart, flow_chart, interval_chart, line_chart, scatter_chart
from tests.support.drawings import standalone

SVG = "{http://www.w3.org/2000/svg}"


def _parts(drawing: str, kind: str) -> list[ET.Element]:
    return list(ET.fromstring(drawing).iter(f"{SVG}{kind}"))  # noqa: S314 (our own drawing)


def test_a_dot_chart_marks_every_value_and_names_each_series() -> None:
    drawing = dot_chart({"one": {"a": 10.0, "b": 20.0}, "<two> & more": {"b": 30.0}}, "percent")
    assert len(_parts(drawing, "circle")) == 1 + 1  # the legend's and one value
    assert len(_parts(drawing, "polygon")) == 1 + 2
    assert {"one", "<two> & more", "a", "b"} <= {part.text for part in _parts(drawing, "text")}
    assert "no data yet" in dot_chart({}, "percent")


def test_points_are_spaced_by_logarithm_and_their_names_do_not_overlap() -> None:
    points = [(1e3, 50.0, "small"), (1e4, 50.0, "middle"), (1e5, 50.0, "large"), (1e5, 50.2, "its neighbour")]
    drawing = scatter_chart({"all": points}, "samples", "score")
    marks = [float(part.get("cx", 0)) for part in _parts(drawing, "circle")][1:]
    assert marks[1] - marks[0] == pytest.approx(marks[2] - marks[1], abs=0.2)
    names = {
        str(part.text): (float(part.get("x", 0)), float(part.get("y", 0)))
        for part in _parts(drawing, "text")
        if part.text in {name for *_, name in points}
    }
    assert len(names) == 4
    (x1, y1), (x2, y2) = names["large"], names["its neighbour"]
    assert abs(y1 - y2) >= 12 or x1 + 6 * len("large") <= x2 or x2 + 6 * len("its neighbour") <= x1
    assert {"1K", "10K", "100K"} <= {part.text for part in _parts(drawing, "text")}


def test_intervals_of_a_line_are_drawn_to_scale_and_the_axis_starts_near_them() -> None:
    drawing = line_chart({"a": [(1, 90), (2, 94)]}, "x", "y", {"a": [(1, 88, 92), (2, 93, 95)]})
    ends = [re.match(r"M([\d.]+),([\d.]+) V([\d.]+)", part.get("d", "")) for part in _parts(drawing, "path")]
    lengths = [float(found[2]) - float(found[3]) for found in ends if found]
    assert lengths[0] == pytest.approx(2 * lengths[1], abs=0.3)
    ticks = [float(part.text or 0) for part in _parts(drawing, "text") if re.fullmatch(r"\d+", part.text or "")]
    assert min(tick for tick in ticks if tick > 2) >= 80


def test_flow_widths_are_proportional_and_nothing_is_drawn_twice() -> None:
    flow = [Station("read", {"a": 80, "b": 20}, {"lost": 40}), Station("kept", {"a": 50, "b": 10}, {})]
    drawing = flow_chart(flow)
    bars = [float(width) for width in re.findall(r'width="([\d.]+)" height="10" fill="var\(--c\d\)"/>', drawing)][2:]
    assert bars == [bars[0], bars[0] / 4, bars[0] * 5 / 8, bars[0] / 8]
    bands = re.findall(r'd="M([\d.]+),[\d.]+ C\S+ \S+ ([\d.]+),[\d.]+ L([\d.]+),', drawing)
    widths = [float(right) - float(left) for _, left, right in bands]
    assert sum(widths) == pytest.approx(bars[0] + bars[1], abs=0.3)
    assert widths[0] == pytest.approx(bars[2], abs=0.2)
    assert flow_chart([]).count("no data yet") == 1


def test_hostile_names_stay_text() -> None:
    name = '"/><script>x</script>'
    for drawing in (
        interval_chart([Bar(name, 1, 0, 2)], name),
        dot_chart({name: {name: 1.0, "b": 2.0}}, name),
        scatter_chart({name: [(1, 1, name), (2, 2, name)]}, name, name),
        line_chart({name: [(0, 0), (1, 1)]}, name, name),
    ):
        assert not _parts(drawing, "script")
        assert name in {part.text for part in _parts(drawing, "text")}


def test_points_with_intervals_are_marked_and_the_guide_s_are_not() -> None:
    lines = {"a": [(0.0, 0.2), (1.0, 0.9)], "ideal": [(0.0, 0.0), (1.0, 1.0)]}
    assert not _parts(line_chart(lines, "x", "y", guide="ideal"), "circle")
    assert len(_parts(line_chart(lines, "x", "y", spans={}, guide="ideal"), "circle")) == 2


def test_a_standalone_drawing_has_the_page_s_colours() -> None:
    drawing = line_chart({"a & <b>": [(2, 0.5), (64, 66.4)], "c": [(2, 0.1), (64, 3.2)]}, "steps", "seconds")
    alone = standalone(drawing)
    (style,) = _parts(alone, "style")
    assert style.text is not None
    used = set(re.findall(r"var\((--\w+)\)", alone))
    assert used <= set(re.findall(r"(--\w+):", style.text))
    assert "--bg" in used
    assert alone.count("<polyline") == drawing.count("<polyline") == 4


def test_twelve_lines_differ_in_colour_or_dashes() -> None:
    chart = line_chart({f"line {place}": [(0.0, place), (1.0, place)] for place in range(12)}, "x", "y")
    strokes = re.findall(r'<polyline [^>]*stroke="([^"]*)"[^>]*stroke-dasharray="([^"]*)"', chart)
    assert len(set(strokes)) == 12
