"""Files: atomic writers, and readers whose errors name the file and the row.

A file or folder appears by one rename, so no reader sees half of it. Its content is on disk before the rename, and its
name is on disk when the writer returns, so a power loss leaves no half either. Equal rows give equal bytes. Names that
end in ``.gz`` are read and written compressed, without a time stamp.
"""

from __future__ import annotations

import codecs
import ctypes
import errno
import fcntl
import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import polars as pl  # imported by the functions that need it, so that a command starts quickly

_NO_FILE = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""The error of a file system that cannot sync a folder."""
LONGEST_LINE = 1 << 28
"""The most bytes in a line of JSON; a file with a single JSON value may have four times as many."""
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
"""The form in which Rust libraries (polars, safetensors) name an operating system error, whatever its type."""
_NO_CAUSE = "Invalid thrift: transport error"  # polars, if a write failed within a Parquet header
_AT_FDCWD, _RENAME_NOREPLACE, _RENAME_EXCHANGE = -100, 1, 2  # of renameat2(2)


class PathfinderError(Exception):
    """An error whose message needs no traceback. Commands print it and exit with ``exit_status``."""

    exit_status = 1


class DataError(PathfinderError, ValueError):
    """Bad input or a failed check: the message names the file, the row and the remedy."""


class TransientError(PathfinderError, RuntimeError):
    """A temporary failure outside this program (network, server, lock): the same command may succeed later.

    The exit status is ``EX_TEMPFAIL`` of sysexits.h; the flow retries stages that exit with it.
    """

    exit_status = 75


def sha256_file(path: Path) -> str:
    """The hexadecimal sha256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_of(content: bytes) -> str:
    """The hexadecimal sha256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def digest_of(value: Any) -> str:
    """The sha256 of a JSON value in canonical form; raises ``TypeError`` for a value that JSON cannot represent."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return sha256_of(text.encode())


