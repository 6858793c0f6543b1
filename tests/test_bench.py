"""`pathfinder bench` gives the figures that scoring and grading give, in one form for every benchmark and model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ground.io import write_jsonl
from pathfinder.bench.rows import Paper, Row, judged_rows, search_rows
from pathfinder.bench.search import POLICY_OF_PAPER, SETTINGS, SearchOptions, _Policy, _rows
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.evaluation import BenchmarkName, PRMBenchEvaluation, ProcessBenchEvaluation
from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.paper import SIZES as PAPER_SIZES
from pathfinder.benchmarks.readers import CLASSES, Loaded, PRMBenchItem, ProcessBenchItem, read_prmbench
from pathfinder.cli import app
from pathfinder.core.steps import Verdicts
from pathfinder.models.folders import MODEL_FILE
from pathfinder.policy import choosing
from pathfinder.prm.scoring import Scorer
from pathfinder.sources.named_models import PUBLISHED
from tests.baselines.model_folders import FOLDERS
from tests.prm.test_scoring import save_prm
from tests.support.hub_server import HubServer, hub_server
from tests.support.report_inputs import write_benchmarks
from tests.support.servers import JudgeServer, judge_server
from tests.support.verbs import checked

CLI = CliRunner()
ROOT = Path(__file__).resolve().parent.parent
KEYS = ["benchmark", "rule", "subset", "figure", "n", "value", "low", "high", "paper", "note"]
RULES = [("processbench", "soundness"), ("processbench", "quality")]
RULES += [("prmbench", rule) for rule in ("definition", "soundness", "quality", "official")]


def run(*words: str) -> str:
    done = CLI.invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def rows_of(*words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = checked("bench", run("bench", *words, "--json"))
    assert all(list(row) == KEYS for row in rows)
    return rows


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer draws per interval, which no test here compares with a figure."""
    for room in ("rows", "board"):
        few = INTERVALS.model_copy(update={"bootstrap_samples": 200})
        monkeypatch.setattr(f"pathfinder.bench.{room}.INTERVALS", few)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_benchmarks()
    save_prm(Path("model"))
    return tmp_path


def test_figures_are_those_of_scoring_and_grading(folder: Path) -> None:
    rows = rows_of("model", "--subsets", "--predictions", "written")
    found = {(row["benchmark"], row["rule"], row["subset"]): row for row in rows}
    assert list(dict.fromkeys(key[:2] for key in found)) == RULES
    assert {key[2] for key in found} == {"all", "gsm8k", "math", "circular"}
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    figures: dict[BenchmarkName, tuple[str, str, str]] = {
        "processbench": ("mean_f1", "subsets", "f1"),
        "prmbench": ("overall", "classes", ""),
    }
    for benchmark, rule in RULES:
        asked = {"definition": ["--mode", "both"], "soundness": ["--mode", "pass1"]}
        asked["official"] = ["--mode", "pass1", "--preset", "official-prmbench"]
        files = sorted((folder / "artifacts/raw" / benchmark).iterdir())
        if rule == "quality":
            given = [by_quality(benchmark, run("score", str(file), "--model", "model")) for file in files]
        else:
            given = [run("score", str(file), "--model", "model", "--as", benchmark, *asked[rule]) for file in files]
        Path("predictions.jsonl").write_text("".join(given))
        name: BenchmarkName = "processbench" if benchmark == "processbench" else "prmbench"
        graded = grade(name, Path("predictions.jsonl"), folder / "artifacts/raw" / benchmark, "repaired")
        whole, parts, key = figures[name]
        assert found[benchmark, rule, "all"]["value"] == pytest.approx(graded[whole], abs=1e-9)
        if rule == next(each for name, each in RULES if name == benchmark):
            assert grade(name, Path(f"written/{name}.jsonl"), folder / "artifacts/raw" / name, "repaired") == graded
        for part, value in graded[parts].items():
            expected = value[key] if key else value
            assert found[benchmark, rule, part]["value"] == pytest.approx(expected, abs=1e-9)
    assert [found[b, r, "all"]["n"] for b, r in RULES] == [60, 60, 20, 20, 20, 20]
    assert not [path for path in Path(".pathfinder/bench").rglob("*") if path.is_file()], "work of a finished command"


