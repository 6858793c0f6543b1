"""Every figure of the report names the files and places that it was made from, and can be made from them again."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from evidence.audit.pointers import origins_of, recomputed, shows, value_at
from ground.io import read_json, sha256_file
from pathfinder.pages.origins import Origin, origin_of
from pathfinder.reporting.cells import figures
from pathfinder.reporting.origins import COPY, PAPER, in_percent, made, placed
from stages.report import main
from tests.support.report_inputs import SEEDED, write_everything, write_project

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A project whose report was written, with several seeds, mixes and a published PRM."""
    folder = tmp_path_factory.mktemp("reported")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project(root, "seeds", SEEDED)
        write_everything(SEEDED)
        main([])
    return folder


def content_of(folder: Path, name: str) -> Any:
    if name == PAPER:
        return tomllib.loads((ROOT / name).read_text())
    return read_json(folder / name) if name.endswith(".json") else (folder / name).read_bytes()


def test_a_number_knows_its_place_and_keeps_it_through_a_mean_and_a_cell() -> None:
    value = {"a/b": {"~": [1, 2.5]}, "is": True, "n": None, "t": "x"}
    content = placed(value, "m.json")
    one, two = content["a/b"]["~"]
    assert (one, two) == (1, 2.5)
    assert origin_of(one) == Origin(COPY, ("m.json#/a~1b/~0/0",))
    assert content["is"] is True
    mean = made("mean", (one + two) / 2, [one, two])
    assert origin_of(in_percent(mean)) == Origin("mean, times 100", ("m.json#/a~1b/~0/0", "m.json#/a~1b/~0/1"))
    assert [(text, origin_of(text) is not None) for text in figures([mean, None, 3.0])] == [
        ("1.8", True),
        ("–", False),
        ("3.0", False),
    ]
    assert json.dumps(content, indent=1) == json.dumps(value, indent=1)


def test_every_figure_in_a_table_has_an_origin(reported: Path) -> None:
    tables = read_json(reported / "reports/tables.json")
    without, cells = [], 0
    for title, found in tables["tables"].items():
        for table in found:
            for row, origins in zip(table["rows"], table["origins"]["rows"], strict=True):
                for cell, origin in list(zip(row, origins, strict=True))[1:]:
                    cells += 1
                    if re.search(r"\d", cell) and origin is None:
                        without.append((title, row[0], cell))
    assert cells > 900
    assert {cell for _, _, cell in without} <= {"PRM800K"}, "the name of a source is no figure"


def test_every_figure_can_be_made_again_from_the_places_that_it_names(reported: Path) -> None:
    tables = read_json(reported / "reports/tables.json")
    made_again = Counter[str]()
    for pointer, origin in origins_of(tables).items():
        printed = value_at(tables, pointer, "tables.json")
        values = []
        for place in [*origin["of"], *origin.get("interval", ())]:
            name, mark, inner = place.partition("#")
            content = content_of(reported, name)
            values += [value_at(content, inner, name)] if mark and place in origin["of"] else []
        if len(values) < len(origin["of"]):
            continue  # made of whole files of predictions
        if (expected := recomputed(origin["how"], values)) is not None:
            figure = printed["value"] if isinstance(printed, dict) else printed
            assert all(shows(figure, one) for one in expected), (pointer, printed, origin, expected)
            made_again[origin["how"]] += 1
    assert made_again["copy"] > 500
    assert made_again["mean"] > 50
    assert made_again["sum"] > 5
    assert {"mean, times 100", "copies"} & made_again.keys()


def test_a_mean_over_seeds_names_the_predictions_of_every_seed(reported: Path) -> None:
    tables = read_json(reported / "reports/tables.json")
    line = tables["results"][0]
    assert line["system"] == "PathFinder-PRM (mean of 2 seeds)"
    runs = [f"artifacts/predictions/processbench/{run}.jsonl" for run in ("full", "full-s2")]
    items = [f"artifacts/raw/processbench/{subset}.json" for subset in ("gsm8k", "math")]
    assert sorted(line["origins"]["processbench"]["of"]) == sorted(runs + items)
    assert line["origins"]["processbench"]["how"] == "mean over 2 seeds"
    lone = tables["results"][2]["origins"]["prmbench"]
    assert "artifacts/predictions/prmbench/autoregressive.jsonl" in lone["of"]
    assert "artifacts/predictions/prmbench/full-s2.jsonl" in lone["interval"], "the variance between seeds is theirs"
    rows = tables["tables"]["ProcessBench"][0]["origins"]["rows"]
    assert rows[0][5] == {
        "how": "mean",
        "of": [f"metrics/processbench/{run}.json#/readings/soundness/mean_f1" for run in ("full", "full-s2")],
    }


def test_the_digests_of_the_files_are_in_the_page_and_in_the_tables(reported: Path) -> None:
    tables = read_json(reported / "reports/tables.json")
    named = {place.partition("#")[0] for origin in origins_of(tables).values() for place in origin["of"]}
    assert named <= tables["files"].keys()
    for name, about in tables["files"].items():
        path = ROOT / name if name == PAPER else reported / name
        assert (about["sha256"], about["bytes"]) == (sha256_file(path), path.stat().st_size)
    markdown = (reported / "reports/report.md").read_text()
    assert all(about["sha256"] in markdown for about in tables["files"].values())


class Places(HTMLParser):
    """The addresses and names of a page, and its cells with their titles."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.names: set[str] = set()
        self.titles: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.addresses += [str(given[name]) for name in ("href", "src") if name in given]
        self.names |= {str(given["id"])} if "id" in given else set()
        self.titles += [str(given["title"])] if "title" in given else []


def test_every_link_of_the_page_leads_into_the_page(reported: Path) -> None:
    """So it works wherever the file is: mailed, moved or in a clone."""
    page = Places()
    page.feed((reported / "reports/report.html").read_text())
    assert len(page.addresses) > 50
    assert [address for address in page.addresses if address[:1] != "#" or address[1:] not in page.names] == []
    assert len(page.titles) > 900
    numbers = {name: f"s{place}" for place, name in enumerate(read_json(reported / "reports/tables.json")["files"], 1)}
    assert {*numbers.values()} <= page.names, "every number leads to its file"
    runs = "+".join(numbers[f"metrics/processbench/{run}.json"].upper() for run in ("full", "full-s2"))
    assert f"mean of {runs}/readings/soundness/mean_f1" in page.titles
