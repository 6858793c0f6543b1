"""The report over metrics that the stages' own metric code made; nothing is there, part of it, all of it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from stages.core import accuracy, prmbench, processbench
from stages.core.benchmarks import read_prmbench, read_processbench
from stages.core.io import write_json, write_jsonl
from stages.core.params import Report, load_params
from stages.core.results import VARIANTS, results_table
from stages.report import main

HOSTILE = "<script>alert('x')</script> | `code` <+> {0} \x07 \u202e \\boxed{1} [a](http://evil)"
REPORT = Report(bootstrap_samples=50, confidence=0.95, seed=1)
SKILL = {"full": 0.9, "no_error_categories": 0.8, "no_subtasks": 0.3}


class Shape(HTMLParser):
    """What the page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.bare_headers = 0
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attributes)
        self.bare_headers += tag == "th" and "scope" not in given
        self.addresses += [str(given[name]) for name in ("src", "href", "srcset", "data") if name in given]


def _project(root: Path, profile: str) -> None:
    text = (root / "params.yaml").read_text()
    Path("params.yaml").write_text(
        re.sub(
            r"bootstrap_samples: \d+",
            "bootstrap_samples: 50",
            re.sub(r"(?m)^profile: .*$", f"profile: {profile}", text),
        )
    )


def _benchmarks() -> None:
    rng = random.Random(3)
    for subset in ("gsm8k", "math"):
        items = [
            {
                "id": f"{subset}-{i}",
                "generator": "g",
                "problem": f"{HOSTILE} {i}",
                "steps": [f"{HOSTILE} step {n}" for n in range(3)],
                "final_answer_correct": True,
                "label": rng.randint(-1, 2),
            }
            for i in range(30)
        ]
        write_json(Path(f"artifacts/raw/processbench/{subset}.json"), items)
    rows = [
        {
            "original_question": f"q {i}",
            "modified_question": f"q {i}",
            "original_process": ["a", "b", "c"],
            "modified_process": ["a", "x", "c"],
            "modified_steps": [2],
            "error_steps": [2],
            "reason": "r",
            "idx": f"circular_{i}",
            "question": f"q {i}",
            "classification": "circular",
        }
        for i in range(20)
    ]
    write_jsonl(Path("artifacts/raw/prmbench/circular.jsonl"), rows)


def _steps(count: int, first_wrong: int) -> list[dict[str, float]]:
    return [
        {"math": 0.9, "consistency": 0.8, "reward": 0.1 + place / 100 if place == first_wrong else 0.9}
        for place in range(count)
    ]


def _evaluate(variant: str) -> None:
    rng = random.Random(variant)

    def skilled() -> bool:
        return rng.random() < SKILL[variant]

    items = read_processbench(Path("artifacts/raw/processbench")).items
    said = {(i.subset, i.id): i.label if skilled() else rng.randint(-1, 2) for i in items}
    found = processbench.with_interval(items, said, REPORT)
    metrics = found | {"rules": {"both": found}, "baselines": processbench.baselines(items, REPORT)}
    write_json(Path(f"metrics/processbench/{variant}.json"), metrics)
    write_jsonl(
        Path(f"artifacts/predictions/processbench/{variant}.jsonl"),
        [
            {"subset": i.subset, "id": i.id, "prediction": said[i.subset, i.id], "label": i.label}
            | {"steps": _steps(len(i.steps), said[i.subset, i.id])}
            for i in items
        ],
    )
    typed = read_prmbench(Path("artifacts/raw/prmbench")).items
    labels = {i.idx: [(n + 1 in i.error_steps) != skilled() for n in range(len(i.steps))] for i in typed}
    scores = prmbench.with_interval(typed, labels, REPORT)
    write_json(Path(f"metrics/prmbench/{variant}.json"), scores | {"baselines": prmbench.baselines(typed, REPORT)})
    write_jsonl(
        Path(f"artifacts/predictions/prmbench/{variant}.jsonl"),
        [{"idx": idx, "scores": {"step_level_validity_labels": given}} for idx, given in labels.items()],
    )
    _search(variant, skilled)
    log = [{"step": s, "loss": 1 / s, "learning_rate": 0.1} for s in range(1, 9)]
    write_json(Path(f"metrics/train/{variant}_log.json"), log)
    write_json(Path(f"metrics/train/{variant}.json"), {"train_records": 7, "optimiser_steps": 8, "final_loss": 0.125})


def _search(name: str, right: Callable[[], bool]) -> None:
    rows = [{"set": s, "id": i, "correct": right()} for s in ("math", "amc23") for i in range(25)]
    means, average, bounds = accuracy.by_set([str(r["set"]) for r in rows], [float(r["correct"]) for r in rows], REPORT)
    sets = {s: {"prm@8": mean, "n": 25} for s, mean in means.items()}
    write_json(Path(f"metrics/search/{name}.json"), {"sets": sets, "average": average, "interval": bounds})
    write_jsonl(Path(f"artifacts/predictions/search/{name}.jsonl"), rows)


