"""The world's statistics: leakage of what is shipped is zero but for what is planted, and a leak would be seen."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathfinder.core.io import DataError
from pathfinder.pages.page import to_html, to_markdown
from pathfinder.world import page
from pathfinder.world.formats import write_corpus
from pathfinder.world.page import page_of
from pathfinder.world.problem_sets import WorldConfig
from pathfinder.world.statistics import count, planted, read_story, shared
from pathfinder.world.story import LEVELS, sample_problem

SMALL = WorldConfig(
    phase1_train=20, phase1_test=25, phase2_train=30, phase2_test=10, mistral=30, processbench=20, prmbench=4, search=5
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_corpus(folder, SMALL)
    return folder


@given(st.sampled_from(sorted(LEVELS)), st.integers(0, 10**6))
def test_every_story_is_read_back(level: str, seed: int) -> None:
    problem = sample_problem(random.Random(seed), LEVELS[level])
    found = read_story(problem.text)
    assert (found.text, found.answer, found.values) == (problem.text, problem.answer, problem.values)


@pytest.mark.parametrize(
    "text", ["", "<|im_end|>", "Tom has 5 apples.\nHow many pears does Tom have?", "Score A: 1\n{}"]
)
def test_what_is_no_story_is_an_error(text: str) -> None:
    with pytest.raises(DataError, match="no story of this world"):
        read_story(text)


def test_nothing_leaks_from_the_shipped_files_but_the_planted(world: Path) -> None:
    """Once by the page's own counts, once by plain reading of the raw files."""
    parts, known = count(world), planted(world)
    assert len(known) == 20
    assert set().union(*shared(parts).values()) == known
    assert parts["PRM800K, test"].problems.keys() >= known
    assert {name: part.outside for name, part in parts.items() if part.outside} == {"PRM800K, test": 20}
    assert all(part.unread == 0 for part in parts.values())
    texts = {path: path.read_bytes() for path in world.rglob("*.json*") if path.parent.parent.name != "models"}
    stories: dict[str, set[str]] = {}
    for path, content in texts.items():
        raw = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        if path.name != "world.json":
            found = set(re.findall(r"\w+ has \d+ \w+\.(?:\\n\d\) [^\\]+?\.)+\\nHow many \w+ does \w+ have\?", raw))
            stories[path.name] = {json.loads(f'"{text}"') for text in found}
    assert sum(map(len, stories.values())) > 5000
    names = sorted(stories)
    twice = {
        text
        for place, name in enumerate(names)
        for other in names[place + 1 :]
        for text in stories[name] & stories[other]
    }
    assert twice == known


def test_a_leak_is_seen(made: Path, tmp_path: Path) -> None:
    for path in made.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(made)).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path.relative_to(made)).write_bytes(path.read_bytes())
    before = count(tmp_path)
    known = planted(tmp_path)
    assert set().union(*shared(before).values()) == known
    stolen = next(text for text in before["ProcessBench"].problems if text not in known)
    path = tmp_path / "mistral/mistral.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    row = json.loads(lines[0])
    first = row["conversations"][0]
    first["content"] = stolen + first["content"][first["content"].index("?") + 1 :]
    path.write_bytes(gzip.compress("\n".join([json.dumps(row), *lines[1:]]).encode()))
    after = count(tmp_path)
    assert shared(after)["Mistral", "ProcessBench"] == {stolen}
    assert after["Mistral"].outside == 1
    page, figures = page_of(tmp_path)
    assert figures["shared"]["Mistral, ProcessBench"] == 1
    assert f"{len(known) + 1} stories are in two parts, {len(known)} of them on purpose" in to_markdown(page)


def test_labels_and_faults_are_the_files_own(made: Path) -> None:
    parts = count(made)
    items = [item for path in sorted((made / "processbench").glob("*.json")) for item in json.loads(path.read_text())]
    found = parts["ProcessBench"]
    assert found.items == len(items)
    assert found.labels["first wrong"] == sum(item["label"] >= 0 for item in items)
    assert found.agreeing == found.labels
    assert parts["PRMBench"].agreeing == parts["PRMBench"].labels
    assert found.sound == found.labels["sound"]
    assert 0 < found.misread <= found.tricky_steps <= found.steps
    assert parts["search"].steps == 0


def test_the_page_is_the_same_twice_and_says_where_nothing_is(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = []
    for _ in range(2):
        page.main([str(made)])
        written.append({path.name: path.read_bytes() for path in Path("reports/world").iterdir()})
    assert written[0] == written[1]
    assert set(written[0]) == {"index.html", "statistics.md", "statistics.json"}
    assert b"<script" not in written[0]["index.html"]
    with pytest.raises(DataError, match=r"nowhere.*no such file; name a folder that is shaped as data/"):
        page.main(["nowhere"])


def test_the_difficulty_curve_is_drawn_from_what_was_measured(made: Path) -> None:
    rates = {"pass@1": 0.5, "maj@8": 0.25, "pass@8": 1.0, "mean": 0.5}
    solved = {
        "greedy_answer_accuracy": 0.625,
        "first_faults_at_temperature": {"none": 30, "misreading": 10},
        "by_level": {"all": rates, "gsm8k": rates, "math": rates | {"pass@1": 0.125}},
    }
    page, figures = page_of(made, solved)
    text = to_markdown(page)
    assert "| math | 12.5 | 50.0 | 25.0 | 100.0 |" in text
    assert "Without sampling it solves 62.5 % of them. First fault of the sampled solutions: none 75.0 %" in text
    assert figures["policy"] == solved
    assert to_html(page).count("<svg") == 1


def test_the_documents_page_is_what_the_command_writes(root: Path, world: Path) -> None:
    """All but the difficulty, which asks the policy."""
    written = (root / "docs/world_statistics.md").read_text(encoding="utf-8")
    assert written.startswith(to_markdown(page_of(world)[0]).rstrip())
