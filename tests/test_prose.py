"""The prose is plain English: no marked constructs in what users read, and next to none in the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import flows.cli
from evidence import __main__ as audit
from pathfinder.cli import app
from tests.support.prose import Text, checks, marks_in, pages, prose_of, sources, words_in


def listed(texts: list[Text]) -> str:
    return "\n".join(f"{mark.file}:{mark.line}: {mark.kind}: {mark.text}" for mark in marks_in(texts))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_pages_have_no_marked_construct(page: Path) -> None:
    texts = list(prose_of(page))
    assert words_in(texts) > 30
    assert not listed(texts)


def test_help_has_no_marked_construct() -> None:
    commands = {
        verb.name or getattr(verb.callback, "__name__", ""): typer_app
        for typer_app in (app, flows.cli.app, audit.app)
        for verb in typer_app.registered_commands
    }
    assert len(commands) > 9
    cli = CliRunner()
    asked = [
        (app, ["--help"]),
        (audit.app, ["--help"]),
        *((owner, [verb, "--help"]) for verb, owner in commands.items()),
    ]
    texts = []
    for owner, words in asked:
        result = cli.invoke(owner, [*words, "--help"], env={"COLUMNS": "200"})
        assert result.exit_code == 0, words
        texts += [
            Text("pathfinder", number, line.strip(" │")) for number, line in enumerate(result.output.splitlines())
        ]
    assert words_in(texts) > 600
    assert not listed(texts)


def test_code_has_at_most_one_marked_construct_per_six_thousand_words() -> None:
    texts = [text for path in sources() for text in prose_of(path)]
    assert words_in(texts) > 25_000
    assert len(list(marks_in(texts))) <= words_in(texts) / 6000, listed(texts)


def test_tests_have_at_most_one_marked_construct_per_thousand_words() -> None:
    texts = [text for path in checks() for text in prose_of(path)]
    assert words_in(texts) > 25_000
    assert len(list(marks_in(texts))) <= words_in(texts) / 1000, listed(texts)


@pytest.mark.parametrize(
    "sentence",
    [
        "Nothing is written while an answer lacks.",
        "The file lies in the folder.",
        "Loss a label, and tokens an epoch.",
        "Mend it and go on.",
        "Of its labels most are right.",
        "What answers without a model is read from any file.",
        "An absent one is passed over.",
        "Its keys are those of the table.",
        "The copy has other bytes, and the file another form.",
        "Average and intervals have other keys.",
        "PyTorch shall ask the driver.",
    ],
)
def test_marked_constructs_are_found(sentence: str) -> None:
    assert list(marks_in([Text("", 1, sentence)]))


@pytest.mark.parametrize("opening", ["What a run leaves.", "Whether it ended.", "Of a system's search."])
def test_a_docstring_without_a_subject_is_found(opening: str) -> None:
    assert list(marks_in([Text("", 1, opening, opens_docstring=True)]))
    assert not list(marks_in([Text("", 1, f"Say {opening.lower()}", opens_docstring=True)]))


@pytest.mark.parametrize("sentence", ["All other keys stay.", "What is 1 + 1?", "Any other text is refused."])
def test_plain_sentences_are_not(sentence: str) -> None:
    assert not list(marks_in([Text("", 1, sentence, opens_docstring=True)]))
