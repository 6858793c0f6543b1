"""Tiny Qwen2-architecture models and their tokenizer.

The tokenizer is a ``Qwen2Tokenizer``: for a qwen2 configuration, transformers builds that class from the vocabulary and
the added tokens, and ignores the rest of tokenizer.json. Each number 0-99, each word of the world and each fixed prompt
string is one token. Numbers are added tokens, because the pattern of the class splits digits.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from ground.io import atomic_folder
from pathfinder.core import prompts
from pathfinder.models.tokens import CHATML, save_tokenizer
from world import story

END_OF_TEXT, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", prompts.END_OF_TURN
SPECIAL = (END_OF_TEXT, START_OF_TURN, END_OF_TURN, *prompts.LABEL_TOKENS)
YES, NO = "yes", "no"
CHECK_CAPTIONS = (" Sound: ", ", Fits: ", ", Helps: ")
"""Captions of the base model's verification lessons; they differ from the captions of the PRM's prompt."""
CHECK_SYSTEM = "Check every step of this story."
JUDGE_REASONING, JUDGE_SCORES = "Reasoning:\n", ("\n\nFinal answers:\nScore A: \n", "\nScore B: \n", "\nScore C:\n")
INDENTS = (0, *prompts.PUBLISHED_INDENTS)
"""Indents of the judge's context: repaired, and as published for the two corpora."""

_PIECES = r"\n\n|\n|\d\)| ?\d{1,3}(?!\))| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+|\p{N}"
_SPLIT = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
_DIGITS = [f" {digit}" for digit in range(10)]
_EVENTS = [f"{digit})" for digit in range(1, 10)]
"""The tokenizer cuts these out of a text before it normalises the text and finds the remaining numbers."""
_NUMBERS = [f"{before}{number}" for number in range(10, 100) for before in ("", " ")]
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_EMBEDDING_STD = 0.08
STEP_SENTINEL = "\x00step\x00"
_TAUGHT = ("full", "no_error_categories", "no_subtasks", "autoregressive")
"""The variants whose captions are tokens of the shipped models; one more caption would change other ids."""
_SENTINELS = ("\x00problem\x00", "\x00prefix\x00", STEP_SENTINEL)


def prompt_chunks() -> list[str]:
    """Every fixed prompt string, longest first; each becomes one added token."""
    problem, prefix, step = _SENTINELS
    texts = [prompts.judge_prompt(problem, [prefix], step, indent) for indent in INDENTS]
    systems = (prompts.SYSTEM_TRAINING, prompts.SYSTEM_PRMBENCH, prompts.SYSTEM_SEARCH, CHECK_SYSTEM)
    texts += [prompts.policy_prompt(problem, []), *(prompts.user_turn(problem, system) for system in systems)]
    for variant in (prompts.VARIANTS[name] for name in _TAUGHT):
        for marks in (variant.first, (*variant.first, *variant.second)):
            first, *rest = (mark.caption for mark in marks)
            texts += [f" {first}: ", *(f", {caption}: " for caption in rest)]
    texts += ["Current Step: ", "Current step: ", *CHECK_CAPTIONS, JUDGE_REASONING, *JUDGE_SCORES]
    texts += [f"{START_OF_TURN}user\n", f"{START_OF_TURN}assistant\n"]
    between = re.compile("|".join(map(re.escape, (*SPECIAL, *_SENTINELS))))
    chunks = {chunk for text in texts for chunk in between.split(text) if len(chunk) > 1}
    return sorted(chunks, key=lambda chunk: (-len(chunk), chunk))


def build_tokenizer(language: story.Language = story.NARROW) -> PreTrainedTokenizerFast:
    """The tokenizer of a language's tiny models; every call gives the same ids."""
    vocabulary, merges = _learn_merges(language)
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary | {token: place for place, token in enumerate(SPECIAL, start=len(vocabulary))},
        merges=merges,  # type: ignore[arg-type]  # pairs, as its core takes them
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[START_OF_TURN, *prompts.LABEL_TOKENS],
        model_max_length=32768,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (*_EVENTS, *prompt_chunks())])
    tokenizer.add_tokens([AddedToken(number, normalized=True) for number in (*_DIGITS, *_NUMBERS)])
    tokenizer.chat_template = CHATML
    return tokenizer


