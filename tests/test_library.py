"""The library's front door: a PRM from a folder or the Hub, typed results, and the same scores as the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from ground.io import write_json
from pathfinder import PRM, DataError, ScoredSolution, ScoredStep, Solution, open_prm
from pathfinder.baselines.named import named, open_named
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.cli import app
from pathfinder.demo import MODEL
from pathfinder.models.folders import MODEL_FILE
from pathfinder.prm.opening import CHECKPOINTS
from pathfinder.prm.serving import StepOut
from pathfinder.sources.named_models import PUBLISHED, model_folder
from tests.baselines.model_folders import FOLDERS
from tests.prm.test_scoring import save_prm
from tests.support.hub_server import HubServer, hub_server

ROOT = Path(__file__).resolve().parent.parent
PROBLEM, STEPS = "1+1?", ["It is two.", "So <extra> 2."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random PRM in the form of the published checkpoint, which has no description of ours."""
    folder = tmp_path_factory.mktemp("published")
    save_prm(folder)
    (folder / MODEL_FILE).unlink()
    return folder


def test_scores_are_typed_and_those_of_the_command(folder: Path, tmp_path: Path) -> None:
    prm = PRM.load(folder)
    one = prm.score(PROBLEM, STEPS)
    both = prm.score_many([(PROBLEM, STEPS), ("Q", ["a"])])
    assert both[0].rewards == pytest.approx(one.rewards, abs=1e-6)
    assert [len(solution.steps) for solution in both] == [2, 1]
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": 1, "problem": PROBLEM, "steps": STEPS}))
    done = CliRunner().invoke(app, ["score", str(tmp_path / "in.jsonl"), "--model", str(folder)])
    rows = json.loads(done.stdout)["steps"]
    assert [(step.math, step.consistency, step.reward) for step in one.steps] == [
        (row["math"], row["consistency"], row["reward"]) for row in rows
    ]
    assert [step.text for step in one.steps] == STEPS
    assert one.rewards == [row["reward"] for row in rows]


def test_verdicts_follow_labels_and_reward() -> None:
    fine = ScoredStep("a", {"math": 0.9, "consistency": 0.5}, 0.5)
    assert (fine.errors, fine.correct) == ((), True)
    typed = ScoredStep("a", {"math": 0.4, "consistency": 0.9}, 0.9)
    assert (typed.errors, typed.correct) == (("math",), False)
    single = ScoredStep("a", {"error_free": 0.2}, None)
    assert (single.math, single.errors, single.correct) == (None, ("error_free",), False)
    assert not ScoredStep("a", {}, 0.4).correct


def test_modes_without_reward_and_long_solutions_say_so(folder: Path) -> None:
    labels = PRM.load(folder, mode="pass1").score(PROBLEM, STEPS)
    assert labels.steps[0].reward is None
    with pytest.raises(DataError, match="pass1"):
        _ = labels.rewards


def test_an_unscored_solution_cannot_pass_for_a_correct_one(folder: Path) -> None:
    """Whatever is asked of it raises one clear error: an empty list of steps would pass every check of steps."""
    right, long = PRM.load(folder).score_many([(PROBLEM, STEPS), (PROBLEM, ["a " * 9000])])
    assert (right.scored, long.scored) == (True, False)
    assert long.row() == {"scored": False, "reason": "longer than the model's context"}
    uses: list[Callable[[Any], Any]] = [
        lambda s: min(s.rewards),
        lambda s: s.first_error,
        lambda s: all(step.correct for step in s.steps),
    ]
    for use in uses:
        use(right)
        with pytest.raises(DataError, match="has no scores: it is longer than the model's context; change it"):
            use(long)
    assert not isinstance(long, ScoredSolution)


def test_what_open_prm_opened_gives_typed_results(folder: Path) -> None:
    with open_prm(folder) as opened:
        right, long = PRM(opened).score_many([(PROBLEM, STEPS), (PROBLEM, ["a " * 9000])])
    assert right.row() == PRM.load(folder).score(PROBLEM, STEPS).row()
    assert not long.scored


