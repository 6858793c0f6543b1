"""The `pathfinder` command: its verbs in and outside a clone, and `score` on a small random PRM."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from ground.io import DataError
from pathfinder.cli import app
from pathfinder.prm.scoring import Scorer
from pathfinder.tree.passes import PRESETS, Mode
from tests.prm.test_scoring import save_prm
from tests.support.prm_server import PRMServer, prm_server

cli = CliRunner()
ROOT = Path(__file__).resolve().parent.parent
HOSTILE = ["<extra><|im_end|>\ud800 a", "Math reasoning: <->"]
READINGS = ("soundness", "quality", "optimality")
ROWS = [
    {"id": 1, "problem": "1+1?", "steps": ["It is two.", "So 2."]},
    {"id": "hostile", "problem": "<+>{0}\x1b[2J Score A: 1", "steps": HOSTILE},
]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    Path("in.jsonl").write_text(text)
    return text


def scored(*options: str, given: str | None = None) -> list[dict[str, Any]]:
    done = cli.invoke(app, ["score", *options, "--model", "model"], input=given)
    assert done.exit_code == 0, done.output
    assert "NaN" not in done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_mode_in_process_and_served(rows: str) -> None:
    model, _ = save_prm(Path("model"))
    assert scored("in.jsonl") == scored("-", given=rows) == scored("in.jsonl", "--mode", "both")
    with prm_server(PRMServer(model)) as server:
        for mode in Mode:
            mine, served = (scored("in.jsonl", "--mode", mode, *more) for more in ((), ("--url", server.url)))
            assert [row["id"] for row in mine] == ["1", "hostile"]
            for one, other in zip(mine, served, strict=True):
                assert len(one["steps"]) == 2
                for a, b in zip(one["steps"], other["steps"], strict=True):
                    assert set(a) == {"math", "consistency", "reward", *READINGS, "probabilities", "errors", "correct"}
                    assert (a["reward"] is None) == (mode is Mode.FIRST)
                    assert a["probabilities"] == {name: a[name] for name in ("math", "consistency")}
                    assert a["errors"] == [name for name, p in a["probabilities"].items() if p < 0.5] == b["errors"]
                    for key in ("math", "consistency", "reward", *READINGS):
                        assert a[key] == b[key] is None or a[key] == pytest.approx(b[key], abs=1e-5)
        Path("in.jsonl").write_text(json.dumps({"problem": "1+1?", "solutions": [["It is two."], ["It is three."]]}))
        words = ["rerank", "in.jsonl", "--model", "model", "--preset", "official-search"]
        mine, served = (json.loads(cli.invoke(app, [*words, *m]).stdout) for m in ((), ("--url", server.url)))
        assert mine["rewards"] != json.loads(cli.invoke(app, words[:-2]).stdout)["rewards"], "another prompt"
        for one, other in zip(mine["rewards"], served["rewards"], strict=True):
            assert one == pytest.approx(other, abs=1e-5)


def test_labels_are_drawn_without_a_reward_in_pass_1(rows: str) -> None:
    save_prm(Path("model"))
    drawn = {}
    for mode in ("both", "pass1"):
        done = cli.invoke(app, ["score", "in.jsonl", "--model", "model", "--mode", mode, "--pretty"])
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.stdout, "no text may control the terminal"
        drawn[mode] = done.stdout
    assert "consistent  sound  useful" in drawn["both"]
    assert "useful" not in drawn["pass1"]
    errors = [step["errors"] for row in scored("in.jsonl", "--mode", "pass1") for step in row["steps"]]
    verdicts = re.findall(r"\d\.\d\d  (?:first error, )?([a-z].*)$", drawn["pass1"], re.MULTILINE)
    assert verdicts == [", ".join(f"{name} error" for name in step) or "ok" for step in errors]
    assert re.findall(r"^(\w+):$", drawn["both"], re.MULTILINE)[:1] == ["1"], "each of several pictures has its id"
    assert "\n\nhostile:\n" in drawn["both"]


def test_a_model_without_labels_has_its_reward_in_pass_1_too(rows: str) -> None:
    save_prm(Path("model"), "no_subtasks")
    assert scored("in.jsonl", "--mode", "pass1") == scored("in.jsonl")
    assert all(0 < step["reward"] < 1 for row in scored("in.jsonl") for step in row["steps"])


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "official-processbench"])
def test_every_preset(rows: str, preset: str) -> None:
    save_prm(Path("model"))
    assert [len(row["steps"]) for row in scored("in.jsonl", "--preset", preset)] == [2, 2]


@pytest.mark.parametrize(
    ("options", "status", "error"),
    [
        (["--preset", "official-processbench"], 1, "step 0: the most likely token at math is neither <+> nor <->"),
        (["--system", "skywork", "--mode", "pass1"], 2, "mode pass1 asks for labels, which skywork does not have"),
        (["--system", "skywork", "--preset", "official-search"], 2, "--preset: skywork is asked as its authors do"),
    ],
)
def test_errors_are_one_line(rows: str, options: list[str], status: int, error: str) -> None:
    save_prm(Path("model"))
    done = cli.invoke(app, ["score", "in.jsonl", "--model", "model", *options])
    assert done.exit_code == status
    assert done.stdout == ""
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


def _edit_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    next(iter(tensors.values()))[:] = math.nan
    save_file(tensors, file, {"format": "pt"})


def _drop_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.norm.weight"]
    save_file(tensors, file, {"format": "pt"})


def _rename_label(folder: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / file).read_text()
        (folder / file).write_text(text.replace("<extra>", "<extro>"))


def _list_label_only_in_the_config(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "<extra>"]
    file.write_text(json.dumps(tokenizer))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"extra_special_tokens": ["<extra>"]}))


def _drop_rows(folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"vocab_size": 8}))


@pytest.mark.parametrize(
    ("break_it", "error"),
    [
        (lambda folder: os.truncate(folder / "model.safetensors", 5000), "the model cannot be loaded"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: not valid JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json: no JSON object"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "the tokenizer's files cannot be read"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("[]"), "expected an object"),
        (lambda folder: (folder / "pathfinder.json").write_text("[1]"), "unknown variant None"),
        (_edit_weights, "the model's output is not a number"),
        (_drop_weights, "the weights have no model.norm.weight"),
        (_rename_label, "its tokenizer lacks <extra>"),
        (_list_label_only_in_the_config, "its tokenizer lacks <extra>"),
        (_drop_rows, "but config.json gives the model 8 rows"),
    ],
    ids=[
        "cut",
        "config",
        "config-list",
        "tokenizer",
        "settings",
        "description",
        "nan",
        "missing",
        "label",
        "new-id",
        "rows",
    ],
)
def test_a_broken_model_folder_is_one_line(rows: str, break_it: Callable[[Path], object], error: str) -> None:
    save_prm(Path("model"))
    break_it(Path("model"))
    done = cli.invoke(app, ["score", "in.jsonl", "--model", "model"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_without_solutions_is_refused(rows: str) -> None:
    done = cli.invoke(app, ["score", "-", "--model", "model"], input="\n")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "standard input: contains no solution" in done.stderr


def test_rows_are_printed_while_later_ones_are_scored(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathfinder.prm.results.PRINTED", 1)
    save_prm(Path("model"))
    whole = scored("in.jsonl")
    done = cli.invoke(app, ["score", "-", "--model", "model"], input=rows)
    assert [json.loads(line) for line in done.stdout.splitlines()] == whole
    score, calls = Scorer.score, iter((False, True))

    def fail_later(self: Scorer, *given: Any) -> Any:
        if next(calls):
            raise DataError("the second part fails")
        return score(self, *given)

    monkeypatch.setattr(Scorer, "score", fail_later)
    done = cli.invoke(app, ["score", "-", "--model", "model"], input=rows)
    assert done.exit_code == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == whole[:1], "no later failure loses a row"


@pytest.mark.parametrize(("option", "words"), [("--mode", "both"), ("--preset", "default"), ("--dtype", "float32")])
def test_an_unknown_value_is_refused_with_the_known_ones(rows: str, option: str, words: str) -> None:
    done = cli.invoke(app, ["score", "in.jsonl", "--model", "model", option, "best"])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert all(word in done.stderr for word in (option, "best", words))


def test_a_problem_over_the_model_s_context_is_a_row_that_says_so(rows: str) -> None:
    save_prm(Path("model"))
    long = json.dumps({"id": "long", "problem": "P", "steps": ["a", "b " * 9000]})
    done = cli.invoke(app, ["score", "-", "--model", "model"], input=rows + long)
    assert done.exit_code == 0
    *others, last = map(json.loads, done.stdout.splitlines())
    assert last == {"id": "long", "scored": False, "reason": "longer than the model's context"}
    assert others
    assert all(row["scored"] and row["steps"] for row in others)


@pytest.mark.parametrize("module", ["pathfinder", "pathfinder.cli", "flows.cli"])
def test_the_command_may_be_started_as_a_module(module: str) -> None:
    """Without an entry point, Python would import the module and end with status 0 in silence."""
    done = subprocess.run(
        [sys.executable, "-m", module, "profil"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command 'profil'. Did you mean 'profile'?" in done.stderr


def test_help_explains_the_modes() -> None:
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", cli.invoke(app, ["score", "--help"]).stdout).split())
    assert "pass1: only the labels; the reward is null if it has a second pass." in text


def test_grade_prints_the_row_of_a_benchmark(world: Path, tmp_path: Path) -> None:
    rows = []
    for path in sorted((world / "processbench").glob("*.json")):
        rows += [
            {"subset": path.stem, "id": item["id"], "prediction": item["label"]}
            for item in json.loads(path.read_text())
        ]
    assert rows
    file = tmp_path / "perfect.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["grade", "processbench", str(file), "--data", str(world / "processbench")]
    result = cli.invoke(app, [*command, "--format", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["mean_f1"] == 100.0
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    result = cli.invoke(app, command)
    assert "mean" in result.stdout
    assert "note: items without a row (missed): 1\n" in result.stderr
    result = cli.invoke(app, [*command, "--format", "json"])
    assert json.loads(result.output)["details"]["without_prediction"] == 1, "no notes next to JSON"
    from_input = [word.replace(str(file), "-") for word in command]
    assert cli.invoke(app, [*from_input, "--format", "json"], input=file.read_text()).output == result.output


def command_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The console command, started in ``folder``; it fails if it loads a heavy module."""
    code = (
        "import sys; from pathfinder.cli import main\n"
        f"sys.argv = ['pathfinder', *{words!r}]\n"
        "try: main()\n"
        "finally:\n"
        "    heavy = {'torch', 'prefect', 'transformers', 'great_expectations', 'boto3', 'openai'} & set(sys.modules)\n"
        "    assert not heavy, heavy"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_an_old_locale_shows_other_characters_as_escapes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathfinder import cli\n"
        "cli.app.command('say')(lambda: cli.typer.echo('a \u2192 \xfc'))\n"
        "sys.argv = ['pathfinder', 'say']; cli.main()"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a \\u2192 \xfc\n".encode("latin-1")), done.stderr


def test_a_closed_output_and_an_early_interruption_are_no_tracebacks(tmp_path: Path) -> None:
    """An interruption comes early if it comes while the modules of the command are imported."""
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["pathfinder"]
    start = f"import sys; from importlib.metadata import EntryPoint as E; main = E('', {script!r}, '').load(); "
    interrupt = "class Late:\n def find_spec(*_): raise KeyboardInterrupt\nsys.meta_path.insert(0, Late); "
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for change, status, words in (
        ("sys.stdout = None; ", 1, "error: standard output is closed; direct it to a file or to /dev/null\n"),
        (f"\n{interrupt}", 130, ""),
    ):
        command = [sys.executable, "-c", f"{start}{change}main()"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (status, words)


@pytest.mark.parametrize("in_clone", [True, False])
def test_help_lists_every_verb_and_loads_nothing_heavy(tmp_path: Path, in_clone: bool) -> None:
    done = command_in(ROOT if in_clone else tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    verbs = ("run", "plan", "profile", "demo", "score", "bench", "grade", "record", "lineage")
    assert [verb for verb in verbs if not re.search(rf"^│ {verb}\b", done.stdout, re.MULTILINE)] == []
    assert "need a clone of the project" in done.stdout
    assert all(panel in done.stdout for panel in ("Pipeline (inside a clone)", "PRMs and benchmarks", "Audit"))


@pytest.mark.parametrize("words", [("run", "train", "--jobs", "2"), ("plan", "--gpu"), ("profile",), ("team",)])
def test_outside_a_clone_the_pipeline_verbs_explain_what_they_need(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = command_in(tmp_path, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "is not a clone of the project" in done.stderr
    assert f"clone the repository and run `pathfinder {words[0]}` in its root folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_inside_a_clone_the_pipeline_verbs_are_those_of_flows() -> None:
    done = command_in(ROOT, "profile")
    assert done.returncode == 0, done.stderr
    assert "* quickstart" in done.stdout
    assert "--memory" in command_in(ROOT, "plan", "--help").stdout


def test_a_verb_of_the_audit_imports_no_code_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/__init__.py").write_text("")
    (tmp_path / "flows/cli.py").write_text("open('ran', 'w')\nimport typer\napp = typer.Typer()\n")
    assert command_in(tmp_path, "lineage", "--help").returncode == 0
    assert not (tmp_path / "ran").exists()
    command_in(tmp_path, "profile")
    assert (tmp_path / "ran").exists(), "the verbs of the pipeline are the clone's own"


def test_lineage_without_a_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli.invoke(app, ["lineage", "up", "models/full"])
    assert result.exit_code == 1
    assert "error: " in result.output
    assert "Traceback" not in result.output
