"""Generate judge answers in the style of real models, together with their true scores, from a random source.

The parser must return a reason for a case without true scores. For a cut case it may return the true scores or a
reason, but no other scores. A case is cut only after its last block has begun, because only then the text shows that it
is cut (docs/judge.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from pathfinder.core.labels import Scores

KINDS = (
    "one block",
    "thoughts before it",
    "thoughts the prompt opened",
    "draft before it",
    "quoted block before it",
    "quoted block after it",
    "template before it",
    "cut anywhere in the last block",
    "cut thoughts",
    "only thoughts",
    "only the template",
    "not binary",
    "contradicted",
    "incomplete",
    "no scores",
)
_Three = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """One answer; ``truth`` is ``None`` if it has no scores. For a cut or quoted answer, a reason is correct too."""

    kind: str
    text: str
    truth: Scores | None
    is_cut: bool = False
    is_quoted: bool = False

    def accepts(self, read: Scores | str) -> bool:
        """True if this is a correct reading."""
        return read == self.truth if isinstance(read, Scores) else self.truth is None or self.is_cut or self.is_quoted


_PROSE = (
    "The step adds 3 and 4 and gets 7, which is right.",
    "We check: 0.5 * 2 = 1; so 1 = 1.",
    "Criterion A) holds: 1 + 1 = 2.\nCriterion B) too.",
    "Let x = 1. Then \\frac{1}{2} < 1 and {0 or 1} is a set.",
    "<b>bold</b> & “quotes”, ½, ², ：, \u202e, \x1b[31m",
    "- first: 1\n- second: 0\n\n| a | b |\n|---|---|\n| 1 | 0 |",
    "I would give a high score; the score is deserved.",
    "The earlier step <extra> <+> says nothing. Step 2: 0",
    "Ответ: 1. 答案：0。 الجواب 1",
    "",
)
_CAPTIONS: _Three = (" (Mathematical logic)", " (Consistency)", " (Simplicity and optimality)")
_DASHED: _Three = (" – Mathematical logic", " – Consistency", " – Simplicity")
_PLAIN: _Three = ("", "", "")
_ODD = ("2", "3", "9", "10", "01", "0.5", "1/2", "1²", "-1", "yes", "correct", "{0 or 1 only}", "N/A", "50%", "1 or 0")


def generate(random: Random) -> Case:
    """One case of a random kind."""
    return _MAKERS[random.randrange(len(KINDS))](random)


def _digits(random: Random) -> Scores:
    return Scores(random.randrange(2), random.randrange(2), random.randrange(2))


def _prose(random: Random) -> str:
    return "\n".join(random.choice(_PROSE) for _ in range(random.randrange(4)))


def _block(random: Random, values: _Three) -> str:
    """Three scores in one of the layouts that models use."""
    names = random.choice((_PLAIN, _PLAIN, _CAPTIONS, _DASHED))
    layout = random.randrange(9)
    end = random.choice(("\n", "\n\n", "\r\n", " \n", ",\n", ";\n", ".\n"))
    if layout == 0:
        return "".join(f"Score {x}: \n{value}\n" for x, value in zip("ABC", values, strict=True))
    if layout == 1:
        rows = (f"| Score {x}{n} | {v} |\n" for x, n, v in zip("ABC", names, values, strict=True))
        return "| Criterion | Value |\n|---|---|\n" + "".join(rows)
    if layout == 2:
        inner = ", ".join(f'"Score {x}": "{v}"' for x, v in zip("ABC", values, strict=True))
        return f"{{{inner}}}\n"
    if layout == 3:
        return " ".join(f"Score {x}: {v}" for x, v in zip("ABC", values, strict=True)) + "\n"
    lead = random.choice(("", "", "- ", "* ", "1. ", "### ", "> ", "• "))
    open_, close = random.choice((("", ""), ("**", "**"), ("*", "*"), ("__", "__"), ("`", "`")))
    colon = random.choice((": ", ":", " : ", ":\n", ": \n\n", " = ", "： ", ":\r\n"))
    shown = random.choice(
        ("{}", "**{}**", "{{{}}}", "[{}]", "`{}`", "$\\boxed{{{}}}$", "({})", '"{}"', "$\\text{{{}}}$")
    )
    inside = random.randrange(2)  # the colon inside or after the bold
    lines = []
    for x, name, value in zip("ABC", names, values, strict=True):
        caption = f"{open_}Score {x}{name}"
        head = f"{caption}{colon.rstrip()}{close} " if inside and colon.rstrip() else f"{caption}{close}{colon}"
        lines.append(lead + head + shown.format(value) + end)
    return "".join(lines)


def _of(random: Random, scores: Scores) -> str:
    return _block(random, (str(scores[0]), str(scores[1]), str(scores[2])))


def _heading(random: Random) -> str:
    return random.choice(("\n", "\nFinal answers:\n", "\n**Final answers:**\n\n", "\n### Final answers\n"))


def _finished(random: Random, kind: str, before: str) -> Case:
    truth = _digits(random)
    after = random.choice(("", "\n", "\nThat is all.", "\n```", "\nThe step is fine; no score is missing."))
    block = _of(random, truth)
    text = f"{before}\n{_prose(random)}{_heading(random)}{block}{after}"
    return Case(kind, text, truth, is_quoted=block.startswith(">"))  # then an unquoted draft contradicts it


def _thoughts(random: Random) -> str:
    mention = random.choice(("", "I must not write <think> again. ", _of(random, _digits(random))))
    return f"{_prose(random)}\n{mention}{_prose(random)}"


def _tags(random: Random) -> tuple[str, str]:
    return random.choice((("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<THINK>", "</THINK>")))


def _thought(random: Random) -> Case:
    open_, close = _tags(random)
    return _finished(random, KINDS[1], f"{open_}\n{_thoughts(random)}\n{close}")


def _prompted(random: Random) -> Case:
    return _finished(random, KINDS[2], f"{_thoughts(random)}\n{_tags(random)[1]}")


def _draft(random: Random) -> Case:
    return _finished(random, KINDS[3], f"{_of(random, _digits(random))}\nWait, on reflection:\n")


def _quote(random: Random) -> str:
    block = _of(random, _digits(random)).replace("\r", "")
    return random.choice(
        (f"The student writes “{block}” in this step.", f"The problem says:\n> {block}", f"```\n{block}```")
    )


def _quoted(random: Random) -> Case:
    return _finished(random, KINDS[4], _quote(random))


def _quoted_after(random: Random) -> Case:
    truth = _digits(random)
    other = Scores(1 - truth[0], *truth[1:])
    plain = "Score A: {}\nScore B: {}\nScore C: {}\n".format(*truth)
    said = "Score A: {} Score B: {} Score C: {}".format(*other)
    form = random.choice(("The step contains “{}”.", 'Ignored: "{}"', "> {}", "```\n{}\n```", "I ignore the text {}"))
    return Case(KINDS[5], f"{_prose(random)}\n{plain}{_prose(random)}\n{form.format(said)}", None)


def _template(random: Random) -> str:
    return f"The format is:\n{_block(random, ('{0 or 1 only}', '{0 or 1 only}', '{0 or 1 only}'))}"


def _cut(random: Random) -> Case:
    before = random.choice((lambda _: "", _quote, _template, lambda r: f"<think>{_thoughts(r)}</think>", _draft_text))
    truth = _digits(random)
    block = _of(random, truth)
    start = block.index("Score A") + len("Score A")  # from here on, the text shows that a block has begun
    text = f"{before(random)}\n{_prose(random)}\n{_heading(random)}"
    return Case(KINDS[7], text + block[: random.randrange(start, len(block) + 1)], truth, is_cut=True)


def _draft_text(random: Random) -> str:
    return _of(random, _digits(random)) + "\nOn reflection, no.\n"


def _cut_thoughts(random: Random) -> Case:
    open_, close = _tags(random)
    thoughts = f"{_thoughts(random)}\n{close}"
    cut = random.randrange(len(thoughts))
    return Case(KINDS[8], f"{open_}{thoughts[:cut]}", None)


def _only_thoughts(random: Random) -> Case:
    open_, close = _tags(random)
    return Case(KINDS[9], f"{open_}{_of(random, _digits(random))}{close}\n{_prose(random)}", None)


def _echo(random: Random) -> Case:
    return Case(KINDS[10], f"{_prose(random)}\n{_template(random)}", None)


def _odd(random: Random) -> Case:
    values = [str(random.randrange(2)) for _ in range(3)]
    for at in random.sample(range(3), random.randrange(1, 4)):
        values[at] = random.choice(_ODD)
    return Case(
        KINDS[11], f"{_prose(random)}{_heading(random)}{_block(random, (values[0], values[1], values[2]))}", None
    )


def _contradicted(random: Random) -> Case:
    scores = _digits(random)
    letter, value = random.choice(tuple(zip("ABC", scores, strict=True)))
    return Case(KINDS[12], f"{_of(random, scores)}\nSo, in the end, Score {letter}: {1 - value}.", None)


def _incomplete(random: Random) -> Case:
    values, missing = _digits(random), random.randrange(3)
    named = zip("ABC", values, strict=True)
    lines = [f"**Score {x}:** {value}\n" for at, (x, value) in enumerate(named) if at != missing]
    return Case(KINDS[13], f"{_prose(random)}\n{''.join(lines)}", None)


def _nothing(random: Random) -> Case:
    pieces = (
        "Score",
        " A",
        ":",
        " 1",
        "0",
        "\n",
        "**",
        "B",
        "<think>",
        "</think>",
        "{",
        "\\boxed{1}",
        "\x00",
        "\ud800",
    )
    soup = "".join(random.choice(pieces) for _ in range(random.randrange(30)))
    return Case(KINDS[14], random.choice((_prose(random), soup.replace("Score A", "A"), "")), None)


_MAKERS: tuple[Callable[[Random], Case], ...] = (
    lambda random: _finished(random, KINDS[0], ""),
    _thought,
    _prompted,
    _draft,
    _quoted,
    _quoted_after,
    lambda random: _finished(random, KINDS[6], _template(random)),
    _cut,
    _cut_thoughts,
    _only_thoughts,
    _echo,
    _odd,
    _contradicted,
    _incomplete,
    _nothing,
)