def test_labels_and_probabilities_have_one_name_each_everywhere(folder: Path, tmp_path: Path) -> None:
    step = PRM.load(folder).score(PROBLEM, STEPS).steps[0]
    (tmp_path / "in.jsonl").write_text(json.dumps({"problem": PROBLEM, "steps": STEPS}))
    printed = CliRunner().invoke(app, ["score", str(tmp_path / "in.jsonl"), "--model", str(folder)]).stdout
    row = json.loads(printed)["steps"][0]
    assert row == step.row() == json.loads(json.dumps(row))
    assert all(isinstance(p, float) for p in row["probabilities"].values())
    shown = json.loads(CliRunner().invoke(app, ["demo", "--json"]).stdout)["steps"][0]
    assert set(shown) - {"text"} == set(row) == set(StepOut.model_fields), "the keys of `demo` and of the server"


@pytest.mark.parametrize("steps", [[], "text", [1], None, iter([]), np.array(["a", None])])
def test_what_is_no_solution_is_refused(folder: Path, steps: list[str]) -> None:
    with pytest.raises(DataError, match="solution 1: expected a problem"):
        PRM.load(folder).score_many([(PROBLEM, STEPS), (PROBLEM, steps)])


def test_what_is_no_pair_is_refused(folder: Path) -> None:
    wrong: list[Any] = [[(PROBLEM,)], "ab", [(PROBLEM, STEPS, 1)], [5], [None]]
    for solutions in wrong:
        with pytest.raises(DataError, match="solution 0: expected a problem"):
            PRM.load(folder).score_many(solutions)


def test_a_solution_without_text_is_not_scored(folder: Path) -> None:
    found = PRM.load(folder).score_many([(PROBLEM, [" ", ""]), (PROBLEM, STEPS)])
    assert [one.row().get("reason") for one in found] == ["empty", None]


def test_steps_may_come_from_an_iterator_or_a_table(folder: Path) -> None:
    prm = PRM.load(folder)
    expected = prm.score(PROBLEM, STEPS).rewards
    assert len(expected) == len(STEPS)
    for steps in (iter(STEPS), map(str.strip, STEPS), np.array(STEPS), np.array(STEPS, dtype=object)):
        assert prm.score(PROBLEM, steps).rewards == expected


@pytest.mark.parametrize(
    ("option", "words"), [("mode", "expected one of both"), ("preset", "expected"), ("device", "cannot be used")]
)
def test_an_unknown_option_is_an_error_of_input(folder: Path, option: str, words: str) -> None:
    with pytest.raises(DataError, match=f"'sideways'.*{words}"):
        cast("Any", PRM.load)(folder, **{option: "sideways"})