def by_quality(benchmark: str, scored: str) -> str:
    """The predictions that follow from only the rewards of scored solutions."""
    lines = []
    for row in map(json.loads, scored.splitlines()):
        useful = [step["quality"] >= 0.5 for step in row["steps"]]
        if benchmark == "prmbench":
            line = {"idx": row["id"], "scores": {"step_level_validity_labels": useful}}
        else:
            first = useful.index(False) if False in useful else -1
            line = {"subset": row["id"].rpartition("-")[0], "id": row["id"], "prediction": first}
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def test_the_table_says_once_why_it_has_no_figure_of_the_paper(folder: Path) -> None:
    head, *rest = run("bench", "model", "--on", "prmbench", "--limit", "5").splitlines()
    assert head.split() == ["benchmark", "rule", "subset", "figure", "n", "%", "95", "%", "interval"]
    assert [line.split()[1] for line in rest[:-1]] == ["definition", "soundness", "quality", "official"]
    assert rest[-1] == "The paper's figures are left out: the paper has no figure of this system."


@pytest.mark.parametrize("is_same", [True, False])
def test_an_interrupted_command_resumes(folder: Path, is_same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is a folder of links, like a snapshot in the Hub's cache; different weights are a different model."""
    weights, scored = Path("model/model.safetensors").rename("weights"), list[int]()
    Path("model/model.safetensors").symlink_to(weights.absolute())
    score = Scorer.score

    def interrupted(scorer: Scorer, solutions: Any, *rest: Any) -> Any:
        if scored == [60]:
            raise KeyboardInterrupt
        return counted(scorer, solutions, *rest)

    def counted(scorer: Scorer, solutions: Any, *rest: Any) -> Any:
        scored.append(len(solutions))
        return score(scorer, solutions, *rest)

    monkeypatch.setattr(Scorer, "score", interrupted)
    assert CLI.invoke(app, ["bench", "model"]).exit_code != 0
    assert scored == [60]
    if not is_same:
        weights.write_bytes(weights.read_bytes()[:-1] + b"1")
    monkeypatch.setattr(Scorer, "score", counted)
    assert len(rows_of("model")) == 6
    assert scored == ([60, 20, 20] if is_same else [60, 60, 20, 20]), "ProcessBench is not scored again"


def test_every_input_is_read_before_any_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scorer, "score", lambda *_: pytest.fail("scored before all inputs were read"))
    shutil.rmtree("artifacts/raw/prmbench")
    Path("file").touch()
    options = (["processbench,prmbench"], ["processbench,search"], ["processbench", "--predictions", "file/folder"])
    for given in options:
        done = CLI.invoke(app, ["bench", "model", "--on", *given])
        assert (done.exit_code, isinstance(done.exception, SystemExit)) == (1, True), done.exception


