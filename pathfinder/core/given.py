"""Solutions from a file of any layout, for ``score``, ``rerank`` and training."""

from __future__ import annotations

import codecs
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from ground.io import DataError, open_bytes, parse_json, parse_jsonl, whole
from ground.text import UsageError
from pathfinder.core.layouts import (
    BATCH,
    CANDIDATES,
    COLUMNS,
    HUB,
    LAYOUTS,
    LM_EVAL,
    PLAIN,
    SAID,
    SEPARATORS,
    Layout,
    Row,
    Split,
    WrongError,
    require_version,
    split_known,
    split_steps,
    unless_blank,
)
from pathfinder.core.prompts import STEP_SEPARATOR

_REMEDY = "correct or remove the row"
_CONTAINERS = (b"PAR1", b"PK\3\4")
"""The first bytes of Parquet and of a zip file."""
_PROSE = (".md", ".tex")
"""Suffixes of text files: never JSON, even if they begin with a bracket."""
_TEXTS = ("", ".txt", *_PROSE)
_ARE_LISTS = ("solutions", "answers")
"""The names of ``--columns`` whose columns hold lists; a CSV cell holds them as JSON."""


@contextmanager
def open_given(source: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name for messages and a seekable handle of a file or, for ``-``, of standard input.

    Raises ``DataError`` if it is not a file.
    """
    if source == "-":
        # a process may be started with its standard input closed
        yield "standard input", BytesIO(sys.stdin.buffer.read() if sys.stdin else b"")
    elif Path(source).is_file():
        with open_bytes(Path(source)) as handle:
            yield source, handle
    else:
        problem = "a folder" if Path(source).is_dir() else "no such file"
        raise DataError(f"{source}: {problem}; give a file, or - for standard input")


def first_character(handle: IO[bytes]) -> bytes:
    """The first byte of the content, empty if there is none; the handle stays at its start.

    White space and a byte order mark do not count as content.
    """
    return _head(handle)[:1]


def _head(handle: IO[bytes]) -> bytes:
    head = handle.read(1 << 16).removeprefix(codecs.BOM_UTF8).lstrip()
    handle.seek(0)
    return head


def rows_in(name: str, handle: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield ``("NAME: row N", value)``, N from 1, of JSON lines or of one JSON list.

    Raises ``DataError`` with the row if it is not valid JSON.
    """
    is_list = first_character(handle) == b"["
    rows = enumerate(parse_json(whole(handle, name), name), start=1) if is_list else parse_jsonl(handle, name)
    return ((f"{name}: row {number}", row) for number, row in rows)


def text_in(name: str, handle: IO[bytes]) -> str:
    """The whole text. Raises ``DataError`` if it is not UTF-8."""
    try:
        return whole(handle, name).removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: neither JSON nor UTF-8 text ({error}); convert it to UTF-8") from error


def rows_of(source: str, lists: Collection[str] | None = None) -> tuple[str, list[tuple[str, Any]] | str]:
    """The name of a source for messages, and its rows, or its text if name and content show that it is a text.

    ``source`` is a file, ``-`` for standard input, or ``hub:NAME[:CONFIG]:SPLIT``. The CSV columns ``lists`` hold JSON
    (default: all columns that usually hold lists). Raises ``DataError`` for a file that is missing, broken or of an
    unknown format, ``TransientError`` if the Hub cannot be reached.
    """
    if source.startswith(HUB):
        from pathfinder.core.containers import of_hub

        return source, list(of_hub(source))
    suffix = Path(source.removesuffix(".gz")).suffix.lower()
    with open_given(source) as (name, handle):
        magic = handle.read(4)
        handle.seek(0)
        if magic in _CONTAINERS or suffix in SEPARATORS:
            from pathfinder.core.containers import rows_in_container

            return name, list(rows_in_container(name, handle, magic, suffix, lists))
        if first_character(handle) in (b"", b"{", b"[") and suffix not in _PROSE:
            return name, list(_of_json(name, handle))
        if suffix in _TEXTS:
            return name, text_in(name, handle)
    raise DataError(
        f"{name}: neither JSON (lines or a list), CSV, Parquet nor, by its name, a text; give a .jsonl, .json, .csv, "
        ".parquet, .eval, .txt, .md or .tex file, or one without an extension"
    )


def _of_json(name: str, handle: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Lines, a list, or one object over several lines. An inspect_ai log gives its samples."""
    is_object = _head(handle).partition(b"\n")[0].strip() == b"{"
    rows = [(f"{name}: row 1", parse_json(whole(handle, name), name))] if is_object else rows_in(name, handle)
    for at, row in rows:
        is_log = isinstance(row, dict) and {"version", "eval", "samples"} <= row.keys()
        if is_log and isinstance(samples := row["samples"], list | None):
            require_version(name, row)
            yield from ((f"{name}: row {number}", sample) for number, sample in enumerate(samples or (), start=1))
        else:
            yield at, row


@dataclass(frozen=True, slots=True)
class GivenSolution:
    """The steps of one solution with their correctness, and the right answer, if known. ``at``: file and row."""

    at: str
    id: str
    problem: str
    steps: tuple[str, ...]
    labels: tuple[bool, ...] | None = None
    answer: Any = None


@dataclass(frozen=True, slots=True)
class GivenRow:
    """A row of a file: a problem with one solution or several. A solution without text has no steps."""

    at: str
    id: str
    problem: str
    solutions: tuple[tuple[str, ...], ...]
    sides: tuple[str, ...] = ("",)
    labels: tuple[bool, ...] | None = None
    answers: Any = None
    answer: Any = None

    def each(self) -> Iterator[GivenSolution]:
        """The solutions. If there are several, the id is ``ID/SIDE``; the side is a number from 0, or a name."""
        for side, steps in zip(self.sides, self.solutions, strict=True):
            name = f"{self.id}/{side}" if side else self.id
            yield GivenSolution(self.at, name, self.problem, steps, self.labels, self.answer)


@dataclass(frozen=True, slots=True)
class Given:
    """The rows of a source, and a note that says how they were read; empty for layouts that leave no choice."""

    name: str
    layout: str
    rows: list[GivenRow]
    note: str = ""

    def each(self) -> Iterator[GivenSolution]:
        """All solutions, in the order of the file."""
        return (one for row in self.rows for one in row.each())


def read_given(
    source: str, split: Split = "auto", columns: str = "", problems: str = "", has_candidates: bool = False
) -> Given:
    """Read the solutions of a file, of standard input (``-``) or of a Hub data set, in any of ``LAYOUTS``.

    A text has blank lines between the problem and its steps. A row without an id gets its number. ``columns`` names the
    fields if their names differ (``problem=question,steps=cot``; ``doc.query`` is a field of a field, and ``resps.0``
    the first item of a list). ``problems`` is the input file of a batch, and ``source`` holds the answers.
    With ``has_candidates``, rows that have solutions are candidates, whatever other fields they have.
    Raises ``DataError`` with file and row for a row without the first row's layout, and for a bad value.
    """
    names = _named(columns)
    if names and problems:
        raise UsageError("--problems is only for the answers of a batch, without --columns; leave one of them out")
    lists = {path.partition(".")[0] for path in names.values() if "." in path}
    lists |= {path for to, path in names.items() if to in _ARE_LISTS}
    name, rows = rows_of(source, lists if names else None)
    if problems and isinstance(rows, str):
        raise DataError(f"{name}: --problems is only for the answers of a batch; leave it out")
    if names and isinstance(rows, str):
        raise DataError(f"{name}: a text has no fields; leave --columns out")
    if isinstance(rows, str):
        note = "" if Path(name).suffix else f"{name}: read as a text; give CSV as a .csv file"
        return Given(name, "text", [_text_row(name, rows, split)], note)
    questions = _questions(problems) if problems else {}
    known = (COLUMNS,) if names else sorted(LAYOUTS, key=lambda each: each.name != CANDIDATES or not has_candidates)
    is_solution = "answer" in [path for to, path in names.items() if to in ("steps", "solution", "solutions")]
    spare = ("id",) if is_solution else ("id", "answer")
    reader = _Reader(split, known, COLUMNS if names else BATCH if problems else None)
    for at, row in rows:
        if names:
            kept = {key: row[key] for key in spare if key in row} if isinstance(row, dict) else {}
            row = kept | {to: _at_path(at, row, names[to]) for to in names}
            row |= {to: "" for to in ("steps", "solution") if row.get(to, "") is None}  # the generation failed
        elif problems and isinstance(row, dict) and BATCH.fits(row):
            row = _asked(at, row, questions, problems)
        reader.add(at, row)
    if not reader.rows:
        raise DataError(f"{name}: contains no solution; give JSON lines, or a text with blank lines between the steps")
    return reader.given(name)


def _text_row(name: str, text: str, split: Split) -> GivenRow:
    problem, *steps = split_steps(text, "blank") or [""]
    if not problem:
        raise DataError(f"{name}: contains no solution; give a text with blank lines between problem and steps")
    if not steps:
        raise DataError(f"{name}: only a problem; add its steps, with a blank line before each")
    whole = STEP_SEPARATOR.join(steps)
    return GivenRow(name, "1", problem, (tuple(steps if split == "auto" else split_steps(whole, split)),))


class _Reader:
    """Turns the rows of one file into solutions, and counts how their texts were split."""

    def __init__(self, split: Split, known: Sequence[Layout], layout: Layout | None) -> None:
        self.rows: list[GivenRow] = []
        self._split, self._known, self._layout, self._ways = split, known, layout, Counter[str]()
        self._answered: dict[str, Row] = {}
        self._left_out = 0
        self._solution: str | None = None

    def add(self, at: str, row: Any) -> None:
        """Read a row. Raises ``DataError`` for a row without the first row's layout, and for a bad value."""
        row = self._cased(row)
        if self._solution and isinstance(row, dict) and row.get(self._solution, "") is None:
            row = row | {self._solution: ""}  # the generation failed; ``answer`` holds the right answer
        self._layout = layout = _layout_of(at, row, self._known, self._layout)
        field = layout.solution_in(row)
        self._solution = self._solution or field
        if field != self._solution:
            raise DataError(
                f"{at}: the solution would be {field}, but it is {self._solution} in the first row; name the field "
                "with --columns problem=…,solution=…"
            )
        try:
            taken = layout.take(row)
        except WrongError as error:
            raise DataError(f"{at}: {error}, found {ascii(row)[:200]}; {_REMEDY}") from error
        named = taken.id if taken.id is not None else row.get("id")
        identity = at.rpartition(" ")[2] if named is None else named
        if isinstance(identity, bool) or not isinstance(identity, str | int) or not str(identity).strip():
            raise DataError(f"{at}: id is {identity!r:.80}, expected a text or an integer; {_REMEDY}")
        if layout.name == LM_EVAL:  # a log repeats the same answers for each filter
            before = self._answered.setdefault(f"{identity} {row.get('doc_hash')}", row)
            if before is not row and before["resps"] != row["resps"]:
                raise DataError(f"{at}: doc_id {identity} has different resps in an earlier row; {_REMEDY}")
            if before is not row:
                self._left_out += 1
                return
        steps = tuple(self._steps(one, layout) for one in taken.solutions)
        answer = None if field == "answer" else row.get("answer")
        solutions = (taken.problem, steps, tuple(taken.sides))
        self.rows.append(GivenRow(at, str(identity), *solutions, taken.labels, taken.answers, answer))

    def _cased(self, row: Any) -> Any:
        """The row; with its names in lower case if only these have a layout. Names that differ only by case stay."""
        if not isinstance(row, dict) or any(each.fits(row) for each in self._known):
            return row
        names = Counter(map(str.lower, row))
        lower = {key.lower() if names[key.lower()] == 1 else key: value for key, value in row.items()}
        return lower if self._layout or any(each.fits(lower) for each in self._known) else row

    def _steps(self, solution: str | Sequence[str], layout: Layout) -> tuple[str, ...]:
        if not isinstance(solution, str):
            return unless_blank(solution)
        if self._split == "auto" and layout.auto is not None:
            return tuple(layout.auto(solution))
        way, steps = split_known(solution, self._split)
        self._ways[SAID[way] if steps else ""] += 1
        return tuple(steps)

    def given(self, name: str) -> Given:
        """All rows."""
        layout = self._layout or COLUMNS
        is_plain = layout.name in PLAIN and (self._split == "auto" or self._ways)
        return Given(name, layout.name, self.rows, "" if is_plain else f"{name}: {self._note(layout)}")

    def _note(self, layout: Layout) -> str:
        ways = ", ".join(f"{count:,} {way}" for way, count in self._ways.most_common() if way)
        split = f"; solutions split: {ways} (--split changes this)" if ways else ""
        split += f"; {self._ways['']:,} without text" if self._ways[""] else ""
        if self._split != "auto" and not split:
            split = f"; --split {self._split} changes nothing: every solution is a list of steps"
        left = f"; {self._left_out:,} rows of further filters left out" if self._left_out else ""
        return f"read as {layout.name} ({', '.join(layout.fields)}){split}{left}"


def _layout_of(at: str, row: Any, known: Sequence[Layout], before: Layout | None) -> Layout:
    """The layout of a row; raises ``DataError`` unless the rows before it have the same one."""
    layout = next((each for each in known if isinstance(row, dict) and each.fits(row)), None)
    if layout is not None and before in (None, layout):
        return layout
    found = f"an object with {_fields(row)}" if isinstance(row, dict) else _fields(row)
    if before is not None:
        raise DataError(
            f"{at}: found {found}{' (' + layout.name + ')' if layout else ''}, expected an object with "
            f"{', '.join(before.fields)} ({before.name}); {_REMEDY}"
        )
    wanted = "; ".join(f"{', '.join(each.fields)}" for each in LAYOUTS)
    raise DataError(
        f"{at}: found {found}, expected an object with problem, steps or with the fields of another layout ({wanted}); "
        "name your fields with --columns problem=…,solution=…"
    )


def _named(columns: str) -> dict[str, str]:
    """The field for each name of ``--columns``."""
    pairs = [pair.partition("=") for pair in columns.split(",")] if columns else []
    names = {target.strip(): path.strip() for target, _, path in pairs}
    known = ("problem", "steps", "solution", "solutions", "id", "answers", "answer")
    solutions = {"steps", "solution", "solutions"} & names.keys()
    is_whole = "problem" in names and len(solutions) == 1 and len(names) == len(pairs)
    is_whole &= "answers" not in names or "solutions" in names
    if columns and not (is_whole and all(names.values()) and names.keys() <= {*known}):
        raise UsageError(
            f"--columns {columns}: expected problem=FIELD and one of steps=FIELD, solution=FIELD and solutions=FIELD, "
            "with id=FIELD or answer=FIELD if you like, and answers=FIELD of solutions, separated by commas"
        )
    return names


def _at_path(at: str, row: Any, path: str) -> Any:
    """The field ``path``, or the value that its dotted parts lead to."""
    if isinstance(row, dict) and path in row:
        return row[path]
    value = row
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise DataError(f"{at}: no field {path}, found {_fields(row)}; correct --columns or the row")
    return value


def _fields(row: Any) -> str:
    """The fields of a row, for a message."""
    if not isinstance(row, dict):
        return ascii(row)[:200]
    names = (f"{ascii(key)[1:-1]}{' (null)' * (value is None)}" for key, value in row.items())
    return ", ".join(names)[:200] or "no field"


def _questions(source: str) -> dict[str, Any]:
    """The prompt of each request in the input file of a batch, by ``custom_id``."""
    name, rows = rows_of(source)
    found: dict[str, Any] = {}
    for at, row in rows if not isinstance(rows, str) else [(name, rows)]:
        body, key = (row.get("body"), row.get("custom_id")) if isinstance(row, dict) else (None, None)
        if not isinstance(body, dict) or not isinstance(key, str) or key in found:
            raise DataError(
                f"{at}: expected an object with body and a custom_id of its own, as a batch's input; {_REMEDY}"
            )
        found[key] = body.get("messages", body.get("prompt"))
    return found


def _asked(at: str, row: Row, questions: Mapping[str, Any], source: str) -> Row:
    """The row with its question."""
    if not isinstance(key := row["custom_id"], str) or key not in questions:
        raise DataError(f"{at}: custom_id is {key!r:.80}, which is not in {source}; give the input file of this batch")
    return {**row, "problem": questions[key]}
