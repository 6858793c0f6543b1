"""Change the code of chosen modules in small ways, one at a time, and count the changes that their tests notice.

Exits with status 1 if a mutant survives that accepted.toml does not name, or if an accepted one is killed or gone.
A run that ends early resumes: in the same tree, no mutant is tried twice. In a tree that has changed, those that a test
has killed are not tried again while their function does not change.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from ground.progress import duration
from tests.campaigns.mutation.chosen import CHOSEN
from tests.campaigns.mutation.trial import folder_of, try_mutants
from tests.campaigns.mutation.verdicts import Mutants, Verdicts, outdated, read_accepted, read_verdicts, table
from tests.conftest import ROOT

_UNCHANGED_S = 10.0
"""A module whose mutants all have a verdict takes less."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="files, for example pathfinder/core/labels.py")
    parser.add_argument("--show", action="store_true", help="show the verdicts of earlier runs and stop")
    parser.add_argument("--fresh", action="store_true", help="forget the verdicts of earlier runs")
    given = parser.parse_args()
    if unknown := set(given.modules) - set(CHOSEN):
        parser.error(f"not in tests/campaigns/mutation/chosen.py: {', '.join(sorted(unknown))}")
    modules = [module for module in CHOSEN if not given.modules or module in given.modules]
    if not given.show:
        tried: dict[str, float] = {}
        for number, module in enumerate(modules, start=1):
            if given.fresh:
                shutil.rmtree(folder_of(module), ignore_errors=True)
            seconds = _try(module, f"[{number}/{len(modules)}{after(modules[number:], tried)}] {module}")
            if seconds > _UNCHANGED_S:
                tried[module] = seconds
    made = [folder for folder in map(folder_of, modules) if Mutants.read(folder)]
    sys.exit(report([read_verdicts(folder) for folder in made]))


def _try(module: str, label: str) -> float:
    start = time.monotonic()
    status = try_mutants(module, CHOSEN[module], label)
    seconds = time.monotonic() - start
    print(
        f"{module}: {seconds:.0f} s" if status == 0 else f"{module}: failed; see {folder_of(module)}/mutation.log",
        flush=True,
    )
    return seconds


def after(modules: Sequence[str], tried: Mapping[str, float]) -> str:
    """How long ``modules`` will take, by the seconds and the sizes of those that were tried; empty if unknown."""
    size, known = _size(modules), _size(tried)
    return f", about {duration(sum(tried.values()) * size / known)} for the rest" if size and known else ""


def _size(modules: Iterable[str]) -> int:
    return sum((ROOT / module).stat().st_size for module in modules)


def report(verdicts: list[Verdicts]) -> int:
    """Print the table and what needs attention; returns the exit status."""
    accepted = read_accepted()
    print(table(verdicts, accepted))
    new = [survivor for one in verdicts for survivor in one.survivors if survivor not in accepted]
    gone = outdated(accepted, verdicts)
    for title, survivors in (("survived", new), ("accepted, but killed or gone", gone)):
        for survivor in survivors:
            print(f"\n{title}: {survivor}")
    return int(bool(new or gone))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command resumes")
