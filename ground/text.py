"""Text on a terminal: it makes foreign text safe, shows errors in one line, and decides on colour."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, TextIO

from ground.io import DataError, PathfinderError

if TYPE_CHECKING:
    from pydantic import ValidationError

_FREE = "free space on its disk (`df -h`, `ulimit -f`), then run the command again"
_MEMORY = "free memory, or raise the limit (`ulimit -v`, or the job's or container's), then run the command again"
_NO_FOLDER = "give a name whose folders are no files"
_REMEDIES = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EFBIG: _FREE,
    errno.EINTR: "run the command again",
    errno.EIO: "check the disk (`dmesg`), then run the command again",
    errno.EROFS: "use a folder that can be written",
    errno.EACCES: "correct its permissions",
    errno.EPERM: "correct its permissions or attributes (`lsattr`)",
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EISDIR: "give the name of a file",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EMFILE: "allow more open files (`ulimit -n`)",
    errno.ENFILE: "allow more open files (`sysctl fs.file-max`)",
    errno.ENOMEM: _MEMORY,
}
"""The remedies for operating system errors that the machine or a name causes, never the code."""
_NO_MEMORY = re.compile(
    r"(can't|cannot) allocate memory|out of memory|can't start new thread|failed to map segment", re.IGNORECASE
)
"""The words by which libraries report a lack of memory, whatever the type of their error."""
_BAD_PROXY = re.compile(r"Unknown scheme for proxy URL|Using SOCKS proxy, but")
"""The words by which clients refuse a proxy."""
EXTRAS = {
    "serve": ("fastapi", "latex2mathml", "starlette", "uvicorn"),
    "bench": ("latex2sympy2_extended", "math_verify", "openai", "pebble", "polars", "scipy"),
    "evidence": ("boto3", "botocore", "cryptography", "pyarrow"),
    "train": ("accelerate", "peft"),
    "pipeline": ("great_expectations", "prefect", "psutil", "ruamel", "sqlalchemy"),
}
"""The modules that each extra of the distribution installs; the core does not need them."""
_WINGS = {"flows": "pipeline", "evidence": "evidence", "extras": "evidence"}
"""The extra that each wing names in place of `bench`, if `bench` installs the module."""
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class UsageError(DataError):
    """A wrong command, whatever the files contain: an unknown option, or one that conflicts with the others."""

    exit_status = 2


def printable(text: str) -> str:
    """``text`` with every control character and invisible character, except newlines, written as an escape."""
    return "".join(c if _is_visible(c) else c.encode("unicode_escape").decode() for c in text)


def anchor_of(name: str) -> str:
    """The address for a name within a page: ``metrics/train/full.json`` becomes ``metrics-train-full-json``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def visible(text: str) -> str:
    """``text`` with a replacement character for each character that a browser must not get or a reader cannot see."""
    return _UNSAFE.sub("\ufffd", text)


def normalise(text: str) -> str:
    """The form in which problems are compared: NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def dotted(location: Sequence[int | str]) -> str:
    """The place of a value in a file, for a message: its keys joined by dots, in at most 80 characters.

    Rows of a list are counted from 1. The place of the whole file is empty.
    """
    first, *others = location or ("",)
    named = f"row {first + 1}" if isinstance(first, int) else first
    return printable(".".join(map(str, (named, *others))))[:80]


def meant(name: str, known: Iterable[str]) -> str:
    """``did you mean NAME? `` for the known name that is most similar to ``name``; empty if none is similar."""
    import difflib  # only messages need it; commands start faster without it

    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]}? " if near else ""


def first_problem(error: ValidationError) -> str:
    """The first wrong key of a document, with its fault."""
    first = error.errors()[0]
    return f"{dotted(first['loc']) or 'the whole file'}: {first['msg']}"


def has_colour(stream: TextIO) -> bool:
    """True if colour codes may be written to ``stream``: only to a terminal, and not if ``NO_COLOR`` is set."""
    return stream.isatty() and "NO_COLOR" not in os.environ


def columns_of(stream: TextIO) -> int:
    """The width of the terminal that ``stream`` writes to, in characters; no limit for a file or a pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else sys.maxsize


def plain_message(error: object) -> str | None:
    """The message of an error that needs no traceback; ``None`` if the error may be a fault of the code.

    The message of a disk, permission, memory, limit or proxy error names the remedy, and the file if there is one.
    """
    if isinstance(error, PathfinderError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (extra := _extra_for(error)):
        return f"this needs {error.name}, which is not installed; run `pip install '.[{extra}]'` in a clone"
    if isinstance(error, ValueError | ImportError) and _BAD_PROXY.match(str(error)):
        return (
            "the proxy in ALL_PROXY, HTTPS_PROXY or HTTP_PROXY cannot be used; unset the variable, or give it an "
            "address that begins with http:// (for one with socks5://, run `pip install socksio`)"
        )
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        file = error.filename if isinstance(error.filename, (str, Path)) else "a file or standard output"
        return f"{file}: {error.strerror}; {_REMEDIES[error.errno]}"
    return f"there is not enough memory; {_MEMORY}" if lacks_memory(error) else None


def _extra_for(error: ModuleNotFoundError) -> str:
    """The extra that installs a missing module; empty if no extra does."""
    module = (error.name or "").partition(".")[0]
    found = next((extra for extra, modules in EXTRAS.items() if module in modules), "")
    callers = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
    return next((extra for wing, extra in _WINGS.items() if wing in callers and found == "bench"), found)


def lacks_memory(error: object) -> bool:
    """True if an error says that memory is short."""
    is_library = isinstance(error, RuntimeError | ImportError)
    return isinstance(error, MemoryError) or (is_library and _NO_MEMORY.search(str(error)) is not None)


def remedy_in(message: str) -> str | None:
    """The remedy for an operating system error that another program printed; ``None`` for any other message."""
    found = _ERRNO.search(message)
    return _REMEDIES.get(int(found[1])) if found else None


@contextmanager
def errors_without_traceback() -> Iterator[None]:
    """Print an error of the block that needs no traceback on standard error, and raise ``SystemExit`` instead.

    A ``PathfinderError`` has its own exit status; a machine error has 1. A broken pipe has 141 and no message.
    """
    try:
        yield
    except BrokenPipeError:  # a reader of standard output that leaves early, such as `head`
        raise SystemExit(128 + signal.SIGPIPE) from None
    except Exception as error:
        if (plain := plain_message(error)) is None:
            raise
        message = f"error: {printable(plain)}"
        print(f"\x1b[31m{message}\x1b[0m" if has_colour(sys.stderr) else message, file=sys.stderr)
        raise SystemExit(error.exit_status if isinstance(error, PathfinderError) else 1) from error


@contextmanager
def extra_named() -> Iterator[None]:
    """For imports that need an extra: raise ``DataError`` with the extra's name if it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (plain := plain_message(error)) is None:
            raise
        raise DataError(plain) from error


def _is_visible(character: str) -> bool:
    return character == "\n" or character.isprintable() or unicodedata.category(character) == "Zs"
