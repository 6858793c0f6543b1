"""Parts of a stage's work: any machine can compute them, and the stage merges them into the bytes of a single process.

``python -m stages.prepare --part 2/3`` computes the second of three parts and writes only
``.pathfinder/parts/prepare/<digest>-2-of-3/``. The digest covers everything that determines the result: inputs,
parameters, code and locked packages. The stage uses the parts with its own digest, computes the missing parts, and then
deletes all of them. A part appears by one rename, so a killed part leaves nothing. docs/data.md shows the use.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ground.io import DataError, atomic_folder, digest_of, read_json, sha256_file, write_json
from ground.recording import code_digest, note

PARTS = Path(".pathfinder/parts")
SEAL = "part.json"
"""The file of a part that names its inputs and the sha256 of its other files."""
_PART = re.compile(r"([1-9][0-9]{0,4})(?:/|-of-)([1-9][0-9]{0,4})")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Part ``number``, from 1, of ``count``. Items are numbered; each belongs to exactly one part."""

    count: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read ``2/3`` or ``2-of-3``; raises ``DataError`` for any other text."""
        match = _PART.fullmatch(text)
        if match is None or int(match[1]) > int(match[2]):
            raise DataError(f"--part {text}: expected NUMBER/COUNT, for example 2/3")
        return cls(int(match[2]), int(match[1]))

    def __str__(self) -> str:
        return f"{self.number}-of-{self.count}"

    def has(self, item: int) -> bool:
        """True if an item belongs to this part."""
        return item % self.count == self.number - 1


class Parts:
    """The parts of one stage. ``identity`` computes, on demand, a JSON value that describes the inputs."""

    def __init__(self, stage: str, identity: Callable[[], dict[str, Any]]) -> None:
        self.stage, self._describe = stage, identity

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the content of a part except for its number."""
        return {"stage": self.stage, "inputs": self._describe(), "code": code_digest(self.stage)}

    def folder(self, part: Part) -> Path:
        """The folder of a part with this identity."""
        return PARTS / self.stage / f"{digest_of(self.identity)[:32]}-{part}"

    @contextmanager
    def writing(self, part: Part) -> Iterator[Path]:
        """Yield the folder for the files of a part; it appears, sealed, if the block succeeds."""
        with atomic_folder(self.folder(part)) as folder:
            yield folder
            write_json(folder / SEAL, {"part": str(part), "identity": self.identity, "files": _digests(folder)})

    def collect(self) -> dict[Part, Path]:
        """The folders of the usable parts, for the part count that covers the most work; the record lists them.

        A part that is damaged or has different inputs is not used; a line on standard error gives the reason.
        """
        sound: dict[int, dict[Part, Path]] = {}
        stored, others = self._stored()
        for part, path in stored:
            if problem := self._problem(path, part):
                print(f"{path}: not used: {problem}; its work is done again", file=sys.stderr, flush=True)
            else:
                sound.setdefault(part.count, {})[part] = path
        if others:
            print(f"{self.stage}: parts of other inputs or code, not used: {others}", file=sys.stderr, flush=True)
        if not sound:
            return {}
        count = max(sound, key=lambda count: (len(sound[count]) / count, -count))
        found = dict(sorted(sound[count].items()))
        note("parts", {str(part): sha256_file(path / SEAL) for part, path in found.items()})
        print(f"{self.stage}: uses {len(found)} of {count} parts in {PARTS / self.stage}", file=sys.stderr, flush=True)
        return found

    def clear(self) -> None:
        """Delete the parts with this identity: the outputs of the stage replace them."""
        for _, path in self._stored()[0]:
            shutil.rmtree(path)

    def _stored(self) -> tuple[list[tuple[Part, Path]], int]:
        """The folders that have the names of parts with this identity, and the number of all other folders."""
        every = [path for path in (PARTS / self.stage).glob("[!.]*") if path.is_dir()]
        if not every:  # this computes no digest
            return [], 0
        start = self.folder(Part(1, 1)).name.removesuffix("1-of-1")
        mine = {path.name.removeprefix(start): path for path in every if path.name.startswith(start)}
        found = [(Part.parse(name), path) for name, path in mine.items() if _PART.fullmatch(name)]
        return sorted(found), len(every) - len(mine)

    def _problem(self, path: Path, part: Part) -> str | None:
        """The reason why a part cannot be used."""
        try:
            seal = read_json(path / SEAL)
        except (DataError, OSError) as error:
            return f"{SEAL} cannot be read ({error})"
        if not isinstance(seal, dict) or seal.get("part") != str(part):
            return f"{SEAL} names another part"
        if seal.get("identity") != self.identity:
            return "it was made from other inputs or by other code"
        return None if seal.get("files") == _digests(path) else f"its files do not have the digests in {SEAL}"


def _digests(folder: Path) -> dict[str, str]:
    """The sha256 of every file but the seal."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / SEAL)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}
