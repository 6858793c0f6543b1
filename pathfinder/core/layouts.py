"""The row layouts of common files with solutions: the fields that identify a layout, and where problem and steps are.

``LAYOUTS`` is the table. A row has the first layout whose fields it has, and all rows of a file have the same layout.
Only field names decide, never the text. docs/library.md explains the table to users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from ground.io import DataError, strict_json
from pathfinder.core.prompts import STEP_SEPARATOR, without_captions

Row = Mapping[str, Any]
Solutions = Sequence[str | Sequence[str]]
"""Each is a text, which is split into steps, or a list of steps."""
_SILENT = ("system", "developer")
_THOUGHTS = ("reasoning", "thinking", "redacted_thinking")
_PROBLEM = "question|problem|instruction"
CANDIDATES = "candidates"
LM_EVAL = "lm-evaluation-harness"
_ANSWERED = "solution|response|output|answer"


HUB = "hub:"
"""The prefix of a Hub data set's name."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""The separator of a table by the suffix of its file."""


class WrongError(ValueError):
    """A row does not match its layout; the message says where."""


Split = Literal["auto", "blank", "lines", "numbered"]
"""Where a step begins: after a blank line, at every line, or at a line that begins with its number ("Step 2:").

``auto`` takes numbers if a text has at least steps 1 and 2, else blank lines if it has one, else lines.
"""
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n")
_LINES = re.compile(r"\n")
_NUMBER = re.compile(r"^[^\S\n]*(?:#{1,6} |\*\*)?Step (\d{1,4})\b\**[:.]", re.MULTILINE)
SAID = {"blank": "at blank lines", "lines": "at line ends", "numbered": 'at "Step 1:", "Step 2:" …'}
"""How a message names each way."""


def split_steps(text: str, how: Split = "auto") -> list[str]:
    """The steps of a solution: its text without white space around each step, and without empty steps.

    Windows line ends become Unix line ends. The rest of the text is kept: numbers stay, and the text before "Step 1:"
    is a step. Raises ``DataError`` for an unknown ``how``.
    """
    return split_known(text, how)[1]


def split_known(text: str, how: Split = "auto") -> tuple[str, list[str]]:
    """The way that ``auto`` chooses (else ``how`` itself), and the steps as ``split_steps`` returns them.

    Raises ``DataError`` for an unknown ``how``.
    """
    if how not in get_args(Split):
        raise DataError(f"unknown split {how!r}; expected one of {', '.join(get_args(Split))}")
    text = text.replace("\r\n", "\n").strip()
    taken: str = how
    if how == "auto":
        taken = "numbered" if len(_numbered(text)) > 2 else "blank" if _BLANK_LINES.search(text) else "lines"
    parts = _parts(text) if taken == "numbered" else (_BLANK_LINES if taken == "blank" else _LINES).split(text)
    return taken, [step for part in parts if (step := part.strip())]


def _numbered(text: str) -> list[int]:
    """Where the parts of a text begin: at its start, and at "Step 1:", "Step 2:" and so on, without a gap."""
    starts = [0]
    for found in _NUMBER.finditer(text):
        if int(found[1]) == len(starts):
            starts.append(found.start())
    return starts


