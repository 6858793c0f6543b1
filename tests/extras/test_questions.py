"""The questions of an auditor: each has one command, and an answer that was worked out by hand.

Three projects answer them. ``records`` is the small project of ``tests.support.record_stages``, with 24 lines of people
and 8 conversations; ``runs`` is the miniature project with two committed runs, at rate 0.5 and 0.25; ``clone`` is this
repository without outs. Line n of ``records`` has problem n - 1 and rater (n - 1) modulo 3.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from typer.testing import CliRunner

from evidence.record.environment import describe_actor
from evidence.record.signing import key_id, own_key, public_pem
from extras.cli import lineage as app
from pathfinder.reporting.index import schema
from tests.evidence.records.conftest import finished as records
from tests.evidence.verbs.conftest import made, project, twice

__all__ = ["made", "project", "records", "twice"]
ROOT = Path(__file__).resolve().parents[2]
FILE = "prm800k-0817420a"
"""The beginning of the ids of the lines of people."""
RETRIED = f"{FILE}-8-0-0"
"""A record whose judge is asked again in the copy: the stages of the small project ask once."""
MADE = {"artifacts/raw", "models/full", "metrics/train/full.json", "models/plain", "metrics/train/plain.json"}
TWO = {"train@full", "train@plain"}
ALL = {"download", *TWO}


class Question(NamedTuple):
    """A question, the project that is asked, the command, the part of its answer, and the value expected there."""

    asks: str
    of: str
    command: str
    part: Callable[[Any], Any]
    expected: Any


def ids(found: Any) -> set[str]:
    return {row["id"].removeprefix(f"{FILE}-") for row in found["ids"]}


def stages(found: Any) -> set[str]:
    return {place["stage"] for place in found["places"]}


def parts(found: Any) -> set[str]:
    """The names of all stages in a tree."""
    inner = (parts(node) for node in found.get("made of", ()))
    return set.union({found["stage"]} if "stage" in found else set(), *inner)


def keys(*names: str) -> Callable[[Any], Any]:
    """The value at a path of keys."""

    def part(found: Any) -> Any:
        for name in names:
            found = found[name]
        return found

    return part


def fates(found: Any) -> Any:
    return found["fates"]


def run_of(found: Any) -> Any:
    return {row["run"]: (row["records"], row["steps"], row["of_steps"]) for row in found["runs"]}


def through(found: Any) -> Any:
    return {row["figure"].rpartition("/")[2]: row["through"] for row in found["figures"]}


PYDANTIC = metadata.version("pydantic")
QUESTIONS = (
    Question("Which upstream line is behind a record?", "records", f"record {RETRIED}", keys("upstream", "line"), 8),
    Question(
        "What did the judge answer on a record?", "records", f"record {RETRIED}", keys("label", "outcome"), "parsed"
    ),
    Question(
        *("Which records come from one file?", "records", "down file:prm800k/phase1_train.jsonl"),
        *(lambda f: (f["lines"], f["records"]), (25, 74)),  # the last line has no record
    ),
    Question("What is under a licence?", "records", "down licence:Apache-2.0", keys("lines"), 8),
    Question(
        *("What did a person rate that a model learned from?", "records", "down rater:rater-1"),
        *(run_of, {"full": (10, 6, 10)}),
    ),
    Question(
        *("Which records did a person rate?", "records", "down rater:rater-1 --ids"),
        *(lambda f: {int(one.split("-")[0]) for one in ids(f)}, {2, 5, 8, 11, 14, 17, 20, 23}),
    ),
    Question(
        *("Why was a record dropped?", "records", f"down {FILE}-6-0-1", fates, {"build: overlap": 1}),
    ),
    Question("Which records were dropped for a reason?", "records", "down reason:disagrees --ids", ids, {"1-0-1"}),
    Question("Which prompts did the judge refuse?", "records", "down outcome:refused --ids", ids, {"5-0-0"}),
    Question("Which answers of the judge were retried?", "records", "down retried:1 --ids", ids, {"8-0-0"}),
    Question("Which records rest on one answer?", "records", "down answers:feed --ids", ids, {"8-0-0"}),
    Question(
        *("Is a test item in the training data?", "records", "down item:gsm8k-0 --ids"),
        *(
            lambda f: (f["overlap"]["problem"][0]["kind"], ids(f), f["runs"]),
            ("exact", {"6-0-0", "6-0-1", "6-1-0"}, []),
        ),
    ),
    Question(
        *("Is a test item that resembles none in it?", "records", "down item:circular_r0"),
        *(lambda f: (f["records"], f["overlap"]), (0, {"problem": [], "steps": []})),
    ),
    Question("Which records are held out?", "records", "down side:test", keys("held_out"), 26),
    Question("What did a model learn from?", "records", "down run:full", run_of, {"full": (30, 10, 10)}),
    Question(
        *("Does a figure contain a record, or rest on it through training?", "records", f"down {FILE}-4-1-0"),
        *(through, {"losses": "contents"}),  # held out
    ),
    Question(
        *("Which models must be trained again without a person?", "records", "forget rater:rater-2 --dry-run"),
        *(keys("retrain"), ["models/full"]),
    ),
    Question(
        *("Which decisions were wrong?", "records", "items processbench full --wrong"),
        *(lambda rows: [row["item"] for row in rows], ["gsm8k-0"]),
    ),
    Question("What depends on a file?", "runs", "down data", lambda f: set(f["outs"]), MADE),
    Question("What was a model made from?", "runs", "up models/full", parts, {"download", "train@full"}),
    Question(
        *("Where does a figure come from?", "runs", "up metrics/train/full.json#/loss"),
        *(lambda f: f["figures"][0]["of"][0]["stage"], "train@full"),
    ),
    Question(
        *("What was the base model trained on?", "clone", "up data/models/base"),
        *(lambda f: {"base@quickstart", "ship"} <= parts(f), True),
    ),
    Question("Which runs had a package?", "runs", f"find package=pydantic=={PYDANTIC}", stages, ALL),
    Question("Which runs had a seed, or another parameter?", "runs", "find train.rate=0.5", stages, TWO),
    Question("Who ran what, where?", "runs", f"find user={describe_actor()['user']}", stages, ALL),
    Question(
        *("Which key signed what, and when?", "runs", "find key=*"),
        *(lambda f: {(p["path"] == KEY, p["started"][:2]) for p in f["places"]}, {(True, "20")}),
    ),
    Question(
        *("What changed between two runs?", "runs", "diff HEAD~2"),
        *(lambda f: {cause["about"] for cause in f["causes"]}, {"train.rate", "pathfinder/mixing", "stages/train.py"}),
    ),
    Question(
        *("Was anything changed after the runs?", "runs", "check"),
        *(lambda f: (f["verdict"], f["attested"], f["stages"]), ("SOUND", 3, 3)),
    ),
    Question(
        *("Was each commit's run signed?", "runs", "check --all-commits"),
        *(lambda rows: [row["attested"] for row in rows], [3, 3]),
    ),
)
KEY = ""


@pytest.fixture(scope="module")
def projects(records: Path, twice: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three projects; in the first, a record's judge is asked again, and the report has a held-out loss."""
    copy = Path(shutil.copytree(records, tmp_path_factory.mktemp("questions") / "records"))
    path = copy / schema.INDEX / "steps.parquet"
    steps = pl.read_parquet(path)
    is_retried, answers = pl.col("id") == RETRIED, pl.col("answers").list.concat(pl.lit(["feed"]))
    schema.write_table(path, steps.with_columns(pl.when(is_retried).then(answers).otherwise("answers")), schema.STEPS)
    tables = copy / "reports/tables.json"
    content = json.loads(tables.read_text())
    content["results"][0]["origins"]["losses"] = {"how": "copy", "of": ["metrics/train/full.json#/test_loss"]}
    tables.write_text(json.dumps(content))
    return {"records": copy, "runs": twice, "clone": ROOT}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.asks)
