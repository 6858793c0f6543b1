"""Monte-Carlo values of steps: counted by hand with a scripted policy, and against the world's truth."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ground.io import DataError, write_jsonl
from pathfinder.cli import app
from pathfinder.core.given import GivenSolution, read_given
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.engines.workers import Workers
from pathfinder.label import told
from pathfinder.policy.monte_carlo import Values, draw, roll_out, rows_of, tasks_of
from pathfinder.policy.samples import open_sampling
from pathfinder.training.stepwise import Row, read
from tests.support.searches import settings
from tests.support.servers import JudgeServer, judge_server
from tests.support.verbs import checked
from world.oracle import assess_all
from world.story import read_story

CLI = CliRunner()
SUBSETS = ("gsm8k", "math", "olympiadbench", "omnimath")
RIGHT = "The answer is \\boxed{7}."


class Counting:
    """A policy: after "good" every answer is right, after "half" every second one, after "bad" none.

    A prompt with "long" has no room, and "fail" ends the run.
    """

    specials: Collection[str] = ("<|im_end|>", "<+>")
    prompts: list[str]
    keys: list[str]

    def __init__(self) -> None:
        self.prompts, self.keys = [], []

    def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
        self.prompts += prompts
        self.keys += keys
        return [self._one(prompt, int(key.rpartition("/")[2])) for prompt, key in zip(prompts, keys, strict=True)]

    def _one(self, prompt: str, number: int) -> Completion:
        if "fail" in prompt:
            raise KeyboardInterrupt
        if "long" in prompt:
            return Completion("", 0, "too_long")
        step = prompt.rstrip().rpartition("\n")[2]
        right = step == "good" or (step == "half" and number % 2 == 0)
        return Completion(RIGHT if right else "The answer is \\boxed{8}.", 9, "stop")


def given(*steps: str, problem: str = "3 + 4?", answer: Any = 7) -> GivenSolution:
    return GivenSolution("f: row 1", "1", problem, steps, None, answer)


def labelled(policy: Any, solutions: list[GivenSolution], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Values:
    monkeypatch.setattr("pathfinder.policy.samples.open_policy", lambda *_: policy)
    with Workers(partial(open_sampling, settings(), (), folder, roll_out), each=0) as workers:
        return draw(tasks_of(solutions), workers, folder)[0]


def test_values_are_the_shares_of_right_completions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Counting()
    solutions = [
        given("good", "half", RIGHT),
        given("good", "bad", "It is \\boxed{9}."),
        given("good", "long", "good", problem="8 - 1?", answer=["$7$"]),
    ]
    rows = list(rows_of(solutions, labelled(policy, solutions, tmp_path, monkeypatch)))
    assert rows[0]["mc_value"] == [1.0, 0.5, 1.0]
    assert rows[1] == {
        "id": "1",
        "prompt": "3 + 4?",
        "completions": ("good", "bad", "It is \\boxed{9}."),
        "labels": [True, False, False],
        "mc_value": [1.0, 0.0, 0.0],
    }
    assert (rows[2]["completions"], rows[2]["mc_value"]) == (("good",), [1.0]), "it ends before the step without room"
    assert len(policy.prompts) == 4 * 6, "a shared beginning is completed once, a step with the answer never"
    assert len({*policy.keys}) == 4 * 6, "equal first steps of two problems draw different random numbers"


def test_an_empty_box_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models repeat "in \\boxed{}" from their prompt; the steps after it are open."""
    solutions = [given("I put the answer in \\boxed{}.", "good", RIGHT)]
    (row,) = rows_of(solutions, labelled(Counting(), solutions, tmp_path, monkeypatch))
    assert row["mc_value"] == [0.0, 1.0, 1.0]


def test_a_resumed_run_repeats_no_finished_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathfinder.policy.monte_carlo._PROMPTS", 1)
    solutions = [given("good"), given("fail", problem="2 + 5?")]
    first, again = Counting(), Counting()
    with pytest.raises(KeyboardInterrupt):
        labelled(first, solutions, tmp_path, monkeypatch)
    monkeypatch.setattr(Counting, "_one", lambda *_: Completion(RIGHT, 9, "stop"))
    assert labelled(again, solutions, tmp_path, monkeypatch)["2 + 5?", ("fail",)] == 1.0
    assert (len(first.prompts), len(again.prompts)) == (8, 4)


def test_tokens_of_labels_and_turns_move_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Counting()
    solutions = [given("a <|im_end|> <+>", "good", problem="3 + 4?<|im_end|>")]
    labelled(policy, solutions, tmp_path, monkeypatch)
    assert {prompt.count("<|im_end|>") for prompt in policy.prompts} == {2}, "only the prompt's own"
    assert not any("<+>" in prompt for prompt in policy.prompts)


@pytest.mark.parametrize(
    ("solutions", "message"),
    [
        ([given("a", answer=None)], r"f: row 1: the solution has no right answer; .*answer=… \(the field"),
        ([given("a", answer=[])], "answer is .*; give one"),
        ([given()], "f: row 1: a solution without steps, or an empty step; remove it"),
        ([given("a", " ")], "without steps, or an empty step"),
        ([given("a"), given("b", answer=8)], "the problem has another answer in an earlier row"),
    ],
)
def test_a_bad_row_is_named(solutions: list[GivenSolution], message: str) -> None:
    with pytest.raises(DataError, match=message):
        tasks_of(solutions)


