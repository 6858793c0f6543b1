"""Inline SVG charts: lines, values with intervals, scattered points and the flow of records.

The same input gives the same bytes. Colours are the page's CSS variables, so charts follow the light and dark themes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pathfinder.pages.page import escaped

_WIDTH = 460
_NARROW = 400  # fits a phone without scrolling
_WIDE = 640  # scrolls on a phone: the names of its points need the room
_FLOW_WIDTH, _FLOW_BAR, _FLOW_ROW = 450, 190, 84
_FLOW_RIGHT = _FLOW_BAR + 30  # records that leave are drawn 14 to the right of those that stay
_COLOURS = tuple(f"var(--c{number})" for number in range(6))
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "12 4", "1 4")  # lines also differ without colour

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval; baselines are drawn hollow."""

    name: str
    value: float
    low: float
    high: float
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class Station:
    """One station of the flow of records: arrivals by source, and departures after it by reason."""

    name: str
    bands: Mapping[str, int]
    left: Mapping[str, int]
    note: str = ""


def line_chart(
    series: Mapping[str, Points],
    x_label: str,
    y_label: str,
    spans: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
    guide: str = "",
) -> str:
    """One line per name, through points ``(x, y)``.

    ``spans`` are intervals ``(x, low, high)`` of a line's points. With them, points are marked and the y axis starts
    near the smallest value instead of at zero. ``guide`` names a reference line, drawn faintly.
    """
    points = [point for line in series.values() for point in line if math.isfinite(point[1])]
    if not points:
        return _empty()
    legend = 18 * len(series)
    left, right, top, base, height = 52, _WIDTH - 12, 16, 240, 284 + legend
    xs, ys = [x for x, _ in points], [y for _, y in points]
    ends = [end for line in (spans or {}).values() for _, *ends in line for end in ends]
    x_of = _Axis(xs, left, right, is_round=False)
    y_of = _Axis([*ys, *ends, *([0.0] if spans is None else [])], base, top)
    parts = _y_grid(y_of, left, right)
    parts += [_text(x_of(tick), base + 16, f"{tick:g}", "middle") for tick in x_of.ticks]
    for place, (name, line) in enumerate(series.items()):
        colour, dash = ("var(--dim)", "3 4") if name == guide else _stroke(place)
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in line if math.isfinite(y))
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{path}" {style}/>')
        for x, start, end in (spans or {}).get(name, ()):
            interval = f"M{x_of(x):.1f},{y_of(start):.1f} V{y_of(end):.1f}"
            parts.append(f'<path d="{interval}" stroke="{colour}" stroke-width="2"/>')
        if spans is not None and name != guide:
            parts += [_mark(x_of(x), y_of(y), place) for x, y in line if math.isfinite(y)]
        y = height - legend + 18 * place
        parts.append(f'<polyline points="{left},{y} {left + 24},{y}" {style}/>')
        parts.append(_text(left + 30, y + 4, name))
    parts.append(_text(right, base + 32, x_label, "end", "dim"))
    parts.append(_text(left, top - 4, y_label, "start", "dim"))
    return _svg(height, parts)


