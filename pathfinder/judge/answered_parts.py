"""Parts of labelling: the answers to a share of the prompts, each part in a journal of its own.

A prompt belongs to a part by its digest, so all its answers are in one journal. The folder of a part is next to that of
the stage and has the part at the end of its name. The stage moves the answers of all parts to its own journal before it
asks. Only servers answer parts: in process, an answer depends on the others of its batch.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ground.io import DataError, read_jsonl
from pathfinder.core.params import Label
from pathfinder.core.parts import Part
from pathfinder.engines.journal import Journal

_JOURNAL = "journal.jsonl"


def journal_path(folder: Path, part: Part | None) -> Path:
    """The journal of the stage, whose folder this is, or of one part of it."""
    return (folder if part is None else folder.with_name(f"{folder.name}-{part}")) / _JOURNAL


def require_servers(params: Label) -> None:
    """Raise ``DataError`` if the engine's answers depend on one another."""
    if params.engine == "transformers":
        raise DataError(
            "label.engine transformers: its answers depend on their batch, so it cannot answer a part; use the engine "
            "vllm or openai, or run the stage without --part"
        )


def move_parts(journal: Journal) -> int:
    """Move the missing answers of all parts to ``journal``, in the order of the parts' names; returns their number.

    Raises ``DataError`` if a part's journal is damaged or its process still runs.
    """
    before, folder = len(journal), journal.path.parent
    parts = sorted(folder.parent.glob(f"{folder.name}-*-of-*/{_JOURNAL}"))
    for path in parts:
        with Journal(path):  # verifies every line, and excludes a writer
            for _, line in read_jsonl(path):
                if line["key"] not in journal:
                    journal.write(line["key"], line["value"])
    journal.sync()
    for path in parts:
        shutil.rmtree(path.parent)
    if added := len(journal) - before:
        print(f"label: {added} answers of {len(parts)} parts moved to {journal.path}", file=sys.stderr, flush=True)
    return added
