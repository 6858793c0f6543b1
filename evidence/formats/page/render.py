"""One self-contained page of a history: a graph from the figures down to the lines of the sources.

A row is a figure, the runs of a stage, or a source; it opens to show the known facts about it. The page works without
its script, which only highlights the rows above and below a row. All text is untrusted and escaped.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, Template

from evidence.audit.sources import RAW
from evidence.formats.lineage import text_of
from evidence.formats.page.lanes import path_of, reduced, rows_of, width_of, x_of
from evidence.formats.page.nodes import Nodes
from evidence.settings import SETTINGS, STATE
from ground.io import write_text
from ground.show import counted
from ground.text import visible

PAGE = STATE / "stages.html"
"""The page of the whole history, which every run writes again."""
_TEMPLATES = Path(__file__).parent / "templates"


def write_page(root: Path = Path(".")) -> None:
    """Write the page of the whole history to ``PAGE``; raises ``DataError`` as ``render`` does."""
    write_text(root / PAGE, render(root))


def render(root: Path, target: str | None = None) -> str:
    """The page of the history behind ``target``, or behind everything that the pipeline makes, as HTML.

    A target such as ``reports/tables.json#/results/0/processbench`` is one figure: the page then holds the stages
    behind the figure. Nothing is hashed again. Raises ``DataError`` as ``Nodes`` does.
    """
    found = Nodes(root, target)
    nodes = found.nodes()
    parents = reduced({node.id: node.parents for node in nodes})
    rows = rows_of([node.id for node in nodes], parents)
    parts = [part for node in nodes for part in node.parts]
    runs = [part.run for part in parts if part.run]
    script = (_TEMPLATES / "lineage.js").read_text(encoding="utf-8")
    page = _template().render(
        settings=SETTINGS,
        title=f"Lineage of {target}" if target else "Lineage of the pipeline",
        nodes=nodes,
        rows=rows,
        width=width_of(rows),
        parents=parents,
        path_of=path_of,
        x_of=x_of,
        row_of=found.row_of,
        text_of=text_of,
        counted=counted,
        raw=RAW,
        pretty=partial(json.dumps, indent=1, ensure_ascii=False, sort_keys=True),
        stages=sum(bool(part.state) for part in parts),
        recorded=len(runs),
        seconds=sum(run.content["times"]["seconds"] for run in runs),
        style=(_TEMPLATES / "lineage.css").read_text(encoding="utf-8"),
        script=script,
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return page.lstrip()


@cache
def _template() -> Template:
    """The page's template, which escapes whatever is inserted."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if hasattr(value, "__html__") else visible(str(value)),
    ).get_template("lineage.html")
