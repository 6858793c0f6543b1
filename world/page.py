"""The statistics page of a generated world: class balance, faults, misreadings, leakage and difficulty.

Reads   FOLDER (default: data/): corpora and world.json; with --solve also models/base, the policy
Writes  reports/world/index.html, reports/world/statistics.{md,json}
Run     python -m world.page [FOLDER] [--solve STORIES] [--world rich]

``--solve`` adds the difficulty section; 200 stories take a minute or two on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ground.io import atomic_folder, write_json, write_text
from ground.text import errors_without_traceback
from pathfinder.pages.page import Block, Figure, Page, Section, Table, Text, to_html, to_markdown
from pathfinder.pages.svg import line_chart
from world.oracle import INSTRUCTED, Truth
from world.statistics import Part, count, planted, shared
from world.story import WORLDS

OUT = Path("reports/world")
_FIGURES = {"pass@1": "pass@1", "mean": "mean of 8 samples", "maj@8": "maj@8", "pass@8": "pass@8"}
_RATINGS = ("1", "0", "-1", "none")
_SHOWN = {"sound": "correct", "first wrong": "first error"}

Parts = Mapping[str, Part]


def page_of(folder: Path, solved: Mapping[str, Any] | None = None) -> tuple[Page, dict[str, Any]]:
    """The page and its figures as JSON; ``solved`` is from ``measure_policy``. Raises as ``count`` does."""
    parts, known = count(folder), planted(folder)
    both = shared(parts)
    sections = [
        Section("Sizes", [_sizes(parts)]),
        Section("Class balance", [_labels(parts), _instructed(parts)]),
        Section("Faults", [_faults(parts)]),
        Section("The planted misconception", [_misconception(parts)]),
        Section("Leakage", _leakage(parts, both, known)),
    ]
    if solved is not None:
        sections.append(Section("Difficulty", _difficulty(solved)))
    lead = Text("Counted from the files: stories are parsed from their text, and the oracle labels each step again.")
    figures = {
        "parts": {name: part.figures() for name, part in parts.items()},
        "shared": {f"{a}, {b}": len(texts) for (a, b), texts in both.items()},
        "planted": len(known),
        "policy": solved,
    }
    return Page("The generated world in figures", [lead], sections), figures


def _sizes(parts: Parts) -> Table:
    caption = "Alternatives count as steps. For ProcessBench, steps after the first error do not count."
    headers = ("part", "items", "stories", "events per story", "steps", "correct, %", "outside the grammar")
    rows = []
    for name, part in parts.items():
        events = f"{_mean([len(problem.events) for problem in part.problems.values()]):.1f}"
        sizes = (f"{part.items:,}", f"{len(part.problems):,}", events, f"{part.steps:,}")
        rows.append((name, *sizes, _percent(part.sound, part.steps), f"{part.outside_the_grammar:,}"))
    return Table(caption, headers, rows)


def _labels(parts: Parts) -> Table:
    rows = []
    for name, part in parts.items():
        for label, n in sorted(part.labels.items()):
            equal = _percent(part.labels_as_the_oracle[label], n)
            rows.append((name, _SHOWN.get(label, label), f"{n:,}", _percent(n, part.steps), equal))
    caption = (
        "Recorded labels, and the share that an exact annotator of the same kind would also have given. A “-” of "
        "Mistral means that the true answer is out of reach after the step."
    )
    return Table(caption, ("part", "label", "steps", "share, %", "equal to the oracle's, %"), rows)


def _instructed(parts: Parts) -> Table:
    rows = []
    for kind, rating in INSTRUCTED.items():
        for name, part in parts.items():
            if name.startswith("PRM800K"):
                shown = [part.instructed[f"{kind}, {label}"] for label in _RATINGS]
                texts = [_percent(count, sum(shown)) for count in shown]
                rows.append((kind.replace("_", " "), f"{rating}", name, f"{sum(shown):,}", *texts))
    caption = (
        "Correct steps of the kinds that PRM800K's instructions name, with the rating that they ask for and the "
        "recorded ratings in percent. The oracle rates circling and planning 0, and the others 1."
    )
    return Table(caption, ("kind", "instructions", "part", "steps", *(f"rated {each}" for each in _RATINGS)), rows)


def _faults(parts: Parts) -> Table:
    shown = [name for name, part in parts.items() if part.steps]
    kinds = {**Truth.kinds, "–": ("none",)}
    rows = [
        (fault, kind, *(f"{parts[name].faults[fault]:,}" for name in shown))
        for kind, faults in kinds.items()
        for fault in faults
    ]
    return Table("Steps by fault. A step may have several faults.", ("fault", "kind", *shown), rows)


def _misconception(parts: Parts) -> Table:
    caption = "“Takes back” and “gives back” events of the hero, and the share of steps that misread them."
    headers = ("part", "per story", "stories with at least one, %", "steps about them", "misread, %")
    rows = []
    for name, part in parts.items():
        having, about = sum(n > 0 for n in part.tricky), part.steps_about_tricky_events
        stories = (f"{_mean(part.tricky):.2f}", _percent(having, len(part.problems)))
        rows.append((name, *stories, f"{about:,}", _percent(part.misread, about)))
    return Table(caption, headers, rows)


def _leakage(parts: Parts, both: dict[tuple[str, str], set[str]], known: set[str]) -> list[Block]:
    both = both | {(b, a): texts for (a, b), texts in both.items()}
    rows = []
    for name, part in parts.items():
        overlap = ["–" if name == other else f"{len(both[name, other]):,}" for other in parts]
        rows.append((name, *overlap, f"{part.stories_of_another_split:,}"))
    found = set().union(*both.values())
    summary = (
        f"{len(found):,} stories are in two parts. {len(found & known):,} of them are among the {len(known):,} that "
        "are planted to test the search for overlap."
    )
    caption = (
        "Stories that two parts share, and stories whose digest belongs to another split. Pretraining uses the split "
        "“train”, and our measurements use “held_out”."
    )
    return [Text(summary), Table(caption, ("part", *parts, "of another split"), rows)]


def _difficulty(solved: Mapping[str, Any]) -> list[Block]:
    levels = {name: found for name, found in solved["by_level"].items() if name != "all"}
    rows = [
        (name, *(f"{100 * found[key]:.1f}" for key in _FIGURES))
        for name, found in (levels | {"all": solved["by_level"]["all"]}).items()
    ]
    series = {
        title: [(float(place), 100 * found[key]) for place, found in enumerate(levels.values(), start=1)]
        for key, title in _FIGURES.items()
    }
    in_words = "; ".join(f"{title}: " + ", ".join(f"{y:.1f}" for _, y in line) for title, line in series.items())
    faults = solved["first_faults_at_temperature"]
    first = ", ".join(f"{name} {_percent(number, sum(faults.values()))} %" for name, number in faults.items())
    return [
        Figure(line_chart(series, "level", "percent"), f"{in_words}.", "Stories that the policy solves, by level 1-4."),
        Table("Percent of held-out stories that the policy solves.", ("level", *_FIGURES.values()), rows),
        Text(
            f"Without sampling the policy solves {100 * solved['greedy_answer_accuracy']:.1f} % of them. First fault "
            f"of its sampled solutions: {first}."
        ),
    ]


def _percent(number: int, total: int) -> str:
    return f"{100 * number / total:.1f}" if total else "–"


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def write_page(folder: Path, solved: Mapping[str, Any] | None = None) -> None:
    """Write the page, its Markdown and its figures to ``reports/world``."""
    page, figures = page_of(folder, solved)
    with atomic_folder(OUT) as target:
        write_text(target / "index.html", to_html(page))
        write_text(target / "statistics.md", to_markdown(page))
        write_json(target / "statistics.json", figures)
    print(f"{OUT}/index.html: {sum(figures['shared'].values())} stories in two parts, {figures['planted']} planted")


def main(
    folder: Annotated[Path, typer.Argument(help="a folder with the layout of data/")] = Path("data"),
    solve: Annotated[int, typer.Option(metavar="STORIES", help="held-out stories that the policy solves")] = 0,
    world: Annotated[Literal["small", "rich", "wide"], typer.Option(help="the world of these stories")] = "wide",
) -> None:
    """Write the statistics page of a generated world to reports/world."""
    with errors_without_traceback():
        write_page(folder, _solved(folder, solve, world) if solve else None)


def _solved(folder: Path, stories: int, world: str) -> dict[str, Any]:
    import torch  # only the difficulty section needs it, and importing it takes a second

    from pathfinder.engines.generate import Generator
    from world.abilities import measure_policy

    torch.set_num_threads(1)
    return measure_policy(Generator(folder / "models" / "base"), stories, WORLDS[world])


if __name__ == "__main__":
    typer.run(main)
