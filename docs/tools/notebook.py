"""Run the code cells of examples/first_steps.ipynb and store their outputs in it.

Run     python -m docs.tools.notebook    in the project's root folder; about ten seconds
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ground.io import read_json, write_text
from ground.text import errors_without_traceback

NOTEBOOK = Path("examples/first_steps.ipynb")


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook (nbformat 4) with fresh outputs: the printed text and the last value of each code cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = cell | {"execution_count": count, "outputs": list(_outputs("".join(cell["source"]), names, count))}
        cells.append(cell)
    return notebook | {"cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    body = ast.parse(source).body
    last = body[-1] if isinstance(body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body[:-1] if last else body, []), str(NOTEBOOK), "exec"), names)  # noqa: S102 - the project's own notebook
        value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names) if last else None  # noqa: S307
    if text := printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_svg_"):
            data["image/svg+xml"] = value._repr_svg_().splitlines(keepends=True)
        yield {"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}


def main() -> None:
    """Write the notebook with fresh outputs."""
    write_text(NOTEBOOK, json.dumps(executed(read_json(NOTEBOOK)), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
