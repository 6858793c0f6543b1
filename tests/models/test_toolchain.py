"""``toolchain``: what Triton lacks is named with the command that installs it, before any kernel is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.models import toolchain
from pathfinder.tree import attention


@pytest.fixture
def fresh() -> Iterator[None]:
    """No answer of an earlier call, before and after."""
    for cached in (toolchain.require_compiler, attention._flex_attention):
        cached.cache_clear()
    yield
    for cached in (toolchain.require_compiler, attention._flex_attention):
        cached.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_flex_attention_names_the_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if FlexAttention for a GPU is compiled without this check: Triton's own error names no package."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"no C compiler .*; sudo apt-get install gcc python3\.\d+-dev"):
        attention._flex_attention("cuda")
    assert callable(attention._flex_attention("cpu"))


def test_missing_headers_are_named(tmp_path: Path) -> None:
    assert toolchain.compile_problem("cc", tmp_path) == f"{tmp_path}/Python.h does not exist"


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "Python.h").write_text("")
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'stdio.h: No such file' >&2\nexit 1\n")
    failing.chmod(0o755)
    assert toolchain.compile_problem(str(failing), tmp_path).endswith("cannot compile Python.h: stdio.h: No such file")
    assert "does not start" in toolchain.compile_problem(str(tmp_path / "absent"), tmp_path)


def test_this_machines_compiler_is_tried() -> None:
    if toolchain.compiler() is None or not (toolchain.headers() / "Python.h").is_file():
        pytest.skip("no C compiler or no Python.h; see `make doctor`")
    assert toolchain.compile_problem(toolchain.compiler(), toolchain.headers()) == ""