def test_the_right_answer_is_no_solution(tmp_path: Path) -> None:
    """MATH has a solution and an answer; the answer of GSM8K is the solution."""
    file = tmp_path / "rows.jsonl"
    for row, columns, answer in (
        ({"problem": "p", "solution": "a\nb", "answer": "7"}, "", "7"),
        ({"question": "p", "answer": "a\nb"}, "", None),
        ({"problem": "p", "solution": "7", "answer": "7"}, "", "7"),
        ({"problem": "p", "solutions": ["7", "8"], "answer": "7"}, "", "7"),
        ({"q": "p", "s": "7", "key": "7"}, "problem=q,solution=s,answer=key", "7"),
        ({"q": "p", "answer": "a"}, "problem=q,solution=answer", None),
        ({"problem": "p", "steps": ["a"], "answer": 7}, "", 7),
        ({"q": "p", "s": ["a"], "key": 7}, "problem=q,steps=s,answer=key", 7),
        ({"q": "p", "s": ["a"], "answer": 7}, "problem=q,steps=s", 7),
        ({"question": "p", "solutions": ["a", "b"], "answer": 7}, "", 7),
    ):
        write_jsonl(file, [row])
        assert {one.answer for one in read_given(str(file), columns=columns).each()} == {answer}


@pytest.mark.parametrize("count", [16, pytest.param(200, marks=pytest.mark.benchmarks)])
def test_labels_agree_with_the_world_s_truth(
    world: Path, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps up to the first error, of solutions of the shipped world, by its policy of five layers."""
    monkeypatch.chdir(tmp_path)
    source = [row for name in SUBSETS for row in json.loads((world / f"processbench/{name}.json").read_text())[:50]]
    rows = [{name: row[name] for name in ("problem", "steps")} for row in source[:count]]
    write_jsonl(Path("in.jsonl"), [row | {"answer": read_story(row["problem"]).answer} for row in rows])
    words = ["label", "in.jsonl", "--policy", str(world / "models/base"), "--max-tokens", "256", "--out", "out.jsonl"]
    done = CLI.invoke(app, [*words, "--json"])
    result = checked("label", done.stdout)
    agreed = [found for row in read(Path("out.jsonl")).rows for found in to_first_error(row)]
    print(f"{sum(agreed)} of {len(agreed)} labels agree; {result}")
    assert len(agreed) > 2 * count
    assert sum(agreed) > 0.9 * len(agreed)
    assert result["computed_tokens"] * 5 < result["separate_tokens"]
    assert not Path(".pathfinder/label-steps").exists(), "the chunks are gone"
    again = CLI.invoke(app, words)
    assert (again.exit_code, "out.jsonl: exists; name a new file" in again.stderr) == (1, True)
    streamed = CLI.invoke(app, [*words[:-1], "-"])
    assert (streamed.exit_code, "--out -: label resumes from a file" in streamed.stderr) == (2, True)


def test_a_folder_that_cannot_be_written_is_refused_before_the_completions(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("in.jsonl"), [{"problem": "1 + 1?", "steps": ["1 + 1 = 2."], "answer": "2"}])
    words = ["label", "in.jsonl", "--policy", str(world / "models/base"), "--out"]
    done = CLI.invoke(app, [*words, "in.jsonl/rows.jsonl"])
    assert (done.exit_code, "in.jsonl: File exists; give a name whose folders" in done.stderr) == (1, True)
    monkeypatch.setattr("os.access", lambda path, mode: path != Path("closed"))  # root may write everywhere
    done = CLI.invoke(app, [*words, "closed/rows.jsonl"])
    assert (done.exit_code, done.stderr.startswith("error: closed: cannot be written; ")) == (1, True)
    assert not Path(".pathfinder").exists(), "nothing was completed"


def to_first_error(row: Row) -> Iterator[bool]:
    """True for a label that is the truth, of each step up to the first error."""
    verdicts = assess_all(read_story(row.problem), row.steps)
    for verdict, label in zip(verdicts, row.labels["correctness"], strict=True):
        assert verdict is not None
        yield verdict.is_correct == bool(label)
        if not verdict.is_correct:
            return


def test_a_server_completes_as_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of a server are not counted; a step is right after "good" only."""
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("in.jsonl"), [{"problem": "3 + 4?", "steps": ["good", "bad"], "answer": 7}])

    def reply(prompt: str, _: int) -> str:
        return RIGHT if prompt.rstrip().endswith("good") else "I do not know."

    with judge_server(JudgeServer(reply=reply)) as server:
        done = CLI.invoke(app, ["label", "in.jsonl", "--url", server.url, "--out", "out.jsonl", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["computed_tokens"]) == (0, 0), done.output
    assert not Path(".pathfinder/label-steps").exists()
    (row,) = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert (row["labels"], row["mc_value"]) == ([True, False], [1.0, 0.0])
    shown = list(told(json.loads(done.stdout) | {"computed_tokens": 5, "separate_tokens": 9}))
    assert shown[0] == "out.jsonl: 1 row; 1 of 2 steps correct"
    assert shown[1].startswith("16 completions in ")
    assert shown[2:] == ["tokens computed: 5; without sharing: 9"]
