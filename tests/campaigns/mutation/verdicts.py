"""The fates of the mutants of a module, and the survivors that are accepted, each with a reason."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ground.io import write_text

ACCEPTED = Path(__file__).with_name("accepted.toml")
FILE = Path("mutants.json")
Verdict = Literal["refused", "killed", "timed out", "survived"]


@dataclass(frozen=True, slots=True)
class Mutants:
    """All mutants of a module; ``FILE`` in the copy of the tree holds them."""

    module: str
    verdicts: dict[str, Verdict | None]
    """The fate of each mutant; ``None`` if it was not tried."""
    hashes: dict[str, str]
    """The hash of the source of each function, by the name that its mutants begin with"""
    spans: dict[str, tuple[int, int]]
    """The first and the last line of each mutant, and of each function without a change, in the mutated file"""
    tree: str = ""
    """The digest of all files of the tree that the verdicts are about"""

    @property
    def decided(self) -> int:
        """The number of mutants that have a verdict."""
        return sum(verdict is not None for verdict in self.verdicts.values())

    @classmethod
    def read(cls, folder: Path = Path()) -> Mutants | None:
        """The mutants of an earlier run; ``None`` if there was none or if it was killed while it wrote the file."""
        try:
            return cls(**json.loads((folder / FILE).read_text(encoding="utf-8")))
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def write(self, folder: Path = Path()) -> None:
        """Write ``FILE``."""
        write_text(folder / FILE, json.dumps(asdict(self)))

    def keep(self, before: Mutants | None) -> None:
        """Take over the verdicts of an earlier run.

        In the same tree, these are all; otherwise those about killed mutants of functions that did not change.
        """
        if before is None:
            return
        for name in self.verdicts:
            function = name.partition("__mutmut_")[0]
            verdict = before.verdicts.get(name)
            if before.hashes.get(function) == self.hashes[function] and (
                verdict == "killed" or before.tree == self.tree
            ):
                self.verdicts[name] = verdict


@dataclass(frozen=True, slots=True)
class Survivor:
    """A change that no test notices: the function, its lines before and after the change."""

    module: str
    function: str
    was: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.module} {self.function}\n  - {self.was}\n  + {self.becomes}"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The mutants of a module: killed by a test, ended at the time limit, survived, and not tried.

    Mutants that mypy refuses are counted apart: `make check` finds them, and no test is asked.
    """

    module: str
    refused: int
    killed: int
    timed_out: int
    untried: int
    survivors: tuple[Survivor, ...]

    @property
    def tried(self) -> int:
        """The number of mutants that the tests decided about."""
        return self.killed + self.timed_out + len(self.survivors)


def read_verdicts(folder: Path) -> Verdicts:
    """Read the fates of the mutants in a copy of the tree. Raises ``FileNotFoundError`` if there are none."""
    mutants = Mutants.read(folder)
    if mutants is None:
        raise FileNotFoundError(folder / FILE)
    lines = (folder / mutants.module).read_text(encoding="utf-8").splitlines()
    survivors = []
    for name in [name for name, verdict in mutants.verdicts.items() if verdict == "survived"]:
        function = name.partition("__mutmut_")[0]
        original = f"{function}__mutmut_orig"
        before = _source(lines, mutants.spans[original], original)
        was, becomes = _changed(before, _source(lines, mutants.spans[name], name))
        survivors.append(Survivor(mutants.module, _plain(function), was, becomes))
    counted = Counter(mutants.verdicts.values())
    return Verdicts(
        module=mutants.module,
        refused=counted["refused"],
        killed=counted["killed"],
        timed_out=counted["timed out"],
        untried=counted[None],
        survivors=tuple(survivors),
    )


def read_accepted(file: Path = ACCEPTED) -> dict[Survivor, str]:
    """The accepted survivors and the reason of each. Raises ``ValueError`` if a reason is empty."""
    rows = tomllib.loads(file.read_text(encoding="utf-8")).get("survivor", [])
    accepted = {}
    for row in rows:
        reason = row.pop("reason").strip()
        if not reason:
            raise ValueError(f"{file.name}: {row['function']} has no reason")
        accepted[Survivor(**row)] = reason
    return accepted


def outdated(accepted: Iterable[Survivor], verdicts: Sequence[Verdicts]) -> list[Survivor]:
    """Accepted survivors of complete modules that are killed now or whose code is gone."""
    complete = {one.module for one in verdicts if not one.untried}
    alive = {survivor for one in verdicts for survivor in one.survivors}
    return [one for one in accepted if one.module in complete and one not in alive]


def table(verdicts: Sequence[Verdicts], accepted: Iterable[Survivor]) -> str:
    """A Markdown table with a row per module and a sum."""
    known = frozenset(accepted)
    rows = ["| module | refused by mypy | tried | killed | timed out | survived | of them accepted | score |"]
    rows.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows += [_row(f"`{one.module}`", [one], known) for one in verdicts]
    return "\n".join([*rows, _row("all", verdicts, known)])


def _row(name: str, verdicts: Sequence[Verdicts], accepted: frozenset[Survivor]) -> str:
    tried = sum(one.tried for one in verdicts)
    noticed = sum(one.killed + one.timed_out for one in verdicts)
    survivors = [survivor for one in verdicts for survivor in one.survivors]
    cells = [sum(one.refused for one in verdicts), tried, sum(one.killed for one in verdicts)]
    cells += [sum(one.timed_out for one in verdicts), len(survivors), sum(one in accepted for one in survivors)]
    untried = sum(one.untried for one in verdicts)
    score = f"{100 * noticed / tried:.1f} %" if tried else "–"
    return f"| {name} | {' | '.join(map(str, cells))} | {score}{f' ({untried} not tried)' if untried else ''} |"


def _source(lines: Sequence[str], span: tuple[int, int], name: str) -> list[str]:
    """The lines of a function that mutmut generated, under one name for all mutants."""
    return [line.replace(name, "_") for line in lines[span[0] - 1 : span[1]]]


def _changed(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """The lines that differ, without indentation, before and after."""
    marked = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
    return tuple(" ".join(line[2:].strip() for line in marked if line[0] == sign) for sign in "-+")  # type: ignore[return-value]


def _plain(function: str) -> str:
    """``x_name`` as ``name``, and mutmut's ``xǁClassǁmethod`` as ``Class.method``."""
    return function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