def test_the_published_checkpoint_is_evaluated_by_one_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files come from a stand-in for the Hub, in the published form: without a description of ours."""
    asked = ("--on", "prmbench", "--limit", "15")
    expected = [row["value"] for row in rows_of("model", *asked)]
    (folder / "model" / MODEL_FILE).unlink()
    published, hub = PUBLISHED["pathfinder-prm-7b"], HubServer()
    hub.add(published.name, folder / "model", commit=published.revision)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with hub_server(hub):
        hub.lead_here(monkeypatch, tmp_path / "home")
        rows = rows_of(published.name, *asked)
    assert [row["value"] for row in rows] == expected
    assert {row["note"] for row in rows} == {"15 items, the paper's figure has 6,211"}


def test_a_missing_benchmark_is_named_before_a_model_is_fetched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = HubServer()
    with hub_server(hub):
        hub.lead_here(monkeypatch, tmp_path / "home")
        done = CLI.invoke(app, ["bench", "owner/large", "--on", "prmbench", "--data", str(tmp_path)])
    assert (done.exit_code, hub.requests) == (1, [])
    assert "prmbench: no such folder; --data names" in done.stderr


def test_a_published_prm_gives_the_rules_of_its_authors_and_of_the_benchmark(folder: Path) -> None:
    FOLDERS["skywork"](Path("skywork-folder"))
    rows = rows_of("skywork-folder", "--system", "skywork")
    assert [(row["benchmark"], row["rule"]) for row in rows] == [
        ("processbench", "authors"),
        ("prmbench", "authors"),
        ("prmbench", "benchmark"),
    ]


def answer(prompt: str, seed: int) -> str:
    """A policy that says 7, after a step or two."""
    return "So we add.\n\n" if seed % 3 and "So we add." not in prompt else "The answer is \\boxed{7}."


@pytest.fixture
def problems(folder: Path) -> str:
    write_jsonl(Path("mine.jsonl"), [{"problem": "3 + 4?", "answer": 7}, {"problem": "1 + 1?", "answer": 2}])
    return "mine.jsonl"


def test_search_with_a_policy_behind_a_server(problems: str) -> None:
    asked = ("model", "--on", "search", "--problems", problems, "--candidates", "2", "--subsets")
    with judge_server(JudgeServer(answer)) as server:
        rows = rows_of(*asked, "--policy-url", server.url)
    rules = ["prm@2 repaired", "pass@1", "maj@2", "pass@2"]
    rules += [f"{way} 2: {score}" for way, score in choosing.RULES.values()]
    assert [(row["rule"], row["subset"]) for row in rows] == [
        (rule, part) for rule in rules for part in ("all", "mine")
    ]
    found = {row["rule"]: row["value"] for row in rows if row["subset"] == "all"}
    assert found["prm@2 repaired"] == 50.0
    assert found["pass@2"] <= 50.0
    assert {row["n"] for row in rows} == {2}


def test_no_kept_scores_of_other_rules_are_reused(problems: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules decide the PRM's prompt, also where they do not decide what it scores."""
    asked = ("model", "--on", "search", "--problems", problems, "--candidates", "2")
    folders: list[str] = []

    def interrupted(samples: Any, workers: Any, folder: Path, *_: Any) -> Any:
        folders.append(folder.name)
        raise KeyboardInterrupt

    monkeypatch.setattr("pathfinder.bench.search.score_all", interrupted)
    with judge_server(JudgeServer(answer)) as server:
        for rules in ("repaired", "official", "repaired"):
            assert CLI.invoke(app, ["bench", *asked, "--policy-url", server.url, "--rules", rules]).exit_code != 0
    assert (len(folders), len(set(folders)), folders[0]) == (3, 2, folders[2])


def test_the_server_says_which_policy_it_has(problems: str) -> None:
    """The name makes a figure comparable with the paper's, so it is the server's, never only the command's."""
    theirs = "Qwen/Qwen2.5-7B-Instruct"
    for offered, asked in (("tiny-judge", None), (theirs, None), (theirs, theirs)):
        with judge_server(JudgeServer(answer, model=offered)) as server:
            task = SearchOptions(asked, server.url, Path(problems)).read(Path("unused"), 0)
        assert task[2].repository == offered
    with judge_server(JudgeServer(answer)) as server:
        words = ["model", "--on", "search", "--problems", problems, "--policy-url", server.url, "--policy", theirs]
        done = CLI.invoke(app, ["bench", *words])
    assert done.exit_code == 1
    assert f"serves ['tiny-judge'], expected {theirs}" in done.output
    assert server.calls == 0


def test_search_with_a_policy_in_this_process(world: Path, problems: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"max_tokens": 32, "max_rounds": 3, "solution_tokens": 64}.items():
        monkeypatch.setitem(SETTINGS, name, value)
    sets = {path.name: path.read_text().splitlines()[:2] for path in sorted((world / "search").iterdir())[:2]}
    Path("sets").mkdir()
    for name, lines in sets.items():
        (Path("sets") / name).write_text("\n".join(lines))
    rows = rows_of(
        *("model", "--on", "search", "--problems", "sets", "--candidates", "2", "--limit", "1", "--subsets"),
        *("--policy", str(world / "models/base"), "--rules", "official"),
    )
    assert rows[0]["rule"] == "prm@2 official"
    assert {row["subset"] for row in rows} == {"all", *(name.partition(".")[0] for name in sets)}
    assert {row["n"] for row in rows} == {1, 2}
    notes = {row["rule"]: row["note"] for row in rows if row["subset"] == "all"}
    assert notes["prm@2 official"] == "the paper has no figure of this system"
    assert notes["pass@1"] == "2 items, the paper's figure has 1,242"
    assert notes["best of 2: min"] == "the paper has no such figure"


