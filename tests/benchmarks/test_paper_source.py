"""Our copy of the paper's result tables against its LaTeX source, which is not part of the repository.

PATHFINDER_PAPER names the source; by default it is shared/paper/paper.tex next to the clone.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import pytest

from pathfinder.benchmarks.paper import (
    CONTENT,
    PRMBENCH,
    PROCESSBENCH,
    PROCESSBENCH_FULL,
    SCALE,
    SEARCH,
    PaperTable,
)
from pathfinder.core.prompts import JUDGE_PROMPT

SOURCE = Path(os.environ.get("PATHFINDER_PAPER", Path(__file__).resolve().parents[3] / "shared/paper/paper.tex"))
TABLES = [PROCESSBENCH, PROCESSBENCH_FULL, PRMBENCH, SEARCH]
_MACROS = re.compile(r"\\(?:textbf|underline|textit|texttt)\{([^{}]*)\}")
_NOISE = re.compile(
    r"\\(?:hspace|cmidrule|addlinespace)(?:\([a-z]+\))?\{[^{}]*\}|\\(?:midrule|toprule|bottomrule)|\$\^\\dag\$"
)

needs_source = pytest.mark.skipif(not SOURCE.exists(), reason=f"{SOURCE} does not exist (set PATHFINDER_PAPER)")


def source() -> str:
    text = SOURCE.read_text(encoding="utf-8").replace("\u2011", "-").replace("\\%", "%")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("%"))


def rows_of(label: str) -> list[list[str]]:
    """The rows of the table with this label as cells of plain text; a row "w/o …" has the name of its model first."""
    (table,) = [t for t in re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source(), re.DOTALL) if label in t]
    body = table.partition("\\begin{tabular}")[2].partition("\\end{tabular}")[0]
    rows, model = [], ""
    for row in re.split(r"\\\\(?:\[[^\]]*\])?", body):
        plain = re.sub(r"\\model\{\s*([^{}]*?)\s*\}", r"PathFinder-PRM\1", row)
        plain = _NOISE.sub("", _MACROS.sub(r"\1", plain)).replace("$\\circledast$", "").replace("$\\sim$", "~")
        cells = [" ".join(cell.replace("*", "").split()) for cell in plain.split("&")]
        if cells[0].startswith("w/o "):
            cells[0] = f"{model} {cells[0]}"
        elif len(cells) > 1:
            model = cells[0]
        rows.append(cells)
    return rows


@needs_source
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.label)
def test_every_row_is_the_printed_one(table: PaperTable) -> None:
    width = len(table.columns)
    printed = {
        cells[0]: (cells[1] if len(cells) == width + 2 else "", tuple(map(float, cells[-width:])))
        for cells in rows_of(f"\\label{{{table.label}}}")
        if len(cells) in {width + 1, width + 2} and re.fullmatch(r"[\d.]+", cells[-1])
    }
    ours = {row.name: (row.samples, row.values) for row in table.rows}
    assert ours == printed
    assert list(ours) == list(printed), "in the printed order"


@needs_source
def test_the_four_tables_have_69_rows() -> None:
    assert sum(len(table.rows) for table in TABLES) == 69


@needs_source
def test_the_scale_table_is_the_printed_one() -> None:
    label = f"\\label{{{CONTENT['scale']['label']}}}"
    printed = [cells for cells in rows_of(label) if re.fullmatch(r"[\d.]+", cells[-1])]
    ours = [[row.name, row.samples, row.mistral_samples, *(f"{value:g}" for value in row.values)] for row in SCALE]
    assert ours == [[*cells[:3], *(f"{float(value):g}" for value in cells[3:])] for cells in printed]


@needs_source
def test_the_published_judge_prompt_is_the_printed_one_but_for_two_articles() -> None:
    """The copy follows the published code (``DIGESTS``)."""
    box = source().partition("\\begin{promptbox}")[2].partition("]")[2].partition("\\end{promptbox}")[0]
    printed = re.sub(r"\\([{}])", r"\1", box.replace("\\\\", "")).split()
    ours = JUDGE_PROMPT.split()
    changes = [
        (printed[a:b], ours[c:d], printed[b])
        for kind, a, b, c, d in difflib.SequenceMatcher(None, printed, ours, autojunk=False).get_opcodes()
        if kind != "equal"
    ]
    assert changes == [(["the"], [], "previous"), (["the"], [], "current")]


@needs_source
def test_every_section_that_the_code_names_exists(root: Path) -> None:
    chapters = [part.count("\\subsection{") for part in source().split("\\section{")[1:]]
    known = {f"{chapter}.{n + 1}" for chapter, count in enumerate(chapters, start=1) for n in range(count)}
    files = [path for room in ("pathfinder", "stages") for path in (root / room).rglob("*.py")]
    named = {n for path in files for n in re.findall(r"sections? (\d\.\d)", path.read_text(encoding="utf-8"))}
    assert len(named) > 2
    assert named - known == set()
