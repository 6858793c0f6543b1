"""`pathfinder leaderboard` ranks the results of `pathfinder bench` and compares their predictions in pairs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from pathfinder.bench.board import ALONE
from pathfinder.benchmarks.paper import SIZES
from pathfinder.cli import app
from tests.prm.test_scoring import save_prm
from tests.support.verbs import checked
from tests.test_bench import CLI, KEYS, few_draws, folder, rows_of, run

__all__ = ["few_draws", "folder"]  # fixtures


def test_a_leaderboard_ranks_systems_beside_the_paper_s(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models on the same items: their rows by every rule, the published ones, and the paired differences."""
    (size,) = {row["n"] for row in rows_of("model", "--on", "processbench")}
    for room in ("rows", "board"):
        monkeypatch.setattr(f"pathfinder.bench.{room}.SIZES", SIZES | {"processbench": {"all": size}})
    other, _ = save_prm(Path("other"))
    for weights in other.parameters():
        weights.data.mul_(-2)
    other.save_pretrained("other")
    for model in ("model", "other"):
        run("bench", model, "--predictions", f"{model}-result")
    (file,) = Path("model-result/.eval_results").iterdir()
    (entry,) = parse_eval_result_entries(yaml.safe_load(file.read_text()))
    first = rows_of("model", "--on", "processbench")[0]
    assert (file.name, entry.dataset_id, entry.value) == (
        "processbench.yaml",
        "Qwen/ProcessBench",
        round(first["value"], 2),
    )
    assert (entry.notes or "").startswith("mean F1 in percent by soundness, 95 % interval [")
    words = ("leaderboard", "model-result", "other-result")
    board = checked("leaderboard", run(*words, "--page", "board.html", "--json"))
    mine = [row for row in board["rows"] if row["source"] != "published"]
    assert {(row["system"], row["source"]) for row in mine} == {("model-result", "model"), ("other-result", "other")}
    for row in rows_of("model"):
        assert row in [{key: one[key] for key in KEYS} for one in mine]
    published = {(row["benchmark"], row["system"]): row for row in board["rows"] if row["source"] == "published"}
    ours = published["processbench", "PathFinder-PRM-7B"]
    assert (ours["value"], ours["n"], ours["low"], ours["seconds"]) == (69.5, size, None, None)
    assert {name for name, _ in published} == {"processbench"}, "the other has fewer items than the paper's"
    values = [row["value"] for row in board["rows"] if row["benchmark"] == "processbench"]
    assert values == sorted(values, reverse=True)
    assert [re.findall(r"model-result|other-result", told) for told in board["differences"]] == [
        ["model-result", "other-result"]
    ] * 2
    sound = {
        row["system"]: row["value"] for row in mine if row["rule"] == "soundness" and row["benchmark"] == "processbench"
    }
    (found,) = re.findall(r"by ([\d.]+) points|difference is ([-+\d.]+)", board["differences"][0])
    assert abs(float("".join(found))) == pytest.approx(abs(sound["model-result"] - sound["other-result"]), abs=0.051)
    page = Path("board.html").read_text()
    assert "PathFinder-PRM-7B" in page
    assert "model-result" in page
    assert ALONE in page
    assert run(*words).splitlines()[-1] == ALONE


def board_of(*folders: str, data: str = "artifacts/raw") -> list[str]:
    return list(checked("leaderboard", run("leaderboard", *folders, "--data", data, "--json"))["differences"])


def test_one_folder_holds_one_model_s_results_on_several_benchmarks(folder: Path) -> None:
    """Fails if a benchmark that was evaluated later takes the rows of an earlier one, or another model's, along."""
    whole = rows_of("model", "--predictions", "whole")
    for benchmark in ("prmbench", "processbench", "prmbench"):
        run("bench", "model", "--on", benchmark, "--predictions", "parts")
    found = [json.loads(Path(name, "bench.json").read_text()) for name in ("parts", "whole")]
    assert sorted(map(str, found[0]["rows"])) == sorted(map(str, found[1]["rows"]))
    assert len(whole) == len(found[0]["rows"])
    assert found[0]["seconds"] > 0
    assert len(board_of("parts", "whole")) == 2
    shutil.copytree("model", "other")
    done = CLI.invoke(app, ["bench", "other", "--predictions", "parts"])
    assert done.exit_code == 1
    assert "parts/bench.json: the result of model; name another folder for other" in done.stderr
    trained, _ = save_prm(Path("model"))
    next(trained.parameters()).data.mul_(-2)
    trained.save_pretrained("model")
    done = CLI.invoke(app, ["bench", "model", "--on", "prmbench", "--predictions", "parts"])
    assert done.exit_code == 1
    assert "parts/bench.json: the result of other weights or settings of model; name another folder" in done.stderr


def test_predictions_that_no_row_is_about_are_left_out(folder: Path) -> None:
    """A command that was interrupted leaves predictions without rows."""
    run("bench", "model", "--on", "prmbench", "--predictions", "one")
    run("bench", "model", "--predictions", "two")
    shutil.copy("two/processbench.jsonl", "one")
    assert len(board_of("one", "two")) == 1
    run("bench", "model", "--on", "processbench", "--limit", "1", "--predictions", "few")
    different = "they have predictions for different items."
    assert board_of("few", "two") == [f"few and two are not compared on processbench: {different}"]
    done = CLI.invoke(app, ["grade", "processbench", "two"])
    assert (done.exit_code, "give two/processbench.jsonl" in done.stderr) == (1, True)


def test_predictions_of_other_items_are_named(folder: Path) -> None:
    for name in ("one", "two"):
        run("bench", "model", "--on", "processbench", "--predictions", name)
    shutil.copytree("artifacts/raw", "others")
    for file in Path("others/processbench").iterdir():
        file.write_text(file.read_text().replace('"id": "', '"id": "new-'))
    done = CLI.invoke(app, ["leaderboard", "one", "two", "--data", "others"])
    assert done.exit_code == 1
    assert "one/processbench.jsonl: its items differ from those in --data; name the folder" in done.stderr


@pytest.mark.parametrize(("system", "rule"), [("theirs", "authors"), ("chat", "repaired")])
def test_systems_with_one_question_have_a_difference(folder: Path, system: str, rule: str) -> None:
    """A published PRM's only score and a chat model's search for errors answer the question of our error labels."""
    run("bench", "model", "--predictions", "ours")
    shutil.copytree("ours", system)
    result = json.loads(Path(system, "bench.json").read_text())
    mine = {"processbench": [rule], "prmbench": [rule, "benchmark"]}
    first = {row["benchmark"]: row for row in result["rows"]}
    result["rows"] = [first[name] | {"rule": one} for name, rules in mine.items() for one in rules]
    Path(system, "bench.json").write_text(json.dumps(result))
    told = board_of("ours", system)
    assert len(told) == 2
    assert all("do not differ clearly" in sentence for sentence in told)


@pytest.mark.parametrize("content", [None, "[]", '{"rows": [{}], "seconds": 1, "model": ""}', "{"])
def test_a_folder_without_a_result_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "bench.json").write_text(content)
    done = CLI.invoke(app, ["leaderboard", str(tmp_path)])
    assert done.exit_code == 1
    assert re.search(r"bench.json.*(no result of `pathfinder bench|not valid JSON|; give folders that)", done.stderr), (
        done.stderr
    )