def _lesson_words(language: story.Language) -> Counter[str]:
    """Pieces with weights. The world's words must become single tokens, so they outweigh the prompts' English."""
    words, verbs = [*language.names, *language.nouns, YES, NO, "them", "event"], language.signs
    own = [f" {word}" for verb in verbs for word in verb.split()] + [verb.split()[0] for verb in verbs]
    own += [f"{space}{word}" for word in words for space in ("", " ")]
    sentences = (
        "How many does have? has is about, so still The answer is \\boxed{ }. So far that is If that, then it is.",
        "Next we read, which makes, hence, so clearly + - * = them yes no event from says Check",
        "none right wrong again more asks done first last next now left over who what other not",
    )
    own += [piece for sentence in sentences for piece in _pieces(sentence)]
    own += ["The", "So", "If", "Next", "How", " =", " +", " -", " *", "\n\n", "}.", "\\"]
    own += ["What"] * bool(language.sums)
    counts = Counter(dict.fromkeys(own, 1000))
    prose = "\n".join((prompts.JUDGE_PROMPT, prompts.SYSTEM_TRAINING, prompts.SYSTEM_PRMBENCH, prompts.POLICY_PROMPT))
    counts.update(_pieces(prose))
    return counts


def _pieces(text: str) -> list[str]:
    return [piece for piece, _ in _SPLIT.pre_tokenize_str(text)]


def _learn_merges(language: story.Language) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Bytes, numbers, and byte-pair merges of ``_lesson_words``: most frequent pair first, ties by text."""
    merges: list[tuple[str, str]] = []
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *_DIGITS, *_EVENTS, *_NUMBERS]
    weights = _lesson_words(language)
    words = {word: list("".join(map(_as_bytes, word))) for word in weights if not any(c.isdigit() for c in word)}
    while len(tokens) < language.vocabulary:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in words.items():
            for pair in pairwise(parts):
                pairs[pair] += weights[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        tokens.append("".join(best))
        words = {word: _merged(parts, best) for word, parts in words.items()}
    return {token: i for i, token in enumerate(tokens)}, merges


def _as_bytes(text: str) -> str:
    """A text in the byte-level alphabet."""
    return "".join(piece for piece, _ in _BYTES.pre_tokenize_str(text))


def _merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for part in parts:
        if out and (out[-1], part) == pair:
            out[-1] += part
        else:
            out.append(part)
    return out


def build_model(
    tokenizer: PreTrainedTokenizerFast, *, hidden: int, layers: int, heads: int, feed: int, seed: int
) -> Qwen2ForCausalLM:
    """A new tied Qwen2 model in fp32 for ``tokenizer``; its weights depend only on ``seed`` and the sizes.

    The hard part of verification is telling whether two numbers are equal, which models with a random initialisation
    learned late or never. So number embeddings start as waves of the value, and query projections start equal to key
    projections.
    """
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 16) * 16,
        hidden_size=hidden,
        intermediate_size=feed,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=token_id(tokenizer, END_OF_TURN),
        pad_token_id=token_id(tokenizer, END_OF_TEXT),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        with torch.no_grad():
            model.model.embed_tokens.weight.normal_(std=_EMBEDDING_STD)
            _start_numbers(model, tokenizer)
            for layer in model.model.layers:
                layer.self_attn.k_proj.weight.mul_(2.0)
                layer.self_attn.q_proj.weight.copy_(layer.self_attn.k_proj.weight)
        return model


def _start_numbers(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Number embeddings: waves of the value in a random basis, plus a direction for each way of writing it."""
    rows = model.model.embed_tokens.weight
    periods = torch.tensor([2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 40.0, 80.0])
    angles = 2 * torch.pi * torch.arange(100)[:, None] / periods
    waves = torch.cat([angles.cos(), angles.sin()], dim=1)
    basis = torch.linalg.qr(torch.randn(rows.shape[1], waves.shape[1]))[0]
    values = waves @ basis.T * (rows.shape[1] / len(periods)) ** 0.5 * _EMBEDDING_STD
    for form, numbers in ((" {}", range(100)), ("{}", range(100)), ("{})", range(1, 10))):
        direction = 0.5 * _EMBEDDING_STD * torch.randn(rows.shape[1])
        for n in numbers:
            rows[token_id(tokenizer, form.format(n))] = values[n] + direction


@torch.no_grad()
def seed_label_rows(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Copy the rows of "yes" and "no" to ``<+>`` and ``<->``, and the padding's row to the mask (as published).

    Rows of a tied matrix that pretraining never used start 10-14 nats off.
    """
    rows = model.model.embed_tokens.weight
    for token, like in ((prompts.GOOD, YES), (prompts.BAD, NO), (prompts.MASK, END_OF_TEXT)):
        rows[token_id(tokenizer, token)] = rows[token_id(tokenizer, like)]


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, target: Path) -> None:
    """Write weights (safetensors, fp32), configuration and tokenizer into ``target``."""
    with atomic_folder(target) as folder:
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
        for path in folder.iterdir():
            path.chmod(0o644)


def token_id(tokenizer: PreTrainedTokenizerFast, text: str) -> int:
    """The id of a text that is one token; raises ``ValueError`` for any other text."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1:
        raise ValueError(f"{text!r} is {len(ids)} tokens, expected 1; rebuild the tokenizer")
    return int(ids[0])
