"""Formats that are no text: compressed files, Parquet, safetensors, tokenizers and the judge's journal."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow
import pyarrow.parquet

from ground.io import PathfinderError, read_parquet, write_parquet
from pathfinder.benchmarks.readers import read_processbench
from pathfinder.core.records import STEPS
from pathfinder.engines.journal import Journal
from pathfinder.models.folders import open_model
from tests.campaigns.faults.inputs.benchmarks import PROCESSBENCH_LINES
from tests.campaigns.faults.inputs.judgement import LONGEST_MESSAGE, Verdict
from tests.campaigns.faults.inputs.malform import Malformed, of_file
from tests.campaigns.faults.inputs.settings import ROOT
from tests.campaigns.faults.inputs.upstream import RLHFLOW

_PARTS = 16
_MODEL = ROOT / "pathfinder/demo_model"


@dataclass(frozen=True, slots=True)
class Binary:
    """A format with the bytes of a valid file and its reader.

    ``beside`` are files that the reader needs in the same folder. ``accepts`` says whether what was read of a damaged
    file is right, compared with the valid content. A format without checksums of its own ``needs_digest``: some damage
    changes values, and only the sha256 in the catalogue, in dvc.lock or in a record notices it.
    """

    name: str
    file: str
    make: Callable[[], bytes]
    read: Callable[[Path], Any]
    accepts: Callable[[Any, Any], bool] = lambda found, valid: found == valid
    beside: tuple[Path, ...] = ()
    needs_digest: bool = False
    is_slow: bool = False

    def place(self, folder: Path, one: Malformed) -> Path:
        """Write a malformed file with what belongs to it."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in self.beside:
            shutil.copyfile(other, path.parent / other.name)
        one.put(path)
        return path


def damaged(binary: Binary, random: Random) -> Iterator[Malformed]:
    """Files that are cut, with changed, missing and added bytes in each part, and files of other kinds."""
    content = binary.make()
    yield from of_file(content)
    size = len(content)
    for part in range(_PARTS):
        start, end = part * size // _PARTS, (part + 1) * size // _PARTS
        place = random.randrange(start, max(end, start + 1))
        rest = content[place + 1 :]
        where = f"byte {place} of {size}"
        yield Malformed(f"cut in part {part}", where, content[:place])
        yield Malformed(
            f"bit changed in part {part}",
            where,
            content[:place] + bytes([content[place] ^ 1 << random.randrange(8)]) + rest,
        )
        yield Malformed(f"byte missing in part {part}", where, content[:place] + rest)
        yield Malformed(f"byte more in part {part}", where, content[:place] + random.randbytes(1) + content[place:])
        yield Malformed(f"zeros in part {part}", where, content[:start] + bytes(end - start) + content[end:])
    yield Malformed("bytes after the end", "", content + b"\x00\xff")
    yield Malformed("the document twice", "", content + content)
    yield Malformed("first byte missing", "", content[1:])
    yield Malformed("last byte missing", "", content[:-1])
    yield Malformed("backwards", "", content[::-1])
    yield Malformed("halves exchanged", "", content[size // 2 :] + content[: size // 2])


def judge_binary(binary: Binary, one: Malformed, folder: Path) -> Verdict:
    """Read a damaged file below the empty folder ``folder``."""
    path = binary.place(folder, one)
    try:
        found = binary.read(path)
    except PathfinderError as error:
        message = str(error)
        is_named = path.name in message or path.parent.as_posix() in message
        return Verdict(
            "refused", "" if is_named and len(message) <= LONGEST_MESSAGE else f"the message is {message[:300]}"
        )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        return Verdict("traceback", f"{type(error).__name__}: {str(error)[:200]}")
    is_right = binary.needs_digest or binary.accepts(found, valid_content(binary))
    return Verdict("read", "" if is_right else f"read silently as {repr(found)[:300]}")


@cache
def valid_content(binary: Binary) -> Any:
    """The content that the reader finds in the valid file."""
    with TemporaryDirectory(prefix="valid-") as folder:
        return binary.read(binary.place(Path(folder), Malformed("valid", "", binary.make())))


def _written(write: Callable[[Path], object]) -> bytes:
    with TemporaryDirectory(prefix="made-") as folder:
        write(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


def _upstream_table() -> bytes:
    rows = [row for row in RLHFLOW.rows for _ in range(20)]
    return _written(lambda path: pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path))


_STEP = {"id": "a", "trajectory_id": "b", "source": "c", "step_index": 0, "completion": 0, "step": "d", "rating": 1}


def _stage_table() -> bytes:
    frame = pl.DataFrame([_STEP | {"id": f"a{number}"} for number in range(50)], schema=STEPS)
    return _written(lambda path: write_parquet(path, frame))


def _journal() -> bytes:
    def write(path: Path) -> None:
        with Journal(path) as journal:
            journal.append({f"key-{number}": {"answer": f"Score A: {number}\u2028"} for number in range(8)})

    return _written(write)


def _entries(path: Path) -> list[Any]:
    if not path.exists():  # a new journal
        return []
    with Journal(path) as journal:
        return [journal[f"key-{number}"] for number in range(8) if f"key-{number}" in journal]


def _is_start(found: Any, valid: Any) -> bool:
    """A journal loses a torn last line, and nothing else."""
    return bool(found == valid[: len(found)])


def _load(path: Path) -> int:
    from pathfinder.models.model import load_model

    return load_model(open_model(path.parent)).num_parameters()


def _tokenize(path: Path) -> list[int]:
    from pathfinder.models.tokens import load_tokenizer, refuse_without_labels

    tokenizer = load_tokenizer(path.parent)
    refuse_without_labels(tokenizer, path.parent)
    return list(tokenizer.encode("Ann has 3 books."))


def _slices(path: Path) -> list[Any]:
    from pathfinder.models.slices import Slices

    found = Slices([path])
    return [name in found for name in ("model.norm.weight", "no such")]


_CONFIG = tuple(_MODEL / name for name in ("config.json", "tokenizer_config.json", "chat_template.jinja"))
BINARIES = (
    Binary(
        "compressed JSON lines",
        "gsm8k.jsonl.gz",
        lambda: gzip.compress(PROCESSBENCH_LINES.content(), mtime=0),
        lambda path: read_processbench(path.parent).items,
    ),
    Binary("RLHFlow-Mistral, Parquet", "mistral/a.parquet", _upstream_table, RLHFLOW.read, needs_digest=True),
    Binary(
        "table of a stage",
        "steps.parquet",
        _stage_table,
        lambda path: read_parquet(path, STEPS).rows(),
        needs_digest=True,
    ),
    Binary("journal of answers", "journal.jsonl", _journal, _entries, _is_start),
    Binary(
        "weights (safetensors)",
        "model/model.safetensors",
        (_MODEL / "model.safetensors").read_bytes,
        _load,
        beside=_CONFIG,
        needs_digest=True,
        is_slow=True,
    ),
    Binary(
        "slices of weights",
        "model/model.safetensors",
        (_MODEL / "model.safetensors").read_bytes,
        _slices,
        needs_digest=True,
        is_slow=True,
    ),
    Binary(
        "tokenizer.json",
        "model/tokenizer.json",
        (_MODEL / "tokenizer.json").read_bytes,
        _tokenize,
        beside=_CONFIG,
        needs_digest=True,
        is_slow=True,
    ),
)
