"""Every verb of the command has help, ``--json`` with documented keys, and errors of one line."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ground.text import UsageError
from tests.evidence.record.conftest import made
from tests.prm.test_scoring import save_prm
from tests.support.miniature import GIT
from tests.support.report_inputs import write_benchmarks
from tests.support.verbs import ROOT, checked, documented, verbs, whole_app

__all__ = ["made"]
CLI, APP = CliRunner(), whole_app()
COMMAND = get_command(APP)
VERBS = dict(verbs(COMMAND))
CHECKED = [
    command
    for path in ROOT.glob("tests/**/test_*.py")
    for command in re.findall(r'\bchecked\(f?"([^"]+)"', path.read_text(encoding="utf-8"))
]
"""Every command whose printed JSON a test compares with docs/commands.md."""
INSTALLED = ("demo", "score", "rerank", "serve", "bench", "leaderboard", "grade", "label", "train")
"""The verbs of the method, which an installed package has."""
MODEL = ("--model", "model")
SOLUTIONS = [{"id": f"gsm8k-{n}", "problem": f"{n} + 1?", "steps": ["We add.", f"It is {n + 1}."]} for n in range(2)]


@pytest.fixture(scope="module", autouse=True)
def one_command() -> Iterator[None]:
    """The command is made once: making it takes longer than most verbs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", lambda _: COMMAND)
        yield


def run(*words: str, status: int = 0, given: str | None = None) -> str:
    done = CLI.invoke(APP, list(words), input=given)
    assert done.exit_code == status, done.output
    return done.stdout


def test_the_walk_finds_the_verbs() -> None:
    assert {("score",), ("run",), ("lineage", "up"), ("lineage", "record")} <= VERBS.keys()
    assert len(VERBS) > 25


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_offers_json_and_explains_each_argument(words: tuple[str, ...]) -> None:
    command = VERBS[words]
    options = {option for param in command.params for option in param.opts}
    assert "--json" in options, "annotate a parameter with AsJson (ground/show.py)"
    assert [param.name for param in command.params if not getattr(param, "help", None)] == []
    assert command.help
    lines = [line for part in inspect.cleandoc(command.help).split("\n\n")[1:] for line in part.splitlines()]
    assert [line for line in lines if not line.endswith((".", ":"))] == [], "the help keeps the ends of these lines"
    name = " ".join(words[1:] if words[1:] in VERBS else words)
    listed = [one for one in documented() if one.split()[: len(name.split())] == name.split()]
    assert listed, "add it to docs/commands.md"
    assert [one for one in CHECKED if one.startswith(name)], f'call checked("{name}", output) in a test of this verb'


def test_the_page_of_commands_has_a_row_for_every_verb() -> None:
    table = (ROOT / "docs/commands.md").read_text(encoding="utf-8").partition("| command | purpose |")[2]
    rows = re.findall(r"^\| (`[^|]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    named: list[tuple[str, ...]] = []
    for first, *others in (re.findall(r"`pathfinder ([^`]+)`|`([a-z]+)`", row) for row in rows if "pathfinder" in row):
        words = tuple(word for word in first[0].split() if word.islower())
        named += [words, *((*words[:-1], other) for _, other in others)]
    assert sorted(named) == sorted(VERBS)


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_fits_eighty_columns(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*words, "-h").splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines).replace("(…", "").replace("[…", ""), "a cell was cut"
    arguments_panel = "\n".join(lines).partition("─ Options ─")[0]
    assert not re.search(r"<\w[^>\n]*\n", arguments_panel), "a choice was cut"
    arguments = VERBS[words].epilog
    assert f" pathfinder {' '.join(words)} {arguments}".rstrip() in map(str.rstrip, lines), "declare an example"
    assert VERBS[words].make_context(words[-1], arguments.split())
    names_files = any(word.startswith(("examples/", "data", "artifacts/")) for word in arguments.split())
    says_so = "Example, in a clone of the project:" in map(str.strip, lines)
    assert says_so == (names_files and words[0] in INSTALLED)


def test_examples_without_a_run_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for verb in ("demo", "score", "rerank"):
        assert run(verb, *VERBS[verb,].epilog.split())
    run("plan", *VERBS["plan",].epilog.split())


@pytest.fixture(scope="module")
def scoring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny PRM, solutions, and the benchmarks' files."""
    folder = tmp_path_factory.mktemp("scoring")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_benchmarks()
    save_prm(folder / "model")
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SOLUTIONS))
    candidates = {"problem": "1 + 1?", "solutions": [["It is 2."], ["It is 3."]], "answers": ["2", "3"]}
    (folder / "candidates.jsonl").write_text(json.dumps(candidates) + "\n")
    return folder


