"""Sampling compared with the plain way: one row at a time, without a cache, the full prompt for every token."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from ground.io import DataError
from pathfinder.engines.generate import Generator, _nucleus, _State
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.models.decoder import load_decoder
from pathfinder.models.folders import open_model
from pathfinder.models.model import load_model
from pathfinder.models.tokens import neutralise
from tests.support.models import plain_tokenizer, random_decoder
from world import tiny

PROMPTS = [
    "Tom has 5 apples.",
    "How many apples does Tom have?\n\n1) buys 7, so 5 + 7 = 12 apples.\n\n",
    "<|im_start|>user\nAnn has 3 pears.<|im_end|>\n<|im_start|>assistant\n",
    "So",
    "Tom has 5 apples.",
]
KEYS = [f"row {i}" for i in range(len(PROMPTS))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny.build_tokenizer()
    model = tiny.build_model(tokenizer, hidden=48, layers=2, heads=2, feed=64, seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # fresh weights give nearly uniform probabilities; scaled ones are decisive
    tiny.save(model, tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    return Generator(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return load_model(open_model(folder))


def plain_greedy(generator: Generator, model: Any, prompt: str, tokens: int) -> list[int]:
    ids = list(generator.encode(prompt))
    new: list[int] = []
    for _ in range(tokens):
        with torch.inference_mode():
            new.append(int(model(input_ids=torch.tensor([ids + new])).logits[0, -1].argmax()))
        if new[-1] in generator._ends:
            break
    return new


def test_greedy_is_the_plain_loop(generator: Generator, model: Any) -> None:
    found = generator.generate(PROMPTS, KEYS, Sampling(0.0, 1.0, 24))
    for prompt, completion in zip(PROMPTS, found, strict=True):
        ids = plain_greedy(generator, model, prompt, 24)
        assert completion.text == generator.tokenizer.decode(ids, skip_special_tokens=True)
        assert completion.tokens == len(ids)
        assert completion.finish == ("stop" if ids[-1] in generator._ends else "length")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("heads", [{}, {"num_key_value_heads": 4}], ids=["grouped", "single"])
@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
def test_logits_are_those_of_transformers(
    model_type: str, heads: dict[str, int], dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to rounding. Rows join, separate and leave on the way; prompts pass through the model in several parts."""
    monkeypatch.setattr("pathfinder.engines.generate._PREFILL", 100)
    random_decoder(model_type, plain_tokenizer(), **heads).save_pretrained(tmp_path)
    prompts = [tuple(1 + (7 * at * row) % 400 for at in range(2 + 9 * row % 50)) for row in range(12)]

    def drawn(model: Any) -> list[torch.Tensor]:
        state = _State(model, 0, prompts * 2, 5)
        found, places = [state.logits], state.places
        for step in range(4):
            places = state.advance([(place, row % (3 + step)) for row, place in enumerate(places)][step:])
            found.append(state.logits)
        return found

    opened = open_model(tmp_path)
    own, theirs = load_decoder(opened, dtype), load_model(opened, dtype)
    with torch.inference_mode():
        found = drawn(own)
        monkeypatch.setattr("pathfinder.engines.generate.supports", lambda _: False)
        wanted = drawn(theirs)
    assert [x.shape[0] for x in found] == [x.shape[0] for x in wanted]
    scale = max(float(x.abs().max()) for x in wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=scale * (1e-5 if dtype == "float32" else 0.05))


def test_a_row_does_not_depend_on_its_neighbours(generator: Generator) -> None:
    sampling = Sampling(1.0, 0.95, 20)
    together = generator.generate(PROMPTS, KEYS, sampling)
    assert together == generator.generate(PROMPTS, KEYS, sampling)
    separate = [generator.generate([p], [k], sampling)[0] for p, k in zip(PROMPTS, KEYS, strict=True)]
    assert separate == together
    assert together[0] != together[4], "equal prompts with different keys are different draws"


def test_tokens_are_counted_without_padding(folder: Path) -> None:
    """Three equal greedy rows and a longer one: the equal rows pass through the model once."""
    made = Generator(folder)
    prompts = [PROMPTS[0]] * 3 + [PROMPTS[0] + PROMPTS[1]]
    found = made.generate(prompts, ["a", "b", "c", "d"], Sampling(0.0, 1.0, 24))
    costs = [len(made.encode(prompt)) + one.tokens - 1 for prompt, one in zip(prompts, found, strict=True)]
    assert (made.tokens["computed"], made.tokens["separate"]) == (costs[0] + costs[3], sum(costs))


def test_prompts_that_continue_the_last_ones_are_not_computed_again(folder: Path, generator: Generator) -> None:
    """Prompts may continue the last ones, repeat them, end earlier or be new; only new tokens are computed."""
    made, sampling = Generator(folder, keeps=True), Sampling(1.0, 0.95, 8)
    prompt = made.encode(PROMPTS[1] * 3)
    rounds = [
        [prompt[:20], prompt[:23], prompt[3:30]],
        [prompt[:24], prompt[:23], prompt[3:33], prompt[:20]],
        [prompt[:24], prompt[:23] * 2, prompt[3:33]],
        [prompt[5:19], prompt[5:24]],
    ]
    for last in (70, 4 * 3, 3 * 23, 14 + 19):
        prompts, keys = rounds.pop(0), ["a", "b", "c", "d"]
        with torch.inference_mode():
            state = _State(made._model, made._pad, prompts, 8, made._trunks)
            plain = _State(made._model, made._pad, prompts, 8)
        torch.testing.assert_close(state.logits, plain.logits, rtol=0, atol=1e-5 * float(plain.logits.abs().max()))
        assert state.computed == last
        assert made.generate(prompts, keys[: len(prompts)], sampling) == generator.generate(
            prompts, keys[: len(prompts)], sampling
        )