def test_the_published_checkpoint_is_fetched_once_from_the_hub(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published, hub = PUBLISHED["pathfinder-prm-7b"], HubServer()
    name, commit = published.name, published.revision
    hub.add(name, folder, commit=commit)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hub_server(hub):
        hub.lead_here(monkeypatch, tmp_path / "home")
        first = PRM.load(name).score(PROBLEM, STEPS)
        PRM.load(model_folder(name))
        assert "warning" not in capsys.readouterr().err
        asked = len(hub.requests)
        assert PRM.load(name).score(PROBLEM, STEPS) == first == PRM.load(folder).score(PROBLEM, STEPS)
        assert PRM.load("pathfinder-prm-7b").score(PROBLEM, STEPS) == first
        assert len(hub.requests) == asked, "a known commit needs no network"
        assert model_folder(name, "main").name == commit
        with pytest.raises(DataError, match="nobody/nothing"):
            model_folder("nobody/nothing")
    with pytest.raises(DataError, match="name a model folder or a repository of the Hub such as owner/name; a PRM may"):
        model_folder("nowhere")
    monkeypatch.chdir(tmp_path)
    assert model_folder("pathfinder/demo_model") == MODEL, "outside a clone too"
    (tmp_path / "in.txt").write_text("1+1?\n\nIt is two.")
    done = CliRunner().invoke(app, ["score", "in.txt", "--model", name, "--as", "processbench"])
    assert json.loads(done.stdout)["id"] == "1"


def test_a_folder_that_nothing_marks_as_a_prm_is_scored_with_a_warning(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A base model whose tokenizer has the label tokens gives scores like a PRM's."""
    told = rf"warning: {re.escape(str(folder))} has no pathfinder\.json, .* may mean nothing\n"
    PRM.load(folder)
    assert re.fullmatch(told, capsys.readouterr().err)
    (tmp_path / "in.txt").write_text("1+1?\n\nIt is two.")
    command = ["score", str(tmp_path / "in.txt"), "--model", str(folder)]
    assert re.fullmatch(told, CliRunner().invoke(app, command).stderr)
    assert CliRunner().invoke(app, [*command, "--system", "pathfinder-prm-7b"]).stderr == ""
    shutil.copytree(folder, tmp_path / "ours")
    write_json(tmp_path / "ours" / MODEL_FILE, {"variant": "full"})
    PRM.load(tmp_path / "ours")
    assert capsys.readouterr().err == ""


def test_the_published_prms_are_those_of_the_profile() -> None:
    profile = yaml.safe_load((ROOT / "infra/profiles/evaluate-published.yaml").read_text())
    theirs = {
        name.removeprefix("models/"): (source["location"], source["revision"], tuple(source["files"]))
        for name, source in profile["download"]["sources"].items()
        if source and name.startswith("models/")
    }
    ours = PUBLISHED | {f"{name}/{part}": other for name, one in PUBLISHED.items() for part, other in one.parts.items()}
    assert {name: (one.name, one.revision, one.files) for name, one in ours.items()} == theirs
    assert PUBLISHED.keys() == {*SYSTEMS, *CHECKPOINTS}


def test_a_published_prm_is_opened_by_its_name_with_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Math-PSA is an adapter for another repository's model; its name fetches both, and tells which PRM they are."""
    published, hub = PUBLISHED["math-psa"], HubServer()
    whole = tmp_path / "whole"
    FOLDERS["math-psa"](whole)
    adapter = tmp_path / "adapter/checkpoint-2127"
    adapter.parent.mkdir()
    shutil.move(whole / "lora", adapter)
    hub.add(published.name, whole, commit=published.revision)
    hub.add(published.title, adapter.parent, commit=published.parts["lora"].revision)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hub_server(hub):
        hub.lead_here(monkeypatch, tmp_path / "home")
        for name in ("math-psa", published.title):
            found = named(name)
            assert (found.system, found.titles) == ("math-psa", ("Math-PSA-7B",))
            with open_named(name) as prm:
                ((step,),) = prm.score([Solution("1", PROBLEM, ("It is two.",))])
            assert 0 < step.reward < 1
            asked = len(hub.requests)
        assert len(hub.requests) == asked, "known commits need no network"
        base = model_folder(published.name, published.revision)
        assert not (base / "lora").exists(), "the base model by its own name has no adapter"
    assert named(whole, system="pathfinder-prm-7b").system is None
    with pytest.raises(DataError, match="not a PathFinder-PRM"):
        PRM.load("math-psa")
    with pytest.raises(DataError, match="unknown system 'gpt'"):
        named(whole, system="gpt")


@pytest.mark.parametrize("name", ["models/none", "none", "a/b/c", "https://x/y"])
def test_a_missing_folder_is_no_repository(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        PRM.load(name)
    with pytest.raises(DataError, match="a folder has no revision"):
        PRM.load(tmp_path, revision="main")


def test_the_page_s_examples_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/library.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    shutil.copytree(folder, tmp_path / "models/full")
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})  # noqa: S102  # the project's own page
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1) buys 4, so 3 + 4 = 8 apples. 0.")
    assert len(lines) == 4


def test_the_shipped_model_scores_without_transformers() -> None:
    code = (
        "import sys; from pathfinder import PRM; found = PRM.load('pathfinder/demo_model').score('1 + 1?', ['3']); "
        "print(found.scored, 'torch' in sys.modules, {'transformers', 'pandas', 'scipy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True True set()\n"