def test_the_search_has_the_settings_of_the_paper() -> None:
    theirs = yaml.safe_load((ROOT / "infra/profiles/paper.yaml").read_text())["search"]
    differing = {name for name, value in SETTINGS.items() if value != theirs[name]}
    assert differing == {"engine", "base_url", "sets", "width"}, "a beam's width has no effect on a greedy search"
    assert theirs["n"] == 8


def test_what_cannot_be_evaluated_is_named(folder: Path) -> None:
    write_jsonl(Path("mine.jsonl"), [{"problem": "3 + 4?", "answer": 7}])
    absent = (
        (["model", "--on", "search"], "none of the six search sets; name another folder"),
        (["model", "--on", "search", "--problems", "no.jsonl"], "no.jsonl: no such file"),
        (["model", "--on", "search", "--problems", "mine.jsonl"], "--policy Qwen/Qwen2.5-7B-Instruct"),
        (["critic:critic-nobody", "--url", "http://a/v1"], "no such judge"),
        (["nobody"], "a PRM may also be pathfinder/demo_model, models/full, which"),
        (["model", "--data", "nowhere"], "nowhere/processbench: no such folder; --data names the folder"),
    )
    wrong = (
        (["model", "--on", "prmbench,mmlu"], "unknown benchmark 'mmlu'; use processbench, prmbench, search"),
        (["model", "--url", "http://a/v1", "--url", "http://b/v1"], "a PRM is scored behind one server"),
        (["critic:GPT-4o"], "name the server of the model"),
        (["critic:GPT-4o", "--on", "search", "--url", "http://a/v1"], "cannot guide a search"),
        (["model", "--problems", "no.jsonl"], "--problems: only for --on search; leave it out"),
        (["critic:GPT-4o", "--system", "skywork"], "only for a PRM"),
        (["critic:GPT-4o", "--policy-url", "http://a/v1"], "--policy-url: only for --on search"),
        (["model", "--votes", "8"], "--votes: only for a chat model, critic:NAME"),
        (["model", "--system", "skywork", "--url", "http://a/v1"], "skywork is scored in this process"),
        (["model", "--url", "localhost:8000"], "localhost:8000: not a server's address; give one such as http://"),
        (["model", "--on", "search", "--policy-url", "a"], "a: not a server's address"),
        (["model", "--revision", "main"], "a folder has no revision"),
        (["model", "--system", "gpt"], "unknown system 'gpt'"),
    )
    for status, commands in ((1, absent), (2, wrong)):
        for words, message in commands:
            done = CLI.invoke(app, ["bench", *words])
            assert done.exit_code == status, words
            assert re.search(re.escape(message), done.output), done.output


