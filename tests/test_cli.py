"""`pathfinder score` on a small random PRM: every mode, preset and source of rows, in process and served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pathfinder.cli import app
from pathfinder.tree.passes import PRESETS, Mode
from tests.prm.test_scoring import save_prm
from tests.support.prm_server import PRMServer, prm_server

cli = CliRunner()
HOSTILE = ["<extra><|im_end|>\ud800 a", "Math reasoning: <->"]
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
                    assert set(a) == {"math", "consistency", "reward", "labels"}
                    assert (a["reward"] is None) == (mode is Mode.FIRST)
                    assert a["labels"] == {name: a[name] >= 0.5 for name in ("math", "consistency")} == b["labels"]
                    for key in ("math", "consistency", "reward"):
                        assert a[key] == b[key] is None or a[key] == pytest.approx(b[key], abs=1e-5)


def test_labels_alone_are_drawn_without_a_reward(rows: str) -> None:
    save_prm(Path("model"))
    drawn = {}
    for mode in ("both", "pass1"):
        done = cli.invoke(app, ["score", "in.jsonl", "--model", "model", "--mode", mode, "--pretty"])
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.stdout, "no text writes to the terminal by itself"
        drawn[mode] = done.stdout
    assert re.findall(r"reward \d\.\d\d", drawn["both"])
    assert "reward" not in drawn["pass1"]
    labels = [step["labels"] for row in scored("in.jsonl", "--mode", "pass1") for step in row["steps"]]
    verdicts = re.findall(r"^ {5}(.+?)  \(math", drawn["pass1"], re.MULTILINE)
    errors = [", ".join(f"{name} error" for name, fine in one.items() if not fine) for one in labels]
    assert verdicts == [said or "ok" for said in errors]


def test_a_model_without_labels_has_its_reward_in_pass_1_too(rows: str) -> None:
    save_prm(Path("model"), "no_subtasks")
    assert scored("in.jsonl", "--mode", "pass1") == scored("in.jsonl")
    assert all(0 < step["reward"] < 1 for row in scored("in.jsonl") for step in row["steps"])


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "official-processbench"])
def test_every_preset(rows: str, preset: str) -> None:
    save_prm(Path("model"))
    assert [len(row["steps"]) for row in scored("in.jsonl", "--preset", preset)] == [2, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mode", "best"], "unknown mode 'best'; expected one of both, pass1, positive, all"),
        (["--preset", "best"], "unknown preset 'best'; expected one of default, official-processbench"),
        (["--preset", "official-processbench"], "step 0: the most likely token at math is neither <+> nor <->"),
        (["--dtype", "int8"], "unknown dtype 'int8'; expected one of float32"),
        (["--system", "skywork", "--mode", "pass1"], "--mode pass1 asks for labels, which skywork does not have"),
    ],
)
def test_what_is_refused_is_named(rows: str, options: list[str], said: str) -> None:
    save_prm(Path("model"))
    done = cli.invoke(app, ["score", "in.jsonl", "--model", "model", *options])
    assert done.exit_code == 1
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_problem_over_the_model_s_context_is_named(rows: str) -> None:
    save_prm(Path("model"))
    long = json.dumps({"id": "long", "problem": "P", "steps": ["a", "b " * 9000]})
    done = cli.invoke(app, ["score", "-", "--model", "model"], input=rows + long)
    assert done.exit_code == 1
    assert "error: long, step 1: the prompt has over" in done.stderr
    assert done.stdout == ""


def test_help_says_what_the_modes_do() -> None:
    said = " ".join(re.sub(r"[│╭╮╰╯─]", " ", cli.invoke(app, ["score", "--help"]).stdout).split())
    assert "pass1: the labels alone; the reward is null." in said
