"""Malformed documents of every format end in one clear error or are read as they say (``inputs``)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.campaigns.faults.inputs import answers
from tests.campaigns.faults.inputs.binaries import Binary
from tests.campaigns.faults.inputs.campaign import DOCUMENTS, FORMATS, cases, run
from tests.campaigns.faults.inputs.documents import Document
from tests.campaigns.faults.inputs.judgement import judge
from tests.campaigns.faults.inputs.malform import Malformed

NAMES = [document.name for document in DOCUMENTS]
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


@pytest.mark.campaign
def test_a_sample_is_refused_or_read_as_it_says() -> None:
    slow = [
        one for one in FORMATS if one.name in ("params.yaml", "profile") or (isinstance(one, Binary) and one.is_slow)
    ]
    quick = [one for one in FORMATS if one not in slow]
    assert [problem for tally in run(quick, seed=1, share=0.04, edits=2) for problem in tally.problems] == []


def test_random_answers_of_a_judge_give_their_scores_or_a_reason() -> None:
    found = answers.run(1_500, seed=1)
    assert found.problems == []
    assert min(found.read.values()) > 20
    assert found.longest_s < answers.LONGEST_S