def test_scores_as_json(scoring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scoring)
    checked("demo", run("demo", "--json"))
    score = ("score", "in.jsonl", "--model", "model")
    rows = checked("score", run(*score, "--json"))
    assert [row["id"] for row in rows] == [row["id"] for row in SOLUTIONS]
    assert run(*score) == run(*score, "--json"), "rows are JSON Lines with and without the option"
    checked("rerank", run("rerank", "candidates.jsonl", "--model", "model", "--json"))
    for form in ("processbench", "prmbench"):
        checked(f"score --as {form}", run(*score, "--as", form, "--json"))
    for other in (["--json"], ["--as", "prmbench"]):
        done = CLI.invoke(APP, [*score, "--pretty", *other])
        assert (done.exit_code, done.stdout) == (2, "")
        assert "give one of --json, --as and --pretty" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("grade search in.jsonl --format latex --json", "give one of --json and --format"),
        ("rerank candidates.jsonl --model model --pretty --json", "give one of --json and --pretty"),
        ("rerank candidates.jsonl --model model --mode positive --system llemma", "which llemma does not have"),
        ("score in.jsonl --model model --columns problem=problem", "--columns problem=problem: expected"),
        ("score in.jsonl --columns problem=a,steps=b --problems c", "--problems is only for the answers of a batch"),
        ("score in.jsonl --model model --url localhost:8000/v1", "localhost:8000/v1: not a server's address"),
        ("score in.jsonl --model model --url http://me:secret@a/v1", "must not name a user or a password"),
        ("label in.jsonl --out -", "--out -: label resumes from a file"),
        ("label in.jsonl --out new --url 127.0.0.1", "not a server's address"),
    ],
)
def test_a_wrong_command_is_one_line_with_status_two(
    scoring: Path, words: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scoring)
    done = CLI.invoke(APP, words.split())
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert message in done.stderr


def test_grades_as_json(scoring: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scoring)
    file = str(tmp_path / "predictions.jsonl")

    def graded(benchmark: str, of: str) -> str:
        Path(file).write_text(run("score", f"artifacts/raw/{of}", "--model", "model", "--as", benchmark, "--json"))
        return run("grade", benchmark, file, "--json")

    found = checked("grade processbench", graded("processbench", "processbench/gsm8k.json"))
    assert found == json.loads(run("grade", "processbench", "-", "--format", "json", given=Path(file).read_text()))
    checked("grade prmbench", graded("prmbench", "prmbench/circular.jsonl"))
    problem = json.loads((world / "search/olympiadbench.jsonl").read_text().splitlines()[0])["question"]
    Path(file).write_text(json.dumps({"set": "olympiadbench", "question": problem, "pred_answer": "1"}))
    checked("grade search", run("grade", "search", file, "--data", str(world / "search"), "--json"))


def test_plans_and_profiles_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("infra/profiles", "infra/accelerate"):
        shutil.copytree(ROOT / path, tmp_path / path)
    shutil.copyfile(ROOT / "infra/resources.yaml", tmp_path / "infra/resources.yaml")
    monkeypatch.chdir(tmp_path)
    assert checked("profile NAME", run("profile", "paper", "--json"))["written"]
    (active,) = [row["profile"] for row in checked("profile", run("profile", "--json")) if row["active"]]
    assert active == "paper"
    assert checked("team", run("team", "--json"))["lines"][0] == "server: none"
    plan = checked("plan --gpu", run("plan", "--gpu", "--memory", "24", "--json", status=1))
    assert not plan["fits"]
    assert any(stage["remedy"] for stage in plan["stages"])
    assert {row["profile"] for row in checked("plan --gpu --all", run("plan", "--gpu", "--all", "--json"))} >= {active}


