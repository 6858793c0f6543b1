"""Text on a terminal: text from outside cannot move the cursor, hide or reorder anything; errors have no traceback."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from ground.io import DataError, TransientError, atomic_file, write_text
from ground.text import errors_without_traceback, first_problem, has_colour, printable
from tests.conftest import FullDisk


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("hidden", ["\x1b[31m", "\r", "\t", "\x00", "\u202e", "\u200b", "\u2028", "\ud800", "\x85"])
def test_hidden_characters_are_written_as_escapes(hidden: str) -> None:
    shown = printable(f"a{hidden}b")
    assert shown.isprintable()
    assert shown != f"a{hidden}b"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (None, "the whole file: "),
        ([{"a": [1]}, {"a": [1, "x"]}], "row 2.a.1: "),
        ([{"\x1b": [None]}], "row 1.\\x1b.0: "),
        ([{"k" * 99: [None]}], f"row 1.{'k' * 74}: "),
    ],
)
def test_the_first_wrong_key_of_a_document_is_named(value: object, place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[dict[str, list[int]]]).validate_python(value, strict=True)
    assert first_problem(caught.value).startswith(f"{place}Input should be a valid ")


def test_visible_text_and_newlines_stay() -> None:
    text = "Ünïcode <+> 你好\n½ of\u00a0it"
    assert printable(text) == text


@pytest.mark.parametrize("error", [DataError, TransientError])
def test_an_error_is_printed_safely_and_exits_with_its_status(
    error: type[DataError | TransientError], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop, errors_without_traceback():
        raise error("a.txt: \x1b[2Jbad\nremedy")
    assert stop.value.code == error.exit_status
    assert capsys.readouterr().err == "error: a.txt: \\x1b[2Jbad\nremedy\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EINTR])
def test_an_error_of_the_disk_is_one_line_with_the_file_and_the_remedy(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop, errors_without_traceback(), atomic_file(tmp_path / "out.json"):
        raise OSError(number, os.strerror(number))
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 1
    assert line.startswith(f"error: {tmp_path}/out.json: {os.strerror(number)}; ")
    assert line.endswith("run the command again")


@pytest.mark.parametrize("client", ["httpx", "httpx2"])
@pytest.mark.parametrize("proxy", ["socks://127.0.0.1:1080", "socks5://me:secret@127.0.0.1:1080"])
def test_a_proxy_that_no_client_can_use_is_one_line_with_the_remedy(
    client: str, proxy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = pytest.importorskip(client)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(SystemExit) as stop, errors_without_traceback():
        library.Client()
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 1
    assert line.startswith("error: the proxy in ALL_PROXY, ")
    assert "secret" not in line


def test_a_full_disk_is_reported_with_the_name_of_the_file(tmp_path: Path, full_disk: FullDisk) -> None:
    with pytest.raises(OSError, match="File too large") as caught, full_disk():
        write_text(tmp_path / "out.txt", "text")
    assert caught.value.filename == str(tmp_path / "out.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "file").touch()
    for name, write in ((file / "my", Path.touch), (file, Path.mkdir), (tmp_path, Path.read_bytes)):
        with pytest.raises(SystemExit), errors_without_traceback():
            write(name)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {name}: ")
        assert line.partition("; ")[2].startswith("give ")
    with pytest.raises(SystemExit), errors_without_traceback():
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), "immutable")
    assert capsys.readouterr().err.endswith("; correct its permissions or attributes (`lsattr`)\n")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        RuntimeError("can't start new thread"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
        ImportError("libtorch.so: failed to map segment from shared object"),
    ],
    ids=repr,
)
def test_too_little_memory_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop, errors_without_traceback():
        raise error
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 1
    assert "free memory, or raise the limit (`ulimit -v`" in line


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError), errors_without_traceback():
        raise RuntimeError("a fault of the code")
    with pytest.raises(ZeroDivisionError), errors_without_traceback():
        raise ZeroDivisionError
    with pytest.raises(FileNotFoundError), errors_without_traceback():
        raise FileNotFoundError(errno.ENOENT, "a path that the code made up")


def test_colour_is_for_terminals_that_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert has_colour(terminal)
    assert not has_colour(io.StringIO())
    with pytest.raises(SystemExit), errors_without_traceback():
        raise DataError("bad")
    assert terminal.getvalue() == "\x1b[31merror: bad\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(terminal)
