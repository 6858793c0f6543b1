"""Print what a stage of a pool costs without its work: python -m tests.campaigns.schedules.cost [COUNT].

Each of COUNT runs computes the one stage of a small project by a launcher on this machine. Prints the seconds of the
stage without its work, the seconds of the whole run, and the requests to the store. The ones that test the store and
publish the run come once for all stages of a run; the others are of the stage.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.campaigns.schedules.place import MACHINES, STAGE, Place, place
from tests.campaigns.schedules.schedule import spans

_OF_RUN = re.compile(r" (pathfinder/)?(probe|log|manifests|locks)$| bucket$")
_RUN = ("-c", "from flows.cli import app; app()", "run", STAGE, "--json")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=3, help="runs (default: 3)")
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory(prefix="cost-") as home, place(Path(home)) as here:
        _run(here, 0)  # the clone of the machine is made
        rows = [_run(here, seed) for seed in range(1, count + 1)]
    for name in rows[0][0]:
        values = [row[0][name] for row in rows]
        print(
            f"{name:32} median {statistics.median(values):6.1f}   all {', '.join(f'{value:.1f}' for value in values)}"
        )
    print("requests by folder:", ", ".join(f"{name} {number}" for name, number in rows[-1][1].most_common()))


def _run(here: Place, seed: int) -> tuple[dict[str, float], Counter[str]]:
    here.turns(MACHINES[:1])
    (here.home / "ann/params.yaml").write_text(f"seed: {seed}\n")
    before, log, start = len(here.requests()), here.home / f"cost-{seed}.log", time.monotonic()
    asked = here.ask("ann", log, *_RUN)
    assert asked.process.wait(600) == 0, log.read_text()
    whole_s = time.monotonic() - start
    text = log.read_text()
    (stage,) = json.loads(text[text.index("{\n") : text.rindex("}") + 1])["stages"]
    ((first, last),) = spans(here.home / "ticks", seed)
    made = here.requests()[before:]
    folders = Counter(f"{each.split()[0]} {_folder(each.split()[1])}" for each in made)
    work_s = last - first
    return {
        "stage without its work, s": stage["seconds"] - work_s,
        "whole run without its work, s": whole_s - work_s,
        "requests of the stage": sum(number for name, number in folders.items() if not _OF_RUN.search(name)),
        "requests of the run": len(made),
    }, folders


def _folder(url: str) -> str:
    """The first folders of a request's key, or of its listing's prefix."""
    parts = urlsplit(url)
    prefix = next((word.partition("=")[2] for word in parts.query.split("&") if word.startswith("prefix=")), "")
    first, _, rest = (unquote(prefix) or parts.path.lstrip("/").partition("/")[2]).partition("/")
    return f"{first}/{rest.partition('/')[0]}" if first == "pathfinder" else first or "bucket"


if __name__ == "__main__":
    main()