def test_the_history_as_json(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    shutil.copytree(made, folder, symlinks=True)
    monkeypatch.chdir(folder)
    subprocess.run([*GIT, "add", "-f", "dvc.lock"], check=True)
    subprocess.run([*GIT, "commit", "-qm", "run"], check=True)
    for kind in ("stages", "outs", "records"):
        checked(f"lineage list {kind}", run("lineage", "list", kind, "--json"))
    checked("lineage up", run("lineage", "up", "models/full", "--json"))
    checked("lineage view STAGE", run("lineage", "view", "train@full", "--json"))
    checked("lineage view OUT", run("lineage", "view", "models/full", "--json"))
    checked("lineage find", run("lineage", "find", "params.yaml", "--json"))
    checked("lineage diff", run("lineage", "diff", "HEAD", "--json"))
    checked("lineage check", run("lineage", "check", "--json"))
    checked("lineage check --all-commits", run("lineage", "check", "--all-commits", "--json"))
    checked("lineage fetch", run("lineage", "fetch", "--json"))
    export = ("lineage", "export", "--format", "crate", "--json")
    assert json.loads(checked("lineage export", run(*export))["content"])
    assert checked("lineage export", run(*export, "--output", "crate.json"))["file"] == "crate.json"
    rendered = checked("lineage render", run("lineage", "render", "--json"))
    assert Path(rendered["page"]).stat().st_size == rendered["bytes"]
    bundled = checked("lineage bundle", run("lineage", "bundle", "--json"))
    assert Path(bundled["bundle"]).stat().st_size == bundled["bytes"]
    assert checked("plan", run("plan", "--json"))["stages"] == []
    for verb in ("check", "fetch", "list", "up", "view", "find", "diff", "export", "bundle", "render"):
        run("lineage", verb, *VERBS["lineage", verb].epilog.split())


def _given(param: Any, value: str) -> str:
    """A value for a parameter of a verb: ``value``, or the first choice where only some words are accepted."""
    kind = param.type_descriptor.annotation
    return str(get_args(kind)[0]) if get_origin(kind) is Literal else value


def _calls(words: tuple[str, ...], value: str) -> Iterator[list[str]]:
    """The verb with ``value`` for its arguments, and with ``value`` for each option that names a file or a model."""
    needed = {
        ("lineage", "export"): ["--format", "crate"],
        ("publish",): ["--dry-run"],
        ("train",): ["--out", "new"],
        ("label",): ["--out", "new"],
    }.get(words, [])
    parts = VERBS[words].params
    arguments = [param for param in parts if param.param_type_name == "argument"]
    if arguments:
        yield [*words, *(_given(param, value) for param in arguments), *needed]
    for param in parts:
        is_file = param.name == "model" or "Path" in str(param.type_descriptor.annotation)
        if is_file and param.param_type_name == "option" and param.name != "output":
            required = [_given(one, "solutions.jsonl") for one in arguments if one.required]
            yield [*words, *required, param.opts[0], value, *needed]


@pytest.fixture(scope="module")
def broken(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature project with inputs that no verb can use."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("broken") / "project", symlinks=True))
    (folder / "empty").write_text("")
    (folder / "bytes").write_bytes(b"\xff\xfe\0[{")
    (folder / "some").mkdir()
    (folder / "solutions.jsonl").write_text(json.dumps(SOLUTIONS[0]) + "\n")
    (folder / "locked").mkdir(mode=0o000)
    (folder / "exclusions.jsonl").write_text("")
    return folder


_SLOW_OR_OWN = {("run",), ("pull",)}
"""Tested with their projects: tests/flows/test_cli.py and tests/evidence/test_guard.py."""


@pytest.mark.parametrize(
    "value",
    ["missing", *(pytest.param(one, marks=pytest.mark.campaign) for one in ("some", "empty", "bytes", "locked/file"))],
)
def test_a_wrong_input_is_one_line_for_every_verb(broken: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if value == "locked/file" and os.geteuid() == 0:
        pytest.skip("root may read every folder")
    monkeypatch.chdir(broken)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused = 0
    for words in VERBS.keys() - _SLOW_OR_OWN:
        for call in _calls(words, value):
            done = CLI.invoke(APP, call)
            shown = f"{' '.join(call)}: {done.exception!r} {done.stderr}"
            assert done.exception is None or isinstance(done.exception, SystemExit), shown
            if done.exit_code and call[:2] != ["lineage", "find"]:  # which only says that no store has the bytes
                refused += 1
                (line,) = done.stderr.splitlines()
                assert line.startswith("error: "), shown
                assert re.search(r"; |expected|Expected|such|nor |not ", line), shown
    assert refused > 25


def test_a_folder_is_no_file_to_write(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(broken)
    for words in (["export", "--format", "crate"], ["render"]):
        done = CLI.invoke(APP, ["lineage", *words, "--output", "some"])
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert "some: is a folder" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["profile", "--json"], ["--help"], ["--version"]])
def test_output_that_cannot_be_written_is_one_line(words: list[str], unbuffered: str) -> None:
    command = [sys.executable, "-c", "from pathfinder.cli import main; main()", *words]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert b"standard output: No space left on device; free space" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words", [["profile"], pytest.param(["score", "in.jsonl", *MODEL], marks=pytest.mark.campaign)]
)
def test_a_reader_that_leaves_early_ends_the_verb_quietly(scoring: Path, words: list[str], unbuffered: str) -> None:
    """As in `pathfinder score FILE | head -1`."""
    start = "import sys; from pathfinder.cli import main; sys.stdin.readline(); main()"
    with subprocess.Popen(
        [sys.executable, "-c", start, *words, "--json"],
        cwd=scoring if words[0] == "score" else ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write("\n")  # the verb waits for this line, so the reader is gone when it prints
        process.stdin.close()
        errors = process.stderr.read()
    assert process.returncode == 141
    assert "Traceback" not in errors
    assert "Broken pipe" not in errors


@pytest.mark.parametrize(
    "words",
    [
        *("publish models/full", "publish models/full --to x", "lineage void x"),
        *("lineage keys gpu", "lineage keys gpu --until soon", "lineage keys --pem key.pem"),
    ],
)
def test_a_missing_or_malformed_option_is_a_usage_error(words: str) -> None:
    assert CLI.invoke(APP, words.split()).exit_code == UsageError.exit_status