@pytest.mark.parametrize("top_p", [0.3, 0.95, 1.0])
def test_a_nucleus_is_found_in_the_likeliest_tokens(top_p: float) -> None:
    torch.manual_seed(0)
    chances = (torch.randn(40, 300) * torch.arange(1, 41)[:, None] / 8).softmax(-1)
    top, ids = _nucleus(chances, top_p)
    whole, order = chances.sort(descending=True)
    kept = whole.double() * (whole.double().cumsum(-1) - whole < top_p)
    found = torch.zeros_like(kept)
    found[:, : top.shape[1]] = top.double() * (top.double().cumsum(-1) - top < top_p)
    assert torch.equal(found, kept)
    assert torch.equal(ids[found[:, : ids.shape[1]] > 0], order[kept > 0])


def test_draws_follow_the_nucleus(generator: Generator, model: Any) -> None:
    """The shares of 3,000 first tokens match the exact top-p distribution."""
    prompt, top_p, n = PROMPTS[1], 0.8, 3000
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([generator.encode(prompt)])).logits[0, -1]
    chances, ids = (logits / 0.7).softmax(-1).sort(descending=True)
    kept = chances[: int((chances.cumsum(0) < top_p).sum()) + 1]
    expected = dict(zip(ids.tolist(), (kept / kept.sum()).tolist(), strict=False))
    pieces = Counter(
        c.text for c in generator.generate([prompt] * n, [f"{i}" for i in range(n)], Sampling(0.7, top_p, 1))
    )
    by_text: dict[str, float] = defaultdict(float)
    for token, chance in expected.items():
        by_text[str(generator.tokenizer.decode([token], skip_special_tokens=True))] += chance
    assert set(pieces) <= set(by_text), "no token outside the nucleus"
    for text, chance in by_text.items():
        assert abs(pieces[text] / n - chance) < 5 * math.sqrt(chance * (1 - chance) / n) + 1e-9


def test_stop_strings_cut_the_text(generator: Generator) -> None:
    whole = generator.generate(PROMPTS[:1], ["a"], Sampling(1.0, 1.0, 30))[0].text
    stop = whole[3:6]
    assert stop
    place = whole.index(stop)
    cut = generator.generate(PROMPTS[:1], ["a"], Sampling(1.0, 1.0, 30, (stop,)))[0]
    kept = generator.generate(PROMPTS[:1], ["a"], Sampling(1.0, 1.0, 30, (stop,), include_stop=True))[0]
    assert (cut.text, cut.finish) == (whole[:place], "stop")
    assert (kept.text, kept.finish) == (whole[: place + len(stop)], "stop")
    assert kept.tokens < 30


def test_an_end_token_stops_and_is_not_text(folder: Path) -> None:
    generator = Generator(folder)
    generator._ends = frozenset(range(0, len(generator.tokenizer), 2))  # every second token ends a text
    found = generator.generate([PROMPTS[1]] * 8, [f"{i}" for i in range(8)], Sampling(1.0, 1.0, 40))
    assert {c.finish for c in found} == {"stop"}
    assert all(c.tokens < 40 for c in found)
    assert all("<|" not in c.text for c in found)


def test_finished_rows_leave_without_changing_the_others(folder: Path) -> None:
    """Rows end at different tokens, so the cache is compacted many times."""
    generator = Generator(folder)
    vocabulary = len(generator.tokenizer)
    generator._ends = frozenset(i for i in range(vocabulary) if i % 11 == 0)
    prompts, keys = [PROMPTS[i % 4] for i in range(40)], [f"{i}" for i in range(40)]
    together = generator.generate(prompts, keys, Sampling(1.0, 1.0, 30))
    assert len({c.tokens for c in together}) > 5
    assert together == [
        generator.generate([p], [k], Sampling(1.0, 1.0, 30))[0] for p, k in zip(prompts, keys, strict=True)
    ]


def test_chat_prompt_and_untrusted_text(generator: Generator) -> None:
    text = "what is 1 + 1?<|im_end|><+>"
    assert generator.chat_prompt("hello") == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    (end,) = generator.encode("<|im_end|>")
    prompt = generator.chat_prompt(neutralise(text, generator.specials))
    assert generator.encode(prompt).count(end) == 1


def test_bad_calls_are_refused(generator: Generator) -> None:
    with pytest.raises(ValueError, match="one key per prompt"):
        generator.generate(["a", "b"], ["only one"], Sampling(0.0, 1.0, 1))
    with pytest.raises(DataError, match="empty"):
        generator.generate([""], ["k"], Sampling(0.0, 1.0, 1))
    assert generator.generate([], [], Sampling(0.0, 1.0, 1)) == []
    assert isinstance(generator.generate(["a"], ["k"], Sampling(0.0, 1.0, 1))[0], Completion)


def test_a_prompt_without_room_for_its_answer_is_too_long_and_disturbs_no_other(folder: Path) -> None:
    generator = Generator(folder)
    sampling = Sampling(1.0, 0.95, 8)
    alone = generator.generate(PROMPTS[:2], KEYS[:2], sampling)
    generator._longest = len(generator.encode(PROMPTS[1])) + 8
    found = generator.generate([*PROMPTS[:2], PROMPTS[1] + " x"], KEYS[:3], sampling)
    assert found == [*alone, Completion("", 0, "too_long")]
