"""The option ``--root`` of the verbs: read an untrusted folder with this program, and run nothing from it.

``sys.path`` and ``PATH`` may name the folder, or places relative to the current one. ``closed`` removes the former and
makes the others absolute before the folder becomes the current one.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import chdir
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from ground.io import DataError
from ground.text import printable

Root = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="DIR", help="The project's folder (default: this one), read with this program's code."
    ),
]
_RUNS_CODE = "replay"
"""The verb that runs code of the folder."""


def rooted(app: typer.Typer) -> typer.Typer:
    """Add ``--root`` to the verbs of ``app`` that run nothing from it; the user's files (``Path``) stay in place."""
    for command in app.registered_commands:
        if command.callback is not None and command.callback.__name__ != _RUNS_CODE:
            command.callback = _rooted(command.callback)
    return app


def _rooted(verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    def run(root: Path | None, **given: Any) -> Any:
        if root is None:
            return verb(**given)
        try:
            folder = closed(root)
            with chdir(folder):
                from evidence.settings import STATE  # the folder's

                if not Path(os.path.realpath(STATE)).is_relative_to(folder):
                    raise DataError(f"{STATE}: a symbolic link leads out of the folder of --root; remove the link")
        except DataError as error:
            print(f"error: {printable(str(error))}", file=sys.stderr)
            raise typer.Exit(2) from error
        given = {name: _from_here(value) for name, value in given.items()}
        with chdir(folder):
            return verb(**given)

    signature = inspect.signature(verb, eval_str=True)
    option = inspect.Parameter("root", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Root)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    return run


def _from_here(value: Any) -> Any:
    """Make a path, or each path in a list, absolute; other values stay as they are."""
    if isinstance(value, list):
        return [_from_here(each) for each in value]
    return value.absolute() if isinstance(value, Path) else value


def closed(root: Path) -> Path:
    """The folder ``root``, from which this process imports and starts nothing from now on.

    Raises ``DataError`` if it is not a folder, or if this process loaded a module from it.
    """
    folder = root.resolve()
    if not folder.is_dir():
        raise DataError(f"{root}: no such folder; name the folder of a project with --root")
    for name, module in list(sys.modules.items()):
        if (file := getattr(module, "__file__", None)) and Path(file).resolve().is_relative_to(folder):
            message = f"this program loaded {name} from the folder of --root; use a program that is installed elsewhere"
            raise DataError(f"{file}: {message}")
    sys.path[:] = _outside(folder, sys.path)
    os.environ["PATH"] = os.pathsep.join(_outside(folder, os.get_exec_path()))
    return folder


def _outside(folder: Path, names: Iterable[str]) -> list[str]:
    """The places that are not below ``folder``, as absolute paths."""
    places = [Path(name).absolute() for name in names]
    return [str(place) for place in places if not place.resolve().is_relative_to(folder)]