def test_one_command_answers_the_question(
    projects: dict[str, Path], question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.extras.test_questions.KEY", key_id(public_pem(own_key().public_key())))
    monkeypatch.chdir(projects[question.of])
    done = CliRunner().invoke(app, [*question.command.split(), "--json"])
    assert done.exit_code == 0, done.output
    assert question.part(json.loads(done.stdout)) == question.expected


def test_a_fact_that_no_run_has_is_told_from_a_key_that_no_record_has(
    projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(projects["runs"])
    absent = CliRunner().invoke(app, ["find", "package=torch==0.1"])
    assert (absent.exit_code, absent.stderr) == (1, "no record has this fact\n")
    assert "no record has this key" in str(CliRunner().invoke(app, ["find", "colour=red"]).exception)


@pytest.mark.parametrize(
    "selector, says",
    [
        ("colour:red", "names no records"),
        ("retried:0", "a number of further answers from 1"),
        ("run:other", "has no such run; it has full"),
        ("reason:lost", "has no such reason; it has "),
        ("item:aime-1", "has no such item; it has "),
        ("mixes:9k", "has no such mixes; it has 200k, 400k"),
        ("models/none", "names no records"),
    ],
)
def test_an_unknown_selector_is_refused_with_the_known_ones(
    projects: dict[str, Path], selector: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(projects["records"])
    assert says in str(CliRunner().invoke(app, ["down", selector]).exception)


def test_records_of_a_column_are_forgotten_one_by_one(
    projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(projects["records"])
    done = CliRunner().invoke(app, ["forget", "item:gsm8k-0", "--dry-run", "--json"])
    excluded = json.loads(done.stdout)["excluded"]
    assert [row["id"] for row in excluded] == [f"{FILE}-6-{place}" for place in ("0-0", "0-1", "1-0")]
    assert len({row["content"] for row in excluded}) == 1