def _data_stages() -> None:
    for name in ("prepare", "label", "filter", "validate"):
        write_json(
            Path(f"metrics/{name}.json"),
            {"read": 100, "kept": 90, "dropped": {"unrated": 9}, "quarantined": {"null_text": 1}},
        )
    side = {"records": 45, "trees": 9, "problems": 9, "sources": {"prm800k": 40, "rlhflow_mistral": 5}}
    hits = {"items": 10, "exact_problems": 2, "near_problems": 1, "steps": 40, "exact_steps": 4}
    build: dict[str, Any] = {"read": 90, "kept": 90, "dropped": {}, "quarantined": {}, "train": side, "test": side}
    write_json(Path("metrics/build.json"), build | {"overlap": {"processbench/math": hits}})


def _everything() -> None:
    _benchmarks()
    for variant in VARIANTS:
        _evaluate(variant)
    _search("random", lambda: False)
    _data_stages()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_with_nothing_there_every_part_says_missing(folder: Path, root: Path) -> None:
    _project(root, "quickstart")
    main([])
    page = Path("reports/report.html").read_text()
    assert page.count("missing") > 20
    assert "not comparable with the paper" in page
    table = results_table(Path("metrics"))
    assert table.splitlines()[2].split("  ")[0] == "PathFinder-PRM"
    assert "missing" in table


def test_the_page_is_self_contained_accessible_and_takes_no_markup_from_the_data(folder: Path, root: Path) -> None:
    _project(root, "quickstart")
    _everything()
    main([])
    page = Path("reports/report.html").read_text()
    shape = Shape()
    shape.feed(page)
    assert "script" not in shape.tags
    assert {"img", "iframe", "link", "object"} & set(shape.tags) == set()
    assert shape.bare_headers == 0
    assert shape.tags.count("th") > 50
    assert all(address.startswith("#") for address in shape.addresses)
    assert "&lt;script&gt;alert(&#x27;x&#x27;)" in page
    assert "\x07" not in page
    assert "\u202e" not in page
    markdown = Path("reports/report.md").read_text()
    assert "<script>" not in markdown
    assert "[a](http" not in markdown


def test_figures_are_the_metrics_own_and_the_sentences_name_the_winner(folder: Path, root: Path) -> None:
    _project(root, "quickstart")
    _everything()
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())
    first = tables["results"][0]
    assert first["system"] == "PathFinder-PRM"
    for benchmark, key in (("processbench", "mean_f1"), ("prmbench", "overall"), ("search", "average")):
        metrics = json.loads(Path(f"metrics/{benchmark}/full.json").read_text())
        assert first[benchmark]["value"] == metrics[key]
        assert [first[benchmark]["low"], first[benchmark]["high"]] == metrics["interval"]
    said = [one["said"] for one in tables["comparisons"]]
    assert any(
        s.startswith("PathFinder-PRM beats the variant without separate subtasks by") and "ProcessBench" in s
        for s in said
    )
    assert any(s.startswith("PathFinder-PRM beats the random pick by") for s in said)
    assert len(said) == 7
    page = Path("reports/report.html").read_text()
    assert all(s.split(" by ")[0] in page for s in said)
    assert "The books do not balance" not in page
    assert "The paper's tables" not in page


def test_books_that_do_not_balance_are_called_out(folder: Path, root: Path) -> None:
    _project(root, "sample")
    _data_stages()
    write_json(Path("metrics/label.json"), {"read": 100, "kept": 90, "dropped": {"unrated": 8}, "quarantined": {}})
    main([])
    page = Path("reports/report.html").read_text()
    assert "The books do not balance at: label." in page
    assert "the accuracies mean nothing" in page


def test_the_paper_profile_shows_the_paper_s_tables_with_ours_and_the_difference(folder: Path, root: Path) -> None:
    _project(root, "paper")
    _everything()
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables beside ours"]
    assert [re.search(r"tab:\w[\w-]*", t["caption"])[0] for t in tables] == [  # type: ignore[index]
        "tab:process_bench_main",
        "tab:process_bench_full",
        "tab:prmbench_main",
        "tab:greedy-guide-main",
        "tab:data_scale_results",
    ]
    rows = {row[0]: row for row in tables[0]["rows"]}
    assert rows["PathFinder-PRM-7B"][-1] == "69.5"
    mine = json.loads(Path("metrics/processbench/full.json").read_text())["mean_f1"]
    assert rows["reproduced: PathFinder-PRM-7B"][-1] == f"{mine:.1f}"
    after = tables[0]["rows"].index(rows["reproduced: PathFinder-PRM-7B"]) + 1
    assert tables[0]["rows"][after][-1] == f"{mine - 69.5:+.1f}"


def test_the_same_input_gives_the_same_bytes(folder: Path, root: Path) -> None:
    _project(root, "quickstart")
    _everything()
    assert load_params().report.bootstrap_samples == 50

    def written() -> dict[str, bytes]:
        main([])
        return {str(path): path.read_bytes() for path in sorted(Path("reports").rglob("*")) if path.is_file()}

    first = written()
    assert first == written()
    assert len(first) == 6
