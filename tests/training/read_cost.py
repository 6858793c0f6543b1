"""The program that test_speed starts in a separate process: the time and memory of a process that needs the examples.

Run: python -m tests.training.read_cost WAY TOKENIZER FILE RECORDS FOLDER

WAY is tokenise (as the first process of a run, which writes FOLDER), keep (as each process did when all of them
tokenised) or map (as the other processes). FILE holds PRM800K lines, of which every rated completion is a record.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pathfinder.core.prompts import VARIANTS
from pathfinder.models.tokens import load_tokenizer
from pathfinder.training.examples import Example, read_examples
from pathfinder.training.stored import prepared
from pathfinder.tree.passes import Prompter
from tests.training.train_cost import rated_trees, status


def main(way: str, tokenizer: str, file: str, records: int, folder: str) -> dict[str, float]:
    prompter = Prompter(load_tokenizer(Path(tokenizer)), VARIANTS["full"])
    kept: list[Any] = []
    before = status("VmRSS"), status("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    start = time.perf_counter()

    def make() -> list[Example]:
        table = rated_trees(Path(file), Path(file).read_bytes().count(b"\n"))
        totals = table["branches"].list.len().cum_sum()
        return read_examples(table.filter(totals <= records), prompter, 16384)

    if way == "keep":
        kept.append(make())
    else:
        sets, _ = prepared(Path(folder), way == "tokenise", lambda: ({"learn": make()}, {}))
        kept.append(sets["learn"])
    seconds = time.perf_counter() - start
    tokens = sum(len(example.tree) for example in kept[0])
    own = sum(int(example.targets.weights.sum()) for example in kept[0])  # touches every example
    return {
        "seconds": seconds,
        "records": sum(example.records for example in kept[0]),
        "longest": max(int(example.tree.depth.max()) + 1 for example in kept[0]),
        "tokens": tokens,
        "labels": own,
        "anonymous": status("RssAnon") - before[1],
        "resident": status("VmRSS") - before[0],
        "peak": status("VmHWM") - before[0],
        "files": float(sum(path.stat().st_size for path in Path(folder).rglob("*.npy"))),
    }


if __name__ == "__main__":
    way, tokenizer, file, records, folder = sys.argv[1:]
    print(json.dumps(main(way, tokenizer, file, int(records), folder)))
