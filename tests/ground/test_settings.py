"""YAML files and settings: one clear error that names the file, the key and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from ground.io import DataError
from ground.settings import Section, dump_yaml, parse_yaml, read_settings, read_yaml


class Inner(Section):
    """A section."""

    count: int


class Whole(Section):
    """A file."""

    inner: Inner
    name: str


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "not valid YAML"),
        (b"\xff\xfe", "not valid YAML"),
        (b"- 1", "expected a mapping"),
        (b"", "expected a mapping"),
        (b"a: {b: 1, c: 2, b: 1}", "not valid YAML .duplicate key 'b'"),
        (b"a:\n<<<<<<< HEAD\n  b: 1\n=======\n  b: 2\n>>>>>>> x", r"a merge left conflict markers \(line 2\); take"),
        (b"!!python/object/apply:os.system [echo]", "not valid YAML"),
    ],
)
def test_anything_but_a_mapping_is_refused_with_the_remedy(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"(?s)settings\.yaml: {message}.*write another one"):
        read_yaml(file, "write another one")


def test_a_missing_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.yaml: no such file; .*write one"):
        read_yaml(tmp_path / "none.yaml", "write one")


def test_every_wrong_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("inner: {count: '1', other: 2}")
    with pytest.raises(DataError) as caught:
        read_settings(Whole, file)
    for wrong in ("inner.count: ", "inner.other: Extra inputs", "name: Field required"):
        assert wrong in str(caught.value)
    file.write_text("inner: {count: 1}\nname: a")
    assert read_settings(Whole, file) == Whole(inner=Inner(count=1), name="a")


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan"])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, value: str) -> None:
    class Rate(Section):
        rate: float

    file = tmp_path / "settings.yaml"
    file.write_text(f"rate: {value}\n")
    with pytest.raises(DataError, match=r"rate: Input should be a finite number"):
        read_settings(Rate, file)


WORDS = (
    *("on", "off", "yes", "No", "y", "true", "FALSE", "fALSE", "null", "~", "1:30", "-1:30", "1:30.5", "2024-01-01"),
    *("010", "-010", "08", "0_9", "1_000", "0o10", "0O10", "0x1F", "0X1F", "-0b11", "00", "+1", "_1", "1,000"),
    *("1e5", "1e-5", "1.5e3", "1.", ".5", "-.5", "._5", ".5e3", ".5e+3", "1.e3", "1e", "-.INF", ".inf", "."),
)


@pytest.mark.parametrize("word", WORDS)
def test_a_value_is_read_as_dvc_reads_it_and_a_text_is_written_for_every_reader(word: str) -> None:
    dvc = YAML(typ="safe", pure=False).load
    ours, theirs = parse_yaml(f"a: {word}")["a"], dvc(f"a: {word}")["a"]
    assert (ours, type(ours)) == (theirs, type(theirs))
    assert [read(dump_yaml({"a": word})) for read in (parse_yaml, dvc, yaml.safe_load)] == [{"a": word}] * 3
