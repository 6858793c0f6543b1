"""The world's statistics: only planted stories leak from the shipped files, and any other leak is found."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

from pathfinder.pages.page import to_markdown
from world.page import page_of
from world.statistics import count, planted, shared


def test_only_planted_stories_leak_from_the_shipped_files(world: Path) -> None:
    """Checked with the page's counts, and with a plain search of the raw files."""
    parts, known = count(world), planted(world)
    assert len(known) == 20
    assert set().union(*shared(parts).values()) == known
    assert parts["PRM800K, test"].problems.keys() >= known
    outside = {name: part.stories_of_another_split for name, part in parts.items()}
    assert outside == dict.fromkeys(parts, 0) | {"PRM800K, test": 20}
    assert all(part.outside_the_grammar == 0 for part in parts.values())
    texts = {path: path.read_bytes() for path in world.rglob("*.json*") if path.parent.parent.name != "models"}
    stories: dict[str, set[str]] = {}
    for path, content in texts.items():
        raw = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        if path.name != "world.json":
            told = r"\w+ has \d+ \w+\.(?:\\n\d\) [^\\]+?\.)+\\nHow many \w+ does \w+ have\?"
            found = set(re.findall(rf"{told}|What is \d+(?: [+-] \d+)+\?", raw))
            stories[path.name] = {json.loads(f'"{text}"') for text in found}
    assert sum(map(len, stories.values())) > 3800
    names = sorted(stories)
    twice = {
        text
        for place, name in enumerate(names)
        for other in names[place + 1 :]
        for text in stories[name] & stories[other]
    }
    assert twice == known


def test_a_leak_is_found(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path, dirs_exist_ok=True)
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
    assert after["Mistral"].stories_of_another_split == 1
    page, figures = page_of(tmp_path)
    assert figures["shared"]["Mistral, ProcessBench"] == 1
    summary = f"{len(known) + 1} stories are in two parts. {len(known)} of them are among the {len(known)}"
    assert summary in to_markdown(page)


def test_labels_and_faults_equal_those_of_the_files(corpus: Path) -> None:
    parts = count(corpus)
    items = [item for path in sorted((corpus / "processbench").glob("*.json")) for item in json.loads(path.read_text())]
    found = parts["ProcessBench"]
    assert found.items == len(items)
    assert found.labels["first wrong"] == sum(item["label"] >= 0 for item in items)
    assert found.labels_as_the_oracle == found.labels
    assert parts["PRMBench"].labels_as_the_oracle == parts["PRMBench"].labels
    assert found.sound == found.labels["sound"]
    assert 0 < found.misread <= found.steps_about_tricky_events <= found.steps
    assert parts["search"].steps == 0