def text_digest(text: str) -> str:
    """The first 16 hexadecimal digits of the sha256 of ``text`` in UTF-8."""
    return sha256_of(text.encode())[:16]


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` if the block succeeds and is removed if it fails."""
    with _temporary(path, tempfile.mkstemp) as temporary:
        yield temporary
        _finish(temporary)
        temporary.replace(path)
        sync(path.parent)


@contextmanager
def exclusive_file(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """Like ``atomic_file`` for a new file: raises ``FileExistsError`` if ``path`` already exists."""
    with _temporary(path, tempfile.mkstemp) as temporary:
        yield temporary
        _finish(temporary, mode)
        if not _renamed(temporary, path, _RENAME_NOREPLACE):
            os.link(temporary, path)  # a writer that is killed here leaves the temporary name
        sync(path.parent)


def _finish(temporary: Path, mode: int = 0o644) -> None:
    """Set the mode of a file or folder, and wait until it is on disk."""
    temporary.chmod(mode)
    sync(temporary)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk; raises ``OSError`` with the path."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents so that all survive a power loss; raises ``OSError`` with the path."""
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise _refused(error, folder) from error
        sync(folder.parent)


def _refused(error: OSError, path: Path) -> OSError:
    """The error for a new path: "read-only", not "absent", if its folder takes no new names, like ``/proc``."""
    number = errno.EROFS if error.errno == errno.ENOENT and path.parent.is_dir() else error.errno or 0
    return OSError(number, os.strerror(number), str(path))


def _sync_tree(folder: Path) -> None:
    """``sync`` a folder and every file and folder below it."""
    for base, _, names in os.walk(folder):
        for name in names:
            if not (file := Path(base, name)).is_symlink():
                sync(file)
        sync(Path(base))


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``path`` if the block succeeds and is removed if it fails.

    The old folder and the new one change places in one step, so no reader finds ``path`` missing. Only if the file
    system cannot exchange names is the old folder moved away first.
    """
    with _temporary(path, tempfile.mkdtemp) as temporary:
        yield temporary
        temporary.chmod(0o755)
        _sync_tree(temporary)
        if not path.exists():
            temporary.replace(path)
        elif not _renamed(temporary, path, _RENAME_EXCHANGE):
            with _temporary(path, tempfile.mkdtemp) as former:
                path.replace(former)
                temporary.replace(path)
        sync(path.parent)


@contextmanager
def _temporary(path: Path, make: Callable[..., Any]) -> Iterator[Path]:
    """Make a locked file or folder next to ``path``, and remove it at the end unless it was renamed."""
    make_folder(path.parent)
    _sweep(path)
    temporary, descriptor = _locked(path, make)
    try:
        yield temporary
    except Exception as error:
        if (named := _named(error, temporary, path)) is error:
            raise
        raise named from error
    finally:
        os.close(descriptor)
        remove(temporary)


def _locked(path: Path, make: Callable[..., Any]) -> tuple[Path, int]:
    """A new file or folder, and the descriptor that holds its lock."""
    while True:
        try:
            made = make(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        except OSError as error:  # users do not know the temporary name
            raise _refused(error, path) from error
        temporary = Path(made if isinstance(made, str) else made[1])
        try:
            descriptor = os.open(temporary, os.O_RDONLY) if isinstance(made, str) else made[0]
        except FileNotFoundError:  # another writer of the path took it for a leftover
            continue
        _lock(descriptor, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, descriptor
        os.close(descriptor)  # another writer removed it before it was locked


def _named(error: Exception, temporary: Path, path: Path) -> Exception:
    """An operating system error with its number and the file that the user knows; any other error unchanged."""
    if isinstance(error, OSError) and error.errno is not None:
        # a failed write names no file, or the temporary file
        if error.filename is None or str(error.filename).endswith(temporary.name):
            error.filename = str(path)
    elif not isinstance(error, PathfinderError) and (found := _SYSTEM_ERROR.search(str(error))):
        return OSError(int(found[1]), os.strerror(int(found[1])), str(path))
    elif _NO_CAUSE in str(error):
        return DataError(f"{path}: not written; check its disk for space (`df -h`, `ulimit -f`) and faults (`dmesg`)")
    return error


def _sweep(path: Path) -> None:
    """Remove the leftovers of killed writers of ``path``; no process locks these."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                if _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    remove(left)
            finally:
                os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except OSError:  # held by its writer, or the file system has no locks
        return False
    return True


def remove(path: Path) -> None:
    """Remove a file, or a folder with all its content, if it exists.

    The second attempt removes the files that a failed call leaves. It is no error if a read-only disk keeps files.
    """
    for _ in range(2):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _renamed(one: Path, other: Path, how: int) -> bool:
    """Exchange two names, or rename unless the second one exists, in one step; False if that fails."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = (os.fsencode(one), os.fsencode(other))
    return rename is not None and rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], how) == 0


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading and decompress it if its name ends in ``.gz``.

    Raises ``DataError`` if it is missing, damaged or not a file.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise DataError(f"{path}: {error.strerror}; give a file, or run the command that makes it") from error
    opened = cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb") if path.suffix == ".gz" else raw)
    try:
        with raw, opened:
            yield opened
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be decompressed ({error}); fetch or create the file again") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write atomically, compressed if the name ends in ``.gz``."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write one JSON value atomically, with sorted keys and two spaces; raises ``ValueError`` for NaN."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read one JSON value; raises ``DataError`` if it is not valid or an object has a key twice."""
    with open_bytes(path) as handle:
        return parse_json(whole(handle, str(path)), str(path))


def whole(handle: IO[bytes], name: str) -> bytes:
    """The rest of a file; raises ``DataError`` with ``name`` if it is too long for one JSON value."""
    pieces = iter(partial(handle.read, 1 << 20), b"")  # a larger request would reserve that much memory
    content = b"".join(islice(pieces, (LONGEST_LINE >> 18) + 1))
    if len(content) > 4 * LONGEST_LINE:
        raise DataError(f"{name}: over {LONGEST_LINE >> 18} MiB in one JSON value; write one record per line instead")
    return content


def parse_json(content: bytes, name: str) -> Any:
    """Parse one JSON value; raises ``DataError`` with ``name`` if it is not valid or an object has a key twice."""
    return _parsed(content.removeprefix(codecs.BOM_UTF8), name, "fetch or create the file again")


def strict_json(content: bytes | str) -> Any:
    """Parse JSON in UTF-8, without its byte order mark; raises ``ValueError`` for anything else and for repeated keys.

    ``json.loads`` guesses other encodings, accepts lone surrogates in bytes, and takes the last of equal keys.
    """
    try:
        return _DECODER.decode(content if isinstance(content, str) else content.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parsed(content: bytes, name: str, remedy: str) -> Any:
    try:
        return strict_json(content)
    except ValueError as error:  # malformed JSON or UTF-8, a key twice, an integer of over 4,300 digits
        said = str(error).replace(": line 1 column", ": column")
        raise DataError(f"{name}: not valid JSON ({said}); {remedy}") from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these pairs, for a JSON decoder; raises ``ValueError`` if a key occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"duplicate key {Counter(key for key, _ in pairs).most_common(1)[0][0]!r:.80}")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON value per line, atomically; keys keep their order."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield ``(line number from 1, value)`` and skip blank lines; raises ``DataError`` for a broken line.

    Only ``\\n`` ends a line, so separators inside the JSON text never split a record.
    """
    with open_bytes(path) as handle:
        yield from parse_jsonl(handle, str(path))


def parse_jsonl(handle: IO[bytes], name: str) -> Iterator[tuple[int, Any]]:
    """Parse lines like ``read_jsonl``; raises ``DataError`` with ``name`` in place of the path."""
    for number, line in lines_of(handle, name):
        yield number, _parsed(line.rstrip(b"\r\n"), f"{name}:{number}", "correct or remove the line")


def lines_of(handle: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield ``(number from 1, line)`` and skip blank lines; raises ``DataError`` for a line that is too long."""
    for number, line in enumerate(iter(partial(handle.readline, LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise DataError(f"{name}:{number}: a line of over {LONGEST_LINE >> 20} MiB; write one record per line")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield number, line


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a frame atomically, compressed with zstd."""
    with atomic_file(path) as temporary:
        frame.write_parquet(temporary, compression="zstd", statistics=True)


def read_parquet(
    path: Path, schema: dict[str, Any] | None = None, reduce: Callable[[pl.LazyFrame], pl.LazyFrame] | None = None
) -> pl.DataFrame:
    """Read a frame; raises ``DataError`` if it is missing or its columns are not exactly the columns of ``schema``.

    With ``reduce``, the file is read in parts, and memory holds only the results of ``reduce``.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file; run the stage that writes it (`dvc repro` runs all that are needed)")
    import polars as pl

    try:
        frame = pl.scan_parquet(path).pipe(reduce).collect(engine="streaming") if reduce else pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(f"{path}: not a readable Parquet file ({reason}); run its stage again") from error
    if schema is not None and dict(frame.schema) != schema:
        raise DataError(f"{path}: columns are {dict(frame.schema)}, expected {schema}; re-run the stage that writes it")
    return frame
