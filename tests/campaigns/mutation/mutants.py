"""Write all mutants of a module into its file, in a copy of the tree.

``python -m tests.campaigns.mutation.mutants MODULE TYPES TREE``

mutmut makes the mutants. The environment variable ``MUTANT_UNDER_TEST`` chooses one; without it, the code does what it
did. ``TYPES`` is a folder for mypy's cache, ``TREE`` the digest of the tree.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

from tests.campaigns.mutation.verdicts import Mutants

_MYPY = ["mypy", "--output", "json", "--disable-error-code", "unused-ignore"]
_MYPY += ["--disable-error-code", "unreachable", "--disable-error-code", "no-redef"]


def main() -> None:
    """Mutate the module. Mutants keep verdicts of an earlier run that still hold."""
    module, types, tree = sys.argv[1:]
    file = Path(module)
    mutmut = importlib.import_module("mutmut.mutation.file_mutation")
    mutated = mutmut.mutate_file_contents(module, file.read_text(encoding="utf-8"))
    file.write_text(mutated.code, encoding="utf-8")
    spans = {name: (span.start, span.end) for name, span in mutated.line_span_by_function_name.items()}
    new = Mutants(module, dict.fromkeys(mutated.mutant_names), dict(mutated.hash_by_function_name), spans, tree)
    new.keep(Mutants.read())
    for line in _errors(module, types):
        new.verdicts[next(name for name, (start, end) in spans.items() if start <= line <= end)] = "refused"
    new.write()


def _errors(module: str, types: str) -> list[int]:
    """The lines that mypy refuses."""
    command = [sys.executable, "-m", *_MYPY, "--cache-dir", types, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stdout + done.stderr)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [one["line"] for one in found if one["severity"] == "error" and one["file"] == module]


if __name__ == "__main__":
    main()