SETS = ["aime24"] * 30 + ["amc23"] * 40 + ["math"] * 500 + ["olympiadbench", "college_math"] * 200
SETS += ["minerva_math"] * 272
SIZES = {"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000}


@pytest.fixture(scope="module")
def processbench() -> ProcessBenchEvaluation:
    """As many items as ProcessBench has."""
    items = [
        ProcessBenchItem(subset, str(at), "p", ("a",), at % 2 - 1, None, "")
        for subset, size in SIZES.items()
        for at in range(size)
    ]
    return ProcessBenchEvaluation(Loaded(items, len(items), {}, {}))


def compared(evaluation: Any, rule: str, paper: Paper, subsets: bool = False) -> Iterator[Row]:
    answers = [item.label if hasattr(item, "label") else Verdicts([True]) for item in evaluation.items]
    return judged_rows(evaluation, rule, answers, paper, subsets)


def test_the_paper_s_figure_is_shown_only_where_the_input_is_the_paper_s(processbench: ProcessBenchEvaluation) -> None:
    paper = Paper(("PathFinder-PRM-7B",), "soundness")
    rows = list(compared(processbench, "soundness", paper, subsets=True))
    assert [(row.subset, row.n, row.paper, row.note) for row in rows] == [
        ("all", 3400, 69.5, ""),
        ("gsm8k", 400, 77.9, ""),
        ("math", 1000, 75.3, ""),
        ("olympiadbench", 1000, 65.0, ""),
        ("omnimath", 1000, 59.7, ""),
    ]
    (row,) = compared(processbench, "quality", paper)
    assert (row.paper, row.note) == (None, "the paper's rule is soundness")
    (row,) = compared(processbench, "soundness", Paper(("PathFinder-PRM-8B",), "soundness"))
    assert (row.paper, row.note) == (None, "the paper has no figure of this system")
    (row,) = compared(processbench, "soundness", replace(paper, differs="another policy"))
    assert (row.paper, row.note) == (None, "another policy")
    fewer = ProcessBenchEvaluation(replace(processbench.loaded, items=processbench.items[1:]))
    (row,) = compared(fewer, "soundness", paper)
    assert (row.paper, row.note) == (None, "3,399 items, the paper's figure has 3,400")
    moved = [replace(processbench.items[0], subset="math"), *processbench.items[1:]]
    (row,) = compared(ProcessBenchEvaluation(replace(processbench.loaded, items=moved)), "soundness", paper)
    assert (row.paper, row.note) == (None, "subsets differ from the paper's")


def test_rows_that_repeat_an_id_are_no_items_of_the_whole_prmbench(mirror: Path) -> None:
    """All rows that do so are of one class, of which the mirror has the whole file."""
    repeated = read_prmbench(mirror / "prmbench").dropped["repeated_id"]
    assert PAPER_SIZES["prmbench"] == {"all": 6216 - repeated}


def test_prmbench_s_and_the_search_s_figures_of_the_paper() -> None:
    items = [PRMBenchItem(f"{at}", CLASSES[at % 9], "p", ("a",), ()) for at in range(6211)]
    evaluation = PRMBenchEvaluation(Loaded(items, len(items), {}, {}))
    (row,) = compared(evaluation, "official", Paper(("PathFinder-PRM-7B",), "official"))
    assert (row.n, row.paper) == (6211, 67.7)
    sets = list(SETS)
    paper = Paper(("PathFinder-PRM-7B",), "prm@8 official")
    rows = list(search_rows("prm@8 official", sets, [1.0] * len(sets), paper, subsets=True))
    assert [row.paper for row in rows] == [48.3, 20.0, 62.5, 78.8, 36.5, 55.0, 36.7]
    (row,) = search_rows("maj@8", sets, [1.0] * len(sets), Paper(("major@8",), "maj@8"), subsets=False)
    assert row.paper == 48.0
    (row,) = search_rows("prm@8 official", sets[1:], [1.0] * (len(sets) - 1), paper, subsets=False)
    assert row.paper is None


@pytest.mark.parametrize(("title", "shown"), [("PathFinder-PRM-7B", 48.3), ("Qwen2.5-Math-PRM-7B", None)])
def test_search_figures_that_the_paper_took_from_another_grading_are_not_shown(title: str, shown: float | None) -> None:
    """The paper marks the policy's figures and those of published PRMs: they are R-PRM's."""
    model: Any = SimpleNamespace(titles=[title])
    policy = _Policy(Path(), "", POLICY_OF_PAPER)
    searched = [{"set": name, "correct": True} for name in SETS]
    best: list[Any] = [{"right": dict.fromkeys(choosing.RULES, True)}] * len(SETS)
    samples: list[Any] = [{"right": [True] * 8, "majority_right": True}] * len(SETS)
    rows = {r.rule: r for r in _rows(model, SearchOptions(rules="official"), policy, searched, best, samples, False)}
    theirs = "the paper's figure is R-PRM's, which grades differently"
    assert (rows["prm@8 official"].paper, rows["prm@8 official"].note) == (shown, "" if shown else theirs)
    assert {rows[rule].note for rule in ("pass@1", "maj@8", "pass@8")} == {theirs}
