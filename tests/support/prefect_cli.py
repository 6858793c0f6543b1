"""Several commands of Prefect in one process: Python takes seconds to import Prefect."""

from __future__ import annotations

import json
from collections.abc import Sequence

_SCRIPT = """\
import json, sys
from prefect.cli import app
for words in json.loads(sys.argv[1]):
    sys.argv = ["prefect", *words]
    try:
        app()
    except SystemExit as end:
        if end.code:
            raise
"""


def prefect_commands(commands: Sequence[Sequence[str]]) -> list[str]:
    """Python's arguments to run the commands, each given by its words after ``prefect``; the first failure ends it."""
    return ["-c", _SCRIPT, json.dumps(commands)]
