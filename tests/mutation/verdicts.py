"""What became of the mutants of a module, and the survivors that are accepted, each with a reason."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ACCEPTED = Path(__file__).with_name("accepted.toml")
_KILLED = frozenset({1, 3})
_TIMED_OUT = frozenset({-24, -9, 24, 36, 152})  # not 255, mutmut's code for an error of its own
_REFUSED_BY_MYPY = 37


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


def read_verdicts(mutants: Path, module: str) -> Verdicts:
    """Read what mutmut wrote into its folder ``mutants``."""
    codes = json.loads((mutants / f"{module}.meta").read_text(encoding="utf-8"))["exit_code_by_key"]
    spans = json.loads((mutants / f"{module}.spans").read_text(encoding="utf-8"))["spans"]
    lines = (mutants / module).read_text(encoding="utf-8").splitlines()
    survivors = []
    for key, code in codes.items():
        if code is not None and code not in _KILLED | _TIMED_OUT | {_REFUSED_BY_MYPY}:
            name = key.rpartition(".")[2]
            function = name.partition("__mutmut_")[0]
            original = f"{function}__mutmut_orig"
            before = _source(lines, spans[original], original)
            was, becomes = _changed(before, _source(lines, spans[name], name))
            survivors.append(Survivor(module, _plain(function), was, becomes))
    counted = Counter(codes.values())
    return Verdicts(
        module=module,
        refused=counted[_REFUSED_BY_MYPY],
        killed=sum(counted[code] for code in _KILLED),
        timed_out=sum(counted[code] for code in _TIMED_OUT),
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