def interval_chart(bars: Sequence[Bar], label: str) -> str:
    """One row per value: a dot on its interval. The axis starts at zero."""
    if not bars:
        return _empty()
    x_of = _Axis([0.0, max(bar.high for bar in bars) or 100.0], 10, _NARROW - 46)
    step, top = 36, 30
    height = step * len(bars) + 44
    parts = _x_grid(x_of, 8, height, label)
    for place, bar in enumerate(bars):
        y, colour = top + step * place, _COLOURS[1 if bar.is_baseline else 0]
        fill = "var(--bg)" if bar.is_baseline else colour
        ends = f'x1="{x_of(bar.low):.1f}" y1="{y}" x2="{x_of(bar.high):.1f}" y2="{y}"'
        centre = f'cx="{x_of(bar.value):.1f}" cy="{y}"'
        parts.append(_text(10, y - 12, bar.name))
        parts.append(f'<line {ends} stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<circle {centre} r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(x_of(bar.high) + 8, y + 4, f"{bar.value:.1f}"))
    return _svg(height, parts, _NARROW, "narrow")


def dot_chart(rows: Mapping[str, Mapping[str, float]], label: str) -> str:
    """One row per system with a mark per series; series differ in colour and shape."""
    values = [value for row in rows.values() for value in row.values()]
    if not values:
        return _empty()
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    x_of = _Axis(values, 10, _NARROW - 16)
    step, top = 34, 18 * len(names) + 18
    height = top + step * len(rows) + 34
    parts = _x_grid(x_of, top - 8, height, label)
    for place, name in enumerate(names):
        parts += [_mark(16, 10 + 18 * place, place), _text(28, 14 + 18 * place, name)]
    for line, (name, row) in enumerate(rows.items()):
        y = top + 20 + step * line
        parts.append(_text(10, y - 12, name))
        parts += [_mark(x_of(row[series]), y, place) for place, series in enumerate(names) if series in row]
    return _svg(height, parts, _NARROW, "narrow")


def scatter_chart(series: Mapping[str, Sequence[tuple[float, float, str]]], x_label: str, y_label: str) -> str:
    """Named points ``(x, y, name)`` over a logarithmic x axis; series differ in colour and shape."""
    points = [point for line in series.values() for point in line]
    if not points:
        return _empty()
    left, right, top, height = 44, _WIDE - 12, 34, 360
    base = height - 46
    start, end = min(x for x, _, _ in points) / 1.4, 1.4 * max(x for x, _, _ in points)
    decades = range(math.floor(math.log10(start)), math.ceil(math.log10(end)) + 1)
    log_axis = _Axis([math.log10(start), math.log10(end)], left, right, is_round=False)
    y_of = _Axis([y for _, y, _ in points], base, top)

    def x_of(value: float) -> float:
        return log_axis(math.log10(value))

    parts = _y_grid(y_of, left, right)
    for tick in (factor * 10.0**decade for decade in decades for factor in (1, 2, 5)):
        if start <= tick <= end:
            parts.append(_text(x_of(tick), base + 16, _short(tick), "middle"))
    taken = [(x_of(x) - 5, x_of(x) + 5, y_of(y) + 4) for x, y, _ in points]  # left, right and base of each mark
    for place, (name, line) in enumerate(series.items()):
        x = left + (right - left) / len(series) * place
        parts += [_mark(x + 6, 10, place), _text(x + 16, 14, name)]
        for amount, value, label in line:
            spot = x_of(amount), y_of(value)
            parts += [_mark(*spot, place), _label(*spot, label, right, taken)]
    parts.append(_text(right, height - 4, x_label, "end", "dim"))
    parts.append(_text(left, top - 4, y_label, "start", "dim"))
    return _svg(height, parts, _WIDE, "wide")


def _short(number: float) -> str:
    """2,000,000 as 2M, 5,000 as 5K."""
    size, letter = next((pair for pair in ((1e6, "M"), (1e3, "K")) if number >= pair[0]), (1.0, ""))
    return f"{number / size:g}{letter}"


def _label(x: float, y: float, text: str, right: float, taken: list[tuple[float, float, float]]) -> str:
    """A point's name at the first free place of ten around it; ``taken`` grows by that place."""
    width = 7.2 * len(text)  # assumes a wide font, because the reader's font is unknown
    spots = [(side, drop) for drop in (4, -8, 16, -20, 28) for side in (9, -9 - width)]
    fits = [
        (x + dx, y + dy)
        for dx, dy in spots
        if x + dx + width <= right
        and x + dx >= 0
        and all(y + dy - 12 > ty or y + dy + 12 < ty or x + dx > tr or x + dx + width < tl for tl, tr, ty in taken)
    ]
    left, base = fits[0] if fits else (x + 9, y + 4)
    taken.append((left, left + width, base))
    return _text(left, base, text)


def _stroke(place: int) -> tuple[str, str]:
    """Colour and dashes of a line; 36 lines differ in one or both."""
    return _COLOURS[place % 6], _DASHES[(place + place // 6) % 6]


def _mark(x: float, y: float, place: int) -> str:
    """A disc, a square, a triangle or a diamond, so that series differ without colour."""
    colour = _COLOURS[place % 6]
    corners = {1: "-5,-5 5,-5 5,5 -5,5", 2: "0,-6 6,5 -6,5", 3: "0,-7 6,0 0,7 -6,0"}.get(place % 4)
    if corners is None:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
    return f'<polygon points="{corners}" transform="translate({x:.1f} {y:.1f})" fill="{colour}"/>'


def flow_chart(stations: Sequence[Station]) -> str:
    """Records flowing down from station to station; widths are proportional and each source is a band.

    The next station's arrivals continue downwards. The rest of each band turns away between the two.
    """
    if not stations:
        return _empty()
    sources = list(dict.fromkeys(source for station in stations for source in station.bands))
    most = max(1, *(sum(station.bands.values()) for station in stations))
    colours = {source: _COLOURS[place % 6] for place, source in enumerate(sources)}
    parts, top = [], 30
    for place, source in enumerate(sources):
        x = 4 + _FLOW_WIDTH / len(sources) * place
        parts.append(f'<rect x="{x:.1f}" y="4" width="10" height="10" fill="{colours[source]}"/>')
        parts.append(_text(x + 15, 13, source))
    for place, station in enumerate(stations):
        y = top + _FLOW_ROW * place
        parts.append(_text(_FLOW_RIGHT, y + 10, f"{station.name}: {sum(station.bands.values()):,}", kind="name"))
        following = stations[place + 1].bands if place + 1 < len(stations) else None
        parts += _flow(station, following, y, _FLOW_BAR / most, colours)
        lines = _losses(station.left) if following is not None else []
        for line, text in enumerate([station.note] * bool(station.note) + lines):
            parts.append(_text(_FLOW_RIGHT, y + 28 + 15 * line, text))
    height = top + _FLOW_ROW * (len(stations) - 1) + 36
    return _svg(height, parts, _FLOW_WIDTH, "flow")


def _flow(
    station: Station, following: Mapping[str, int] | None, y: float, scale: float, colours: Mapping[str, str]
) -> list[str]:
    """A station's bar and its bands down to the next bar. Departures are to the right of the records that stay."""
    parts = []
    x, onward = 4.0, 4.0
    out = 4.0 + scale * sum((following or {}).values()) + 14
    for source, count in station.bands.items():
        width, colour = scale * count, colours[source]
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(width, 1):.1f}" height="10" fill="{colour}"/>')
        if following is not None:
            stays = scale * min(count, following.get(source, 0))
            parts.append(_band(x, onward, stays, y + 10, y + _FLOW_ROW, colour, 0.45))
            parts.append(_band(x + stays, out, width - stays, y + 10, y + 50, colour, 0.2))
            onward, out = onward + stays, out + width - stays
        x += width
    return parts


def _band(start: float, end: float, width: float, y1: float, y2: float, colour: str, opacity: float) -> str:
    """A band of constant width between two heights, bent in the middle; empty if it has no width."""
    if width <= 0:
        return ""
    middle, width = (y1 + y2) / 2, max(width, 0.6)
    down = f"C{start:.1f},{middle:.1f} {end:.1f},{middle:.1f} {end:.1f},{y2:.1f}"
    right, lower = start + width, end + width
    back = f"C{lower:.1f},{middle:.1f} {right:.1f},{middle:.1f} {right:.1f},{y1:.1f}"
    path = f"M{start:.1f},{y1:.1f} {down} L{lower:.1f},{y2:.1f} {back} Z"
    return f'<path d="{path}" fill="{colour}" opacity="{opacity}"/>'


def _losses(left: Mapping[str, int]) -> list[str]:
    """Up to three lines: the most frequent reasons, then the sum of the others."""
    reasons = sorted(left.items(), key=lambda item: (-item[1], item[0]))
    shown = reasons[: 3 if len(reasons) <= 3 else 2]
    lines = [f"− {count:,} {reason}" for reason, count in shown]
    if rest := reasons[len(shown) :]:
        lines.append(f"− {sum(count for _, count in rest):,} for {len(rest)} more reasons")
    return lines


def _empty() -> str:
    return _svg(40, [_text(8, 24, "no data yet")])


def _svg(height: float, parts: Iterable[str], width: int = _WIDTH, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<svg{name} viewBox="0 0 {width} {height:.0f}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{place}{name}>{escaped(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="var(--line)"/>'


class _Axis:
    """A linear map from values to places, with about five round ``ticks``; one single value maps to the middle.

    The axis ends at round numbers around the values, or exactly at the values unless it ``is_round``.
    """

    def __init__(self, values: Sequence[float], start: float, end: float, is_round: bool = True) -> None:
        low, high = min(values), max(values)
        span = high - low or abs(high) or 1.0
        power = 10.0 ** math.floor(math.log10(span / 5))
        step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6)
        first, last = math.floor(low / step), math.ceil(high / step)
        ticks = [round(step * place, 10) for place in range(first, last + 1)]
        self.ticks = ticks if is_round else [tick for tick in ticks if low <= tick <= high]
        self._low, self._high = (first * step, last * step) if is_round else (low, high)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        span = self._high - self._low
        share = (value - self._low) / span if span else 0.5
        return self._start + share * (self._end - self._start)


def _y_grid(y_of: _Axis, left: float, right: float) -> list[str]:
    rules = [_rule(left, y_of(tick), right, y_of(tick)) for tick in y_of.ticks]
    return rules + [_text(left - 6, y_of(tick) + 4, f"{tick:g}", "end") for tick in y_of.ticks]


def _x_grid(x_of: _Axis, top: float, height: float, label: str) -> list[str]:
    rules = [_rule(x_of(tick), top, x_of(tick), height - 34) for tick in x_of.ticks]
    ticks = [_text(x_of(tick), height - 20, f"{tick:g}", "middle") for tick in x_of.ticks]
    return [*rules, *ticks, _text(x_of(x_of.ticks[-1]), height - 4, label, "end", "dim")]
