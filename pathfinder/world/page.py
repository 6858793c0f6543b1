"""The statistics page of a generated world: class balance, faults, misconceptions, leakage, difficulty.

Reads   FOLDER (data/ unless named): corpora and world.json; with --solve also models/base, the policy
Writes  reports/world/index.html, reports/world/statistics.{md,json}
Run     python -m pathfinder.world.page [FOLDER] [--solve STORIES] [--world rich]

Same input, same bytes. The difficulty curve asks the policy, a minute or two on one core for 200 stories; without
--solve that part is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pathfinder.core.io import atomic_folder, write_json, write_text
from pathfinder.pages.page import Block, Figure, Page, Section, Table, Text, to_html, to_markdown
from pathfinder.pages.svg import line_chart
from pathfinder.world.statistics import Part, count, planted, shared
from pathfinder.world.story import CONSISTENCY_FAULTS, MATH_FAULTS, SUBOPTIMAL, WORLDS

OUT = Path("reports/world")
_FIGURES = {"pass@1": "pass@1", "mean": "mean of 8 samples", "maj@8": "maj@8", "pass@8": "pass@8"}


def page_of(folder: Path, solved: Mapping[str, Any] | None = None) -> tuple[Page, dict[str, Any]]:
    """The page and its figures for machines; ``solved`` is what ``measure_policy`` found."""
    parts = count(folder)
    known = planted(folder)
    both = shared(parts)
    sections = [
        Section("Sizes", [_sizes(parts)]),
        Section("Class balance", [_labels(parts)]),
        Section("Faults", [_faults(parts)]),
        Section("The planted misconception", [_misconception(parts)]),
        Section("Leakage", _leakage(parts, both, known)),
    ]
    if solved is not None:
        sections.append(Section("Difficulty", _difficulty(solved)))
    lead = Text(
        "Counted from the files: stories are read back from their text, and every step is judged anew by the oracle."
    )
    figures = {
        "parts": {name: _plain(part) for name, part in parts.items()},
        "shared": {f"{one}, {other}": len(texts) for (one, other), texts in both.items()},
        "planted": len(known),
        "policy": solved,
    }
    return Page("The generated world in figures", [lead], sections), figures


def _plain(part: Part) -> dict[str, Any]:
    return {
        "items": part.items,
        "stories": len(part.problems),
        "steps": part.steps,
        "outside_the_grammar": part.unread,
        "sound": part.sound,
        "labels": dict(sorted(part.labels.items())),
        "labels_as_the_oracle": dict(sorted(part.agreeing.items())),
        "faults": dict(sorted(part.faults.items())),
        "tricky_events": sum(part.tricky),
        "stories_with_a_tricky_event": sum(n > 0 for n in part.tricky),
        "steps_about_tricky_events": part.tricky_steps,
        "misread": part.misread,
        "stories_of_another_split": part.outside,
    }


def _sizes(parts: Mapping[str, Part]) -> Table:
    rows = [
        (
            name,
            f"{part.items:,}",
            f"{len(part.problems):,}",
            f"{_mean([len(p.events) for p in part.problems.values()]):.1f}",
            f"{part.steps:,}",
            _share(part.sound, part.steps),
            f"{part.unread:,}",
        )
        for name, part in parts.items()
    ]
    headers = ("part", "items", "stories", "events a story", "steps", "sound, %", "outside the grammar")
    return Table(
        "Alternatives count as steps; of ProcessBench the steps up to the first wrong one count.", headers, rows
    )


def _labels(parts: Mapping[str, Part]) -> Table:
    rows = [
        (name, label, f"{number:,}", _share(number, part.steps), _share(part.agreeing[label], number))
        for name, part in parts.items()
        for label, number in sorted(part.labels.items())
    ]
    caption = (
        "Recorded labels, and how many of them an exact annotator of the same kind would have given. A “-” of Mistral "
        "says that the true answer is out of reach by what stands there."
    )
    return Table(caption, ("part", "label", "steps", "share, %", "as the oracle, %"), rows)


def _faults(parts: Mapping[str, Part]) -> Table:
    shown = [name for name, part in parts.items() if part.steps]
    kinds = {"mathematics": MATH_FAULTS, "consistency": CONSISTENCY_FAULTS, "not optimal": SUBOPTIMAL, "": ("none",)}
    rows = [
        (fault, kind or "–", *(f"{parts[name].faults[fault]:,}" for name in shown))
        for kind, faults in kinds.items()
        for fault in faults
    ]
    return Table("Steps by fault; a step may have several.", ("fault", "kind", *shown), rows)


def _misconception(parts: Mapping[str, Part]) -> Table:
    rows = [
        (
            name,
            f"{_mean(part.tricky):.2f}",
            _share(sum(n > 0 for n in part.tricky), len(part.problems)),
            f"{part.tricky_steps:,}",
            _share(part.misread, part.tricky_steps),
        )
        for name, part in parts.items()
    ]
    caption = "“Takes back” and “gives back” in the hero's events, and how often a step about them reads them wrongly."
    return Table(caption, ("part", "a story", "stories with one, %", "steps about them", "misread, %"), rows)


def _leakage(parts: Mapping[str, Part], both: Mapping[tuple[str, str], set[str]], known: set[str]) -> list[Block]:
    names = list(parts)
    rows = [
        (
            one,
            *(
                "–" if one == other else f"{len(both.get((one, other), both.get((other, one), set()))):,}"
                for other in names
            ),
            f"{part.outside:,}",
        )
        for one, part in parts.items()
    ]
    found = set().union(*both.values())
    said = (
        f"{len(found):,} stories are in two parts, {len(found & known):,} of them on purpose "
        f"({len(known):,} are planted, so that the search for overlap has something to find)."
    )
    caption = (
        "Stories that two parts share, and stories whose digest belongs to another split. Pretraining uses the split "
        "“train”, our measurements “held_out”."
    )
    return [Text(said), Table(caption, ("part", *names, "of another split"), rows)]


def _difficulty(solved: Mapping[str, Any]) -> list[Block]:
    levels = {name: found for name, found in solved["by_level"].items() if name != "all"}
    shown = {key: title for key, title in _FIGURES.items() if all(key in found for found in levels.values())}
    rows = [
        (name, *(f"{100 * found[key]:.1f}" for key in shown))
        for name, found in [*levels.items(), ("all", solved["by_level"]["all"])]
    ]
    series = {
        title: [(float(place), 100 * found[key]) for place, found in enumerate(levels.values(), start=1)]
        for key, title in shown.items()
    }
    said = "; ".join(f"{title}: " + ", ".join(f"{y:.1f}" for _, y in line) for title, line in series.items())
    faults = solved["first_faults_at_temperature"]
    total = sum(faults.values())
    first = ", ".join(f"{name} {_share(number, total)} %" for name, number in faults.items())
    caption = "Stories that the policy solves, by level (1 to 4)."
    return [
        Figure(line_chart(series, "level", "percent"), f"{caption} {said}.", caption),
        Table("Percent of held-out stories that the policy solves.", ("level", *shown.values()), rows),
        Text(
            f"Without sampling it solves {100 * solved['greedy_answer_accuracy']:.1f} % of them. First fault of the "
            f"sampled solutions: {first}."
        ),
    ]


def _share(number: int, total: int) -> str:
    return f"{100 * number / total:.1f}" if total else "–"


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def main(argv: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m pathfinder.world.page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", default=Path("data"), type=Path, help="a folder shaped as data/")
    parser.add_argument("--solve", type=int, default=0, metavar="STORIES", help="held-out stories for the policy")
    parser.add_argument("--world", choices=sorted(WORLDS), default="small", help="which world's stories it solves")
    asked = parser.parse_args(argv)
    page, figures = page_of(asked.folder, _solved(asked.folder, asked.solve, asked.world) if asked.solve else None)
    with atomic_folder(OUT) as folder:
        write_text(folder / "index.html", to_html(page))
        write_text(folder / "statistics.md", to_markdown(page))
        write_json(folder / "statistics.json", figures)
    leaked = figures["shared"]
    print(f"{OUT}/index.html: {sum(leaked.values())} stories in two parts, {figures['planted']} planted")


def _solved(folder: Path, stories: int, world: str) -> dict[str, Any]:
    import torch  # a second to import, and only the difficulty needs it

    from pathfinder.engines.generate import Generator
    from pathfinder.world.abilities import measure_policy

    torch.set_num_threads(1)
    return measure_policy(Generator(folder / "models" / "base"), stories, WORLDS[world])


if __name__ == "__main__":
    main()
