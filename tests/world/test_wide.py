"""The wide language: more words, plain sums and bare lines, next to worlds that draw what they always drew."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from pathfinder.core.prompts import STEP_SEPARATOR
from tests.support.stories import SMALL, no_policy
from world import tiny
from world.formats import write_corpus
from world.judge_lessons import judge_lesson, reasoning
from world.lessons import Encoder, Lesson, base_lesson, word_questions
from world.oracle import BARE, ERRORS, SUBOPTIMAL, Sum, Verdict, assess, assess_all, begin, is_on_track
from world.problem_sets import ALL_SLIPS
from world.statistics import count
from world.steps import Habits, fault_step, write_solution
from world.story import LARGEST_NUMBER, WIDE, WORLDS, read_story, sample_problem

LEVELS = WORLDS["wide"]
HABITS = Habits(misread=0.4, slip=0.3, idle=0.1, slips=ALL_SLIPS)
STORY = "Alice has 35 cookies.\n1) Alice eats 12.\n2) Omar wins 6.\n3) Alice takes back 4.\n4) Raj sells 3.\n"
ASKED = "How many cookies does Alice have?"


@pytest.fixture(scope="module")
def wide() -> PreTrainedTokenizerFast:
    return tiny.build_tokenizer(WIDE)


@pytest.mark.parametrize(
    ("problem", "step"),
    [
        ("Tom has 9 apples.\n1) Tom eats 4.\nHow many apples does Tom have?", "1) eats 4, so 9 - 4 = 5 apples."),
        ("Tom has 35 apples.\n1) Tom buys 7.\nHow many apples does Tom have?", "1) buys 7, so 35 + 7 = 42 apples."),
        ("Alice has 5 pens.\n1) Alice gets 2.\nHow many pens does Alice have?", "1) gets 2, so 5 + 2 = 7 pens."),
        ("Tom has 8 cookies.\n1) Tom sells 2.\nHow many cookies does Tom have?", "1) sells 2, so 8 - 2 = 6 cookies."),
        ("Mary has 20 eggs.\n1) Mary breaks 15.\nHow many eggs does Mary have?", "1) breaks 15, so 20 - 15 = 5 eggs."),
        ("Ben has 9 cups.\n1) Ben gives away 8.\nHow many cups does Ben have?", "1) gives away 8, so 9 - 8 = 1 cups."),
        ("Raj has 6 toys.\n1) John wins 3.\nHow many toys does Raj have?", "1) is about John, so still 6 toys."),
        ("Tom has 5 apples.\n1) Tom buys 7.\nHow many apples does Tom have?", "5 + 7 = 12."),
        ("What is 12 + 7 - 3?", "12 + 7 = 19."),
        ("What is 50 - 8?", "50 - 8 = 42."),
    ],
)  # fmt: skip
def test_right_first_sentences_of_a_newcomer_are_right(problem: str, step: str) -> None:
    story = read_story(problem)
    verdict = assess(story, begin(story), step)
    assert verdict is not None
    assert verdict.labels == (1, 1, 1)
    assert is_on_track(story, verdict)


def test_a_sum_is_read_and_solved_term_by_term() -> None:
    problem = read_story("What is 12 + 7 - 3?")
    assert (problem.is_sum, problem.values, problem.answer) == (True, (12, 19, 16), 16)
    solution = [written.text for written in write_solution(problem, random.Random(0), Habits())]
    assert solution == ["12 + 7 = 19.", "19 - 3 = 16.", "The answer is \\boxed{16}."]


@pytest.mark.parametrize(
    ("before", "step", "faults"),
    [
        ([], "35 - 12 = 24.", ("arithmetic",)),
        ([], "35 + 12 = 47.", ("operation",)),
        ([], "35 - 11 = 24.", ("amount",)),
        ([], "34 - 12 = 22.", ("carried",)),
        (["35 - 12 = 23."], "23 + 4 = 27.", ()),
        (["35 - 12 = 23."], "23 - 4 = 19.", ("misreading",)),
        (["35 - 12 = 23."], "35 - 12 = 23.", ("repetition",)),
        (["35 - 12 = 23."], "3) takes back 4, so 23 + 4 = 27 cookies.", ("skipped",)),
        (["35 - 12 = 23."], "The answer is \\boxed{23}.", ("early",)),
        (["35 - 12 = 23.", "23 + 4 = 27."], "The answer is \\boxed{27}.", ()),
        (["35 - 12 = 23.", "23 + 4 = 27."], "4) is about Raj, so still 27 cookies.", ()),
        (["35 - 12 = 23.", "23 + 4 = 27."], "27 - 3 = 24.", ("event",)),
    ],
)
def test_a_bare_line_is_about_the_next_event_of_the_hero(before: list[str], step: str, faults: tuple[str, ...]) -> None:
    *prefix, last = assess_all(read_story(STORY + ASKED), [*before, step])
    assert all(verdict and not verdict.faults for verdict in prefix)
    assert last is not None
    assert last.faults == faults


def test_a_sum_may_repeat_an_equation_that_its_next_term_asks_for() -> None:
    verdicts = assess_all(
        read_story("What is 2 + 3 - 3 + 3?"), ["2 + 3 = 5.", "5 - 3 = 2.", "2 + 3 = 5.", "5 - 3 = 2."]
    )
    assert [verdict and verdict.faults for verdict in verdicts] == [(), (), (), ("repetition",)]


@given(st.sampled_from(sorted(LEVELS)), st.integers(0, 10**6))
def test_every_drawn_problem_and_step_is_read_back(level: str, seed: int) -> None:
    rng = random.Random(seed)
    problem = sample_problem(rng, LEVELS[level])
    again = read_story(problem.text)
    assert (again.text, again.values, again.is_sum) == (problem.text, problem.values, problem.is_sum)
    assert all(0 <= value <= LEVELS[level].largest for value in problem.values)
    assert all(written.labels == (1, 1, 1) for written in write_solution(problem, rng, Habits()))
    for written in write_solution(problem, rng, HABITS):
        assert assess(again, written.before, written.text) == written
        assert all(int(number) <= LARGEST_NUMBER for number in re.findall(r"\d+", written.text))
        _is_taught(written)
        reasons = all(agrees for _, agrees in reasoning(problem, written))
        assert reasons == written.is_correct or "repetition" in written.faults


def _is_taught(verdict: Verdict) -> None:
    words = word_questions(verdict)
    assert "".join(word for word, _ in words) == verdict.text
    is_marked = bool(verdict.faults) and not set(verdict.faults) <= set(SUBOPTIMAL[1:])
    assert any(holds is False for _, holds in words) == is_marked


def test_the_faults_of_bare_lines_can_be_planted() -> None:
    rng = random.Random("bare")
    planted: Counter[str] = Counter()
    for _ in range(60):
        problem = sample_problem(rng, LEVELS["olympiadbench"])
        for written in write_solution(problem, rng, HABITS):
            for fault in (*ERRORS, *SUBOPTIMAL):
                verdict = fault_step(problem, written.before, fault, rng, BARE)
                if verdict and isinstance(verdict.step, Sum):
                    assert verdict.faults == (fault,)
                    _is_taught(verdict)
                    planted[fault] += 1
    assert set(planted) == {"arithmetic", "operation", "misreading", "amount", "carried", "repetition"}


def test_the_wide_corpus_has_sums_bare_lines_and_every_fault(tmp_path: Path) -> None:
    config = SMALL.model_copy(update={"phase2_train": 200, "phase1_train": 100})
    write_corpus(tmp_path, config, no_policy, LEVELS)
    part = count(tmp_path)["PRM800K, train"]
    sums = sum(problem.is_sum for problem in part.problems.values())
    assert 0.06 < sums / len(part.problems) < 0.2
    assert part.outside_the_grammar == part.stories_of_another_split == 0
    assert set(part.faults) == {*ERRORS, *SUBOPTIMAL, "none"} - {"event"}
    rarest = min(part.faults[fault] for fault in ("amount", "verb", "skipped", "name"))
    assert rarest > 0.5 * part.faults["arithmetic"]


def test_words_of_the_wide_language_are_single_tokens(wide: PreTrainedTokenizerFast) -> None:
    words = {*WIDE.names, *WIDE.nouns, *(word for verb in WIDE.signs for word in verb.split()), "is"}
    assert all(tiny.token_id(wide, f" {word}") for word in words)
    assert all(tiny.token_id(wide, word) for word in (*WIDE.names, *WIDE.nouns, "What"))
    text = "What is 12 + 7 - 3?\n\n12 + 7 = 19."
    assert wide.decode(wide.encode(text, add_special_tokens=False)) == text


def test_lessons_of_the_wide_world_are_what_the_tokenizer_makes_of_their_text(wide: PreTrainedTokenizerFast) -> None:
    encoder, rng = Encoder(wide), random.Random(5)
    lessons: list[Lesson] = []
    for _ in range(60):
        phases = ((0.0, False), (0.55, True))
        lessons += [base_lesson(encoder, rng, LEVELS, *phase) for phase in phases] + [
            judge_lesson(encoder, rng, LEVELS)
        ]
    for lesson in lessons:
        for attached, piece in lesson.branches:
            ids = [*lesson.trunk.ids[:attached], *piece.ids]
            assert wide.encode(wide.decode(ids), add_special_tokens=False) == ids
    assert any("What is" in wide.decode(list(lesson.trunk.ids)) for lesson in lessons)


@pytest.mark.parametrize(
    ("world", "digest"),
    [
        ("small", "8875e244c105be214fdac01c8cc3715a0f738725e3e42290350d49e994dcbcb9"),
        ("rich", "83015a40e98ae07200ca313d2aaca621bcc6e46b5098bd2406e6ae480bfa1ff0"),
    ],
)
def test_the_other_worlds_draw_what_they_drew_before_there_was_a_wide_one(world: str, digest: str) -> None:
    """Their shipped corpora and models were made from these draws."""
    found = hashlib.sha256()
    for level in WORLDS[world].values():
        rng = random.Random(level.name)
        for _ in range(50):
            problem = sample_problem(rng, level)
            solution = STEP_SEPARATOR.join(written.text for written in write_solution(problem, rng, HABITS))
            found.update(f"{problem.text}\n\n{solution}\n".encode())
    assert found.hexdigest() == digest
