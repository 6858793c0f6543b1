"""Drawings as inline SVG: lines, values with intervals, and the flow of records. Same input, same bytes.

Colours are the page's CSS variables, so that a drawing follows light and dark. Text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stages.core.page import escape

_WIDTH = 640
_COLOURS = ("var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")  # told apart without colour too


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval; a baseline is drawn hollow."""

    name: str
    value: float
    low: float
    high: float
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """A station of the flow of records: what stays, and what leaves by reason."""

    name: str
    kept: int
    left: Mapping[str, int]


def line_chart(series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str) -> str:
    """One line a name; points are ``(x, y)``. An empty chart says so."""
    points = [point for line in series.values() for point in line if math.isfinite(point[1])]
    if not points:
        return _svg(40, [_text(8, 24, "nothing to draw yet")])
    legend = 18 * len(series)
    left, top, bottom = 52, 16, 44 + legend
    height = 240 + bottom
    right = _WIDTH - 12
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_of = _Scale(min(xs), max(xs), left, right)
    low, high, step = _ticks(min(0.0, *ys), max(ys))
    y_of = _Scale(low, high, height - bottom, top)
    parts = []
    for tick in _range(low, high, step):
        parts += [_rule(left, y_of(tick), right, y_of(tick)), _text(left - 6, y_of(tick) + 4, f"{tick:g}", "end")]
    x_low, x_high, x_step = _ticks(min(xs), max(xs))
    for tick in _range(x_low, x_high, x_step):
        if min(xs) <= tick <= max(xs):
            parts.append(_text(x_of(tick), height - bottom + 16, f"{tick:g}", "middle"))
    for place, (name, line) in enumerate(series.items()):
        colour, dash = _COLOURS[place % 4], _DASHES[place % 4]
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in line if math.isfinite(y))
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{path}" {style}/>')
        y = height - legend + 18 * place
        parts.append(f'<polyline points="{left},{y} {left + 24},{y}" {style}/>')
        parts.append(_text(left + 30, y + 4, name))
    parts.append(_text(right, height - bottom + 32, x_label, "end", "dim"))
    parts.append(_text(left, top - 4, y_label, "start", "dim"))
    return _svg(height, parts)


def interval_chart(bars: Sequence[Bar], label: str) -> str:
    """Each value as a dot on its interval, on one axis that starts at zero."""
    if not bars:
        return _svg(40, [_text(8, 24, "nothing to draw yet")])
    row, left, right = 24, 235, _WIDTH - 56
    height = row * len(bars) + 44
    low, high, step = _ticks(0.0, max(bar.high for bar in bars))
    x_of = _Scale(low, high, left, right)
    parts = []
    for tick in _range(low, high, step):
        parts += [_rule(x_of(tick), 8, x_of(tick), height - 34), _text(x_of(tick), height - 20, f"{tick:g}", "middle")]
    for place, bar in enumerate(bars):
        y, colour = 20 + row * place, _COLOURS[1 if bar.is_baseline else 0]
        fill = "var(--bg)" if bar.is_baseline else colour
        parts.append(_text(left - 10, y + 4, bar.name, "end"))
        parts.append(
            f'<line x1="{x_of(bar.low):.1f}" y1="{y}" x2="{x_of(bar.high):.1f}" y2="{y}" '
            f'stroke="{colour}" stroke-width="3"/>'
        )
        parts.append(
            f'<circle cx="{x_of(bar.value):.1f}" cy="{y}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_text(x_of(bar.high) + 8, y + 4, f"{bar.value:.1f}"))
    parts.append(_text(right, height - 4, label, "end", "dim"))
    return _svg(height, parts)


def flow_chart(stops: Sequence[Stop]) -> str:
    """Records from stage to stage: the band's height is the number kept, what leaves is listed beside it."""
    if not stops:
        return _svg(40, [_text(8, 24, "nothing to draw yet")])
    tallest = max([1, *(stop.kept + sum(stop.left.values()) for stop in stops)])
    row, left = 78, 130
    full = 240.0
    parts = []
    for place, stop in enumerate(stops):
        y = 10 + row * place
        width, lost = full * stop.kept / tallest, full * sum(stop.left.values()) / tallest
        parts.append(_text(left - 10, y + 20, stop.name, "end"))
        parts.append(
            f'<rect x="{left}" y="{y}" width="{max(width, 1):.1f}" height="32" fill="var(--c0)" opacity="0.75"/>'
        )
        if lost:
            parts.append(
                f'<rect x="{left + width:.1f}" y="{y}" width="{max(lost, 1):.1f}" height="32" fill="none" '
                'stroke="var(--c1)" stroke-dasharray="3 2"/>'
            )
        parts.append(_text(left, y + 48, f"{stop.kept:,} kept", "start", "dim"))
        reasons = sorted(stop.left.items(), key=lambda item: (-item[1], item[0]))
        for line, (reason, count) in enumerate(reasons[:3]):
            more = f" (and {len(reasons) - 3} more)" if line == 2 and len(reasons) > 3 else ""
            parts.append(_text(left + full + 20, y + 12 + 15 * line, f"− {count:,} {reason}{more}"))
    return _svg(row * len(stops) + 4, parts)


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="var(--line)"/>'


class _Scale:
    """A linear map from a range of values to a range of places; a single value lands in the middle."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._span, self._start, self._end = low, high - low, start, end

    def __call__(self, value: float) -> float:
        share = (value - self._low) / self._span if self._span else 0.5
        return self._start + share * (self._end - self._start)


def _ticks(low: float, high: float) -> tuple[float, float, float]:
    """Round bounds around a range and the step between about five ticks."""
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6)
    return math.floor(low / step) * step, math.ceil(high / step) * step, step


def _range(low: float, high: float, step: float) -> list[float]:
    return [round(low + step * i, 10) for i in range(round((high - low) / step) + 1)]
