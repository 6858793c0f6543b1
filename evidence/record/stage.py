"""The entry point of every stage: command line, lineage record, and errors without a traceback."""

from __future__ import annotations

import argparse
import gc
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from evidence.record.identity import code_digest
from evidence.record.record import recorded
from ground.recording import listen
from ground.text import errors_without_traceback

listen(code=code_digest)


def stage(work: Callable[..., None]) -> Callable[..., None]:
    """Make a stage's ``main`` from its work, and record the run under the stage of dvc.yaml with this command.

    The parameters of ``work`` become positional arguments, and keyword-only ones options. Annotate them
    ``Annotated[str, "help"]``, with a ``Literal`` instead of ``str`` to restrict the values; a parameter with a default
    is optional, and a ``bool`` is a flag. Started by ``python -m``, the stage prints a ``PathfinderError`` and exits
    with its status; ``main(["full"])`` raises the error.
    """

    def main(argv: Sequence[str] | None = None) -> None:
        module = _module_name(work)
        is_script = work.__module__ == "__main__"
        if is_script:
            gc.freeze()  # imported objects stay: the collector need not search them again
        words = sys.argv[1:] if argv is None and is_script else list(argv or ())
        given = vars(_parser(work, module).parse_args(words))
        cmd = " ".join([f"python -m {module}", *words])
        with errors_without_traceback() if is_script else nullcontext(), recorded(cmd):
            work(**given)

    main.__doc__, main.__module__ = work.__doc__, work.__module__
    gc.enable()  # ``stages`` disables it while a stage's modules are imported
    return main


def _module_name(work: Callable[..., None]) -> str:
    """``stages.train``, even if that module was started as ``__main__``."""
    spec = sys.modules[work.__module__].__spec__ if work.__module__ == "__main__" else None
    return spec.name if spec else work.__module__


def _parser(work: Callable[..., None], module: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=sys.modules[work.__module__].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    hints = get_type_hints(work, include_extras=True)
    for name, parameter in inspect.signature(work).parameters.items():
        kind, note = hints[name], None
        if get_origin(kind) is Annotated:
            kind, note = get_args(kind)
        if kind is bool:
            parser.add_argument(f"--{name}", action="store_true", help=note)
            continue
        options: dict[str, Any] = {"help": note}
        if get_origin(kind) is Literal:
            options["choices"] = get_args(kind)
        is_option = parameter.kind is parameter.KEYWORD_ONLY
        if parameter.default is not parameter.empty:
            options |= {"default": parameter.default} | ({} if is_option else {"nargs": "?"})
        parser.add_argument(f"--{name}" if is_option else name, **options)
    return parser
