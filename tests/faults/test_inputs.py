"""Malformed documents of every format end in one clear error or are read as they say (tests/faults/inputs)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.inputs import answers
from tests.faults.inputs.binaries import Binary
from tests.faults.inputs.campaign import DOCUMENTS, FORMATS, cases, run
from tests.faults.inputs.documents import Document
from tests.faults.inputs.judgement import judge
from tests.faults.inputs.malform import Malformed

NAMES = [document.name for document in DOCUMENTS]
# Edits of any byte also change keys that these formats do not list as fields: PRM800K counts a step without
# completions, the class of a PRMBench row is a part of its id, and a record has nested keys.
EDITED = [one for one in DOCUMENTS if one.name not in ("PRM800K", "solutions, PRMBench", "record of a stage")]
ALL_NAMES = [one.name for one in FORMATS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_a_valid_document_is_read(document: Document, tmp_path: Path) -> None:
    valid = Malformed("valid", "", document.content())
    assert judge(document, valid, tmp_path).problem == ""
    assert document.expected(document.rows) is not None


@pytest.mark.parametrize("one_format", FORMATS, ids=ALL_NAMES)
def test_every_format_has_sixty_kinds(one_format: Document | Binary) -> None:
    kinds = set()
    for one in cases(one_format, Random(1)):
        kinds.add(one.kind)
        if len(kinds) >= 60:
            return
    pytest.fail(f"{one_format.name} has {len(kinds)} kinds")


def test_a_sample_is_refused_or_read_as_it_says() -> None:
    slow = [
        one for one in FORMATS if one.name in ("params.yaml", "profile") or (isinstance(one, Binary) and one.is_slow)
    ]
    quick = [one for one in FORMATS if one not in slow]
    assert [problem for tally in run(quick, seed=1, share=0.04) for problem in tally.problems] == []


@pytest.mark.faults
@pytest.mark.parametrize("one_format", FORMATS, ids=ALL_NAMES)
def test_every_malformed_document_is_refused_or_read_as_it_says(one_format: Document | Binary) -> None:
    (tally,) = run([one_format], seed=1)
    assert tally.problems == []


def test_random_answers_of_a_judge_give_their_scores_or_a_reason() -> None:
    found = answers.run(1_500, seed=1)
    assert found.problems == []
    assert min(found.read.values()) > 20
    assert found.longest_s < answers.LONGEST_S


@pytest.mark.faults
def test_a_hundred_thousand_answers_of_a_judge_give_their_scores_or_a_reason() -> None:
    found = answers.run(100_000, seed=7)
    assert found.problems == []
    assert found.longest_s < answers.LONGEST_S


def mutations(size: int) -> st.SearchStrategy[list[tuple[int, int, bytes]]]:
    pieces = st.one_of(
        st.binary(max_size=3),
        st.sampled_from(
            [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\n", b"null", b"1e999", b"\\u0000", b"\xe2\x80\xa8"]
        ),
    )
    place = st.integers(0, size)
    return st.lists(st.tuples(place, st.integers(0, 12), pieces), min_size=1, max_size=3)


def check_mutations(data: st.DataObject, document: Document, folder: Path) -> None:
    content = document.content()
    for start, length, piece in data.draw(mutations(len(content))):
        content = content[:start] + piece + content[start + length :]
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()
    assert judge(document, Malformed("random", "", content), folder).problem == "", content


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_edits_are_refused_or_read_as_they_say(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = data.draw(st.sampled_from(EDITED))
    check_mutations(data, document, tmp_path_factory.mktemp("edited"))


@pytest.mark.faults
@pytest.mark.parametrize("document", EDITED, ids=[one.name for one in EDITED])
def test_many_random_edits_are_refused_or_read_as_they_say(
    document: Document, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("edited")

    @settings(max_examples=1000, deadline=None, derandomize=True)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_mutations(data, document, folder)

    check()
