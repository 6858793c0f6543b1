"""Edited YAML keeps its comments, quotes and order, and a broken file is an error with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.core.commented_yaml import dump_commented, load_commented

TEXT = """\
# Head.
b: 'one'  # why
a: [1, 2]
none: null
"""


def test_comments_quotes_and_order_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(TEXT)
    content = load_commented(file)
    assert dump_commented(content, 80) == TEXT
    content["a"][:] = [3]
    assert dump_commented(content, 80) == TEXT.replace("[1, 2]", "[3]")


def test_only_lines_above_the_width_are_wrapped(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"a: [{', '.join(['word'] * 30)}]\n")
    content = load_commented(file)
    assert dump_commented(content, 4096) == file.read_text()
    assert max(map(len, dump_commented(content, 40).splitlines())) < 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "not valid YAML"),
        (b"a: 1\n\xd7\xac", r"not valid YAML .*\\u05ec"),
        (b"a: 1\na: 2\n", "not valid YAML"),
        (b"\xff\xfe", "not valid YAML"),
        (b"- 1", "expected a mapping"),
        (b"!!python/object/apply:os.system [echo]", "expected a mapping"),
    ],
)
def test_anything_but_a_mapping_is_refused_with_the_remedy(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"(?s)a\.yaml: {message}.*write another one"):
        load_commented(file, "write another one")
    with pytest.raises(DataError, match="no such file"):
        load_commented(tmp_path / "none.yaml")
