"""Passes of the variants, and the trees of their prompts."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ground.io import DataError
from pathfinder.core.prompts import LABEL_TOKENS, SYSTEM_PRMBENCH, SYSTEM_SEARCH, SYSTEM_TRAINING, VARIANTS
from pathfinder.tree.passes import PRESETS, Mode, Pass, Prompter, Query, expected_reward, passes, passes_for
from tests.support.models import CHATML, plain_tokenizer, queries_of

STEPS = ["Let x = 3.", "so 9"]


def test_error_labels_come_before_correctness() -> None:
    assert passes(VARIANTS["full"]) == (Pass((), (0, 1)), Pass((0, 1), (2,)))
    assert passes(VARIANTS["no_subtasks"]) == (Pass((), (0,)),)
    assert passes(VARIANTS["autoregressive"]) == (Pass((), (0,)), Pass((0,), (1,)), Pass((0, 1), (2,)))


def test_only_the_first_mode_omits_the_last_pass() -> None:
    both, single = passes(VARIANTS["full"]), passes(VARIANTS["no_subtasks"])
    assert [len(passes_for(mode, both)) for mode in Mode] == [2 - (mode is Mode.FIRST) for mode in Mode]
    assert passes_for(Mode.FIRST, single) == single
    sequential = passes(VARIANTS["autoregressive"])
    assert passes_for(Mode.FIRST, sequential) == sequential[:2]


def test_the_expected_reward_weights_every_combination() -> None:
    rewards: dict[tuple[bool, ...], float] = {
        (True, True): 1.0,
        (True, False): 0.5,
        (False, True): 0.2,
        (False, False): 0.0,
    }

    def positive(given: tuple[bool, ...], mark: int) -> float:
        return rewards[given] if mark == 2 else (0.9, 0.5)[mark]

    assert expected_reward(passes(VARIANTS["full"]), positive) == pytest.approx(0.45 + 0.45 * 0.5 + 0.05 * 0.2)


def test_the_expected_reward_of_sequential_labels_gives_each_the_labels_before_it() -> None:
    second: dict[tuple[bool, ...], float] = {(True,): 0.5, (False,): 0.2}
    rewards: dict[tuple[bool, ...], float] = {
        (True, True): 1.0,
        (True, False): 0.5,
        (False, True): 0.2,
        (False, False): 0.1,
    }

    def positive(given: tuple[bool, ...], mark: int) -> float:
        return (0.9 if mark == 0 else second[given]) if mark < 2 else rewards[given]

    expected = 0.9 * (0.5 * 1.0 + 0.5 * 0.5) + 0.1 * (0.2 * 0.2 + 0.8 * 0.1)
    assert expected_reward(passes(VARIANTS["autoregressive"]), positive) == pytest.approx(expected)


def test_the_published_search_gives_the_answer_the_role_of_the_user() -> None:
    tokenizer, (query,) = plain_tokenizer(), queries_of("P", STEPS[:1])
    for name, preset in PRESETS.items():
        ((ids, _),) = Prompter(tokenizer, VARIANTS["full"], preset).encode([query])
        assert (tokenizer.decode(ids).count("assistant") > 0) == (name != "official-search")


def test_gold_labels_replace_the_combinations() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    queries = queries_of("What is $x^2$ for x = 3?", STEPS)
    _, every = prompter.tree(queries)
    assert [(r.query, r.given, r.mark) for r in every[:6]] == [
        (0, (), 0),
        (0, (), 1),
        (0, (True, True), 2),
        (0, (True, False), 2),
        (0, (False, True), 2),
        (0, (False, False), 2),
    ]
    _, readings = prompter.tree(queries, [(True, False, False), (True, True, True)])
    assert [r.given for r in readings if r.mark == 2] == [(True, False), (True, True)]


def test_a_prompt_ends_before_its_last_label() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    ((ids, slots),) = prompter.encode(queries_of("P", STEPS[:1]))
    cut = prompter.prompt(ids, slots, (True, False), (2,))
    assert len(cut) == slots[2]
    assert cut[list(slots[:2])].tolist() == [prompter.ids.good, prompter.ids.bad]
    assert ids[list(slots)].tolist() == [prompter.ids.mask] * 3


def test_a_prompt_with_other_label_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathfinder.tree.passes.neutralise", lambda text, specials: text)
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    with pytest.raises(DataError, match="step 0: 4 label tokens in its prompt, expected 3"):
        prompter.encode(queries_of("Is this <+>?", STEPS[:1]))


@pytest.mark.parametrize(
    ("preset", "system", "answer"),
    [
        ("default", SYSTEM_TRAINING, "Step 1. a\n\nCurrent Step: Step 2. b "),
        ("official-processbench", SYSTEM_TRAINING, "Step 1. a\n\nCurrent Step: Step 2. b "),
        ("official-prmbench", SYSTEM_PRMBENCH, "a\n\nCurrent step: b "),
        ("official-search", SYSTEM_SEARCH, "Step 1. a\n\nCurrent Step: Step 2. b "),
    ],
)
def test_each_preset_words_the_turns_as_its_published_runner(preset: str, system: str, answer: str) -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"], PRESETS[preset])
    user, assistant = prompter.turns(Query("q", "Step 1. P", ("Step 1. a",), "Step 2. b"), ["<+>", "<->"])
    assert user == f"{system}\n\n Question: Step 1. P"
    assert assistant == f"{answer}Math reasoning: <+>, Consistency: <->"


def test_special_tokens_in_any_text_of_a_query_are_broken() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    user, assistant = prompter.turns(Query("q", "P <+>", ("a <->",), "b <+>"), [])
    assert [text for text in ("<+>", "<->") if text in user + assistant] == []


def test_only_the_labels_that_are_given_make_branches() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    encoded = prompter.encode(queries_of("P", STEPS))
    _, readings = prompter.tree_of(encoded, prompter.passes, given=(True,))
    assert [(r.query, r.given, r.mark) for r in readings] == [
        (number, given, mark) for number in (0, 1) for given, mark in (((), 0), ((), 1), ((True, True), 2))
    ]


def test_a_reading_is_one_token_before_its_label() -> None:
    prompter = Prompter(plain_tokenizer(), VARIANTS["full"])
    encoded = prompter.encode(queries_of("P", STEPS))
    tree, readings = prompter.tree_of(encoded, prompter.passes)
    for reading, node in zip(readings, tree.reads, strict=True):
        ids, slots = encoded[reading.query]
        path = [k for k in range(node + 1) if node < tree.end[k]]
        expected = ids[: slots[reading.mark]].copy()
        expected[list(slots[: len(reading.given)])] = [prompter.ids.of(label) for label in reading.given]
        assert tree.ids[path].tolist() == expected.tolist()


def test_label_tokens_may_have_the_smallest_ids() -> None:
    """As in tokenizers that were trained with their special tokens, and not in those that added them last."""
    special = ["<|im_end|>", "<|im_start|>", *LABEL_TOKENS]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator([], trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)  # type: ignore[no-untyped-call]
    tokenizer.chat_template = CHATML
    prompter = Prompter(tokenizer, VARIANTS["full"])
    assert max(prompter.ids.good, prompter.ids.bad, prompter.ids.mask) < len(special)
    ((ids, slots),) = prompter.encode(queries_of("P", STEPS[:1]))
    assert ids[list(slots)].tolist() == [prompter.ids.mask] * 3