def _parts(text: str) -> list[str]:
    starts = _numbered(text)
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def unless_blank(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps, unchanged; none if no step has a text."""
    return tuple(steps) if any(map(str.strip, steps)) else ()


def steps_of(solution: str) -> tuple[str, ...]:
    """Split a whole solution at blank lines into non-empty steps, as the search would have drawn them."""
    return tuple(step for part in solution.split(STEP_SEPARATOR) if (step := part.strip()))


@dataclass(frozen=True, slots=True)
class Taken:
    """The problem and the solutions of a row, unchanged.

    ``sides`` names the solutions if there may be several, ``id`` is the row's name in this layout, and ``answers`` are
    the given answers, if there are any.
    """

    problem: str
    solutions: Solutions
    sides: Sequence[str] = ("",)
    id: Any = None
    labels: tuple[bool, ...] | None = None
    answers: Any = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout: its name, its fields (``a|b``: the first of them that the row has), and how it is read.

    ``take`` reads a row and raises ``WrongError``. ``auto`` splits texts if the caller asks for no split.
    """

    name: str
    fields: tuple[str, ...]
    take: Callable[[Row], Taken]
    auto: Callable[[str], Sequence[str]] | None = None

    def fits(self, row: Row) -> bool:
        """True if the row has a value in every field of the layout."""
        return all(any(row.get(name) is not None for name in each.split("|")) for each in self.fields)

    def solution_in(self, row: Row) -> str | None:
        """The field that holds the row's solution (``answer`` in GSM8K), if the layout has several for it."""
        return _first(row, _ANSWERED)[0] if _ANSWERED in self.fields else None


def require_version(name: str, log: Any) -> None:
    """Raise ``DataError`` unless the header of an inspect_ai log has the version that this module reads."""
    if (found := log.get("version") if isinstance(log, dict) else None) != 2:
        raise DataError(f"{name}: a log of inspect_ai of version {found!r:.80}, expected 2; write it with inspect_ai")


def text_of(content: Any, name: str = "content") -> str:
    """The text of a turn's content: a string, or a list of parts, whose texts are joined by line ends.

    A model's reasoning is left out. Raises ``ValueError`` for anything else, such as an image.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise WrongError(f"{name} is {content!r:.80}; expected a text or a list of parts")
    kept = [part for part in content if part.get("type") not in _THOUGHTS]
    for part in kept:
        if part.get("type", "text") != "text" or not isinstance(part.get("text"), str):
            raise WrongError(f"{name} has a part of type {part.get('type')!r:.40}; expected texts only")
    return "\n".join(part["text"] for part in kept)


def conversation(turns: Any, roles: Sequence[str], name: str = "messages") -> list[str]:
    """The texts of the turns; system turns are left out. Raises ``ValueError`` if the roles are not ``roles``."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise WrongError(f"{name} is {turns!r:.80}; expected a list of turns with role and content")
    told = [turn for turn in turns if turn.get("role") not in _SILENT]
    if [turn.get("role") for turn in told] != [*roles]:
        found = ", ".join(str(turn.get("role"))[:20] for turn in told[:8]) or "none"
        raise WrongError(f"{name} has the turns {found}; expected {', '.join(roles)}, apart from system turns")
    return [text_of(turn.get("content"), f"{name}: content of {turn['role']}") for turn in told]


def question_in(prompt: Any, name: str = "prompt") -> str:
    """The problem in a prompt: a text, or a conversation with one user turn. Raises ``ValueError`` otherwise."""
    return prompt if isinstance(prompt, str) else conversation(prompt, ["user"], name)[0]


def _first(row: Row, names: str) -> tuple[str, Any]:
    """The first of these fields that the row has, and its value."""
    name = next(name for name in names.split("|") if row.get(name) is not None)
    return name, row[name]


def _text(row: Row, names: str) -> str:
    name, value = _first(row, names)
    if not isinstance(value, str):
        raise WrongError(f"{name} is {value!r:.80}, expected problem and solution as texts (string)")
    return value


def _steps(row: Row, name: str) -> list[str]:
    value = row[name]
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        raise WrongError(f"{name} is {value!r:.80}, expected steps (list of strings)")
    return value


def _listed(value: Any) -> Any:
    """The list that a text holds as JSON, as a cell of CSV does; anything else as it is."""
    try:
        found = strict_json(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return found if isinstance(found, list) else value


def _several(given: Any, name: str) -> Solutions:
    are_lists = isinstance(given, list) and all(
        isinstance(one, str) or (isinstance(one, list) and all(isinstance(step, str) for step in one)) for one in given
    )
    if not are_lists or not given:
        raise WrongError(f"{name} is {given!r:.80}, expected a non-empty list of texts or of lists of steps")
    return list(given)


def _numbers(solutions: Solutions) -> list[str]:
    return [str(number) for number in range(len(solutions))]


def _flags(row: Row, steps: Sequence[str]) -> tuple[bool, ...] | None:
    """The labels, unless they say more than true and false, as training reads them."""
    name, labels = _first(row, "labels|correct")
    labels = _listed(labels)
    if not isinstance(labels, list) or len(labels) != len(steps) or any(one not in (None, -1, 0, 1) for one in labels):
        raise WrongError(f"{name} is {labels!r:.80}, expected true, false, -1, null for each of the {len(steps)} steps")
    return None if None in labels or -1 in labels else tuple(map(bool, labels))


def _prmbench(row: Row) -> Taken:
    parts = [row.get(name) for name in ("classification", "idx")]
    if not all(isinstance(part, str) for part in parts):
        raise WrongError("expected an object of PRMBench with idx and classification (strings)")
    steps = _steps(row, "modified_process")
    return Taken(_text(row, "modified_question"), [steps], id="_".join(map(str, parts)))


def _own(row: Row) -> Taken:
    steps = _steps(row, "steps")
    return Taken(_text(row, "problem"), [steps])


def _stepwise(row: Row) -> Taken:
    steps = _steps(row, "completions")
    return Taken(question_in(row["prompt"]), [steps], labels=_flags(row, steps))


def _candidates(row: Row) -> Taken:
    solutions = _several(_first(row, "solutions|candidates")[1], "solutions")
    return Taken(_text(row, "problem|question"), solutions, _numbers(solutions), answers=row.get("answers"))


def _search_and_learn(row: Row) -> Taken:
    texts = _several(row["completions"], "completions")
    return Taken(_text(row, "problem"), texts, _numbers(texts), id=row.get("unique_id"))


def _pair(row: Row) -> Taken:
    problems, solutions = {question_in(row["prompt"])} if row.get("prompt") is not None else set(), []
    for side in ("chosen", "rejected"):
        turns = row[side]
        if isinstance(turns, list) and any(isinstance(turn, dict) and turn.get("role") == "user" for turn in turns):
            asked, answered = conversation(turns, ["user", "assistant"], side)
            problems.add(asked)
            solutions.append(answered)
        else:
            solutions.append(_reply(turns, side))
    if len(problems) != 1:
        raise WrongError(f"{len(problems)} different problems in prompt, chosen and rejected; expected one")
    return Taken(problems.pop(), solutions, ("chosen", "rejected"))


def _reply(given: Any, name: str) -> str:
    return given if isinstance(given, str) else conversation(given, ["assistant"], name)[0]


def _lm_eval(row: Row) -> Taken:
    doc, resps = row["doc"], row["resps"]
    texts = resps[0] if isinstance(resps, list) and len(resps) == 1 and isinstance(resps[0], list) else []
    if not isinstance(doc, dict) or not texts or not all(isinstance(text, str) for text in texts):
        raise WrongError("expected doc (object) and resps with the texts of one generated request")
    if not any(doc.get(name) is not None for name in _PROBLEM.split("|")):
        found = ", ".join(map(str, doc))[:200]
        raise WrongError(f"doc has none of {_PROBLEM} but {found}; use --columns problem=doc.NAME,solutions=resps.0")
    return Taken(_text(doc, _PROBLEM), texts, _numbers(texts) if len(texts) > 1 else ("",), id=row.get("doc_id"))


def _choices(choices: Any) -> tuple[list[str], list[str]]:
    """The texts of a model's answers, and their names; one empty text if there are no answers."""
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise WrongError(f"choices is {choices!r:.80}, expected a list of objects")
    texts = [_choice(choice) for choice in choices] or [""]
    return texts, _numbers(texts) if len(texts) > 1 else [""]


def _choice(choice: Row) -> str:
    if isinstance(text := choice.get("text"), str):
        return text
    message = choice.get("message")
    return _reply([message], "message") if isinstance(message, dict) and message.get("content") is not None else ""


def _inspect(row: Row) -> Taken:
    output, epoch = row["output"], row["epoch"]
    if not isinstance(output, dict):
        raise WrongError(f"output is {output!r:.80}, expected an object with choices")
    texts, sides = _choices(output.get("choices", []))
    name = row.get("id")
    return Taken(question_in(row["input"], "input"), texts, sides, id=name if epoch == 1 else f"{name}/epoch {epoch}")


def _batch(row: Row) -> Taken:
    if "problem" not in row:
        raise WrongError("the answers of a batch without their questions; add --problems with the batch's input file")
    answer = row.get("response") or {}  # a failed request has none
    body = answer.get("body") or {} if isinstance(answer, dict) else None
    if not isinstance(body, dict):
        raise WrongError(f"response is {answer!r:.80}, expected an object with body")
    texts, sides = _choices(body.get("choices", []))
    return Taken(question_in(row["problem"], "the question"), texts, sides, id=row["custom_id"])


def _prm800k(row: Row) -> Taken:
    """The steps that the labellers chose. If they chose none for the last step, its only completion is taken."""
    try:
        problem, label, steps = row["question"]["problem"], row["label"], []
        for step in label["steps"]:
            chosen, completions = step["chosen_completion"], step["completions"] or []
            if chosen is None and step.get("human_completion") is None:
                steps += [completions[0]["text"]] if len(completions) == 1 else []
                break
            steps.append((step["human_completion"] if chosen is None else dict(enumerate(completions))[chosen])["text"])
    except (TypeError, KeyError) as error:
        raise WrongError(f"expected question.problem and label.steps as in PRM800K ({error!r:.80})") from None
    return Taken(_text({"problem": problem}, "problem"), [_steps({"steps": steps}, "steps")])


def _math_shepherd(row: Row) -> Taken:
    problem, start, rest = _text(row, "input").partition("Step 1:")
    *steps, end = f"{start}{rest}".split("ки")
    marks = (
        re.fullmatch("([+-])".join(map(re.escape, [problem + steps[0], *steps[1:], end])), _text(row, "label"))
        if steps
        else None
    )
    if marks is None or end.strip():
        raise WrongError("input and label are not the same steps, each of which ends in ки or in its label")
    labels = tuple(mark == "+" for mark in marks.groups())
    return Taken(problem.strip(), [[without_captions(step) for step in steps]], labels=labels)


def _messages(row: Row) -> Taken:
    problem, solution = conversation(row["messages"], ["user", "assistant"])
    return Taken(problem, [solution])


def _completion(row: Row) -> Taken:
    return Taken(question_in(row["prompt"]), [_reply(row["completion"], "completion")])


def _pairs(row: Row) -> Taken:
    problem = _text(row, _PROBLEM)
    more = row.get("input") if "instruction" in row else None  # as in Alpaca's rows
    return Taken(f"{problem}\n{more}" if isinstance(more, str) and more.strip() else problem, [_text(row, _ANSWERED)])


def _columns(row: Row) -> Taken:
    """A row with the names of ``--columns``."""
    problem, name = question_in(row["problem"], "problem"), _first(row, "steps|solution|solutions")[0]
    if name == "solutions":
        solutions = _several(row[name], name)
        return Taken(problem, solutions, _numbers(solutions), answers=row.get("answers"))
    steps = _listed(row[name]) if name == "steps" else None
    is_list = isinstance(steps, list) and (steps is row[name] or all(isinstance(step, str) for step in steps))
    return Taken(problem, [_steps({name: steps}, name) if is_list else _reply(row[name], name)])


MATH_SHEPHERD = Layout("Math-Shepherd", ("input", "label", "task"), _math_shepherd)
BATCH = Layout("batch", ("custom_id", "response|error"), _batch)
LAYOUTS = (
    Layout("PRMBench", ("modified_question", "modified_process"), _prmbench),
    Layout("problem and steps", ("problem", "steps"), _own),
    Layout("stepwise supervision", ("prompt", "completions", "labels|correct"), _stepwise),
    Layout(CANDIDATES, ("problem|question", "solutions|candidates"), _candidates, partial(split_steps, how="blank")),
    Layout("search-and-learn", ("problem", "completions"), _search_and_learn),
    Layout("preference pairs", ("chosen", "rejected"), _pair),
    Layout("inspect_ai", ("input", "output", "epoch"), _inspect),
    Layout(LM_EVAL, ("doc", "resps"), _lm_eval),
    BATCH,
    Layout("PRM800K", ("question", "label", "labeler"), _prm800k),
    MATH_SHEPHERD,
    Layout("messages", ("messages",), _messages),
    Layout("prompt and completion", ("prompt", "completion"), _completion),
    Layout("question and solution", (_PROBLEM, _ANSWERED), _pairs),
)
COLUMNS = Layout("columns", ("problem", "steps|solution|solutions"), _columns)
PLAIN = ("PRMBench", "problem and steps", CANDIDATES, "text")
"""Layouts that leave no choice and so need no note."""
