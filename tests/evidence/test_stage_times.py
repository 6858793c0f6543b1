"""The page about the latest run of every stage."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from evidence.audit.stage_times import PAGE, write_stage_times


def test_the_page_has_the_time_of_each_stage_that_ran_and_no_other(made: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(made, project)
    shutil.rmtree(project / ".pathfinder/lineage/train@plain")
    write_stage_times(project)
    page = (project / PAGE).read_text()
    rows = re.findall(
        r'<tr><th scope="row"><a href="#[a-z-]+">(.*?)</a></th><td>([\d.,]+)</td><td>([\d,]+)</td>',
        page,
    )
    assert [name for name, *_ in rows] == ["download", "train@full"]
    (record,) = (project / ".pathfinder/lineage/train@full").glob("*.json")
    assert rows[1][1] == f"{json.loads(record.read_text())['times']['seconds']:,.1f}"
    assert "2 stages have run on this machine" in page
    assert re.search(r'<td class="t">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</td>', page)


def test_an_edited_record_is_ignored(made: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(made, project)
    (record,) = (project / ".pathfinder/lineage/train@full").glob("*.json")
    record.write_text(record.read_text().replace('"seconds": ', '"seconds": 9'))
    write_stage_times(project)
    assert "train@full" not in (project / PAGE).read_text()
    assert "train@plain" in (project / PAGE).read_text()


def test_inputs_link_to_the_stage_that_wrote_them(made: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(made, project)
    write_stage_times(project)
    page = (project / PAGE).read_text()
    anchors = set(re.findall(r'id="([^"]+)"', page))
    links = re.findall(r'href="#([^"]+)"', page)
    assert links
    assert set(links) <= anchors
    (record,) = (project / ".pathfinder/lineage/train@full").glob("*.json")
    content = json.loads(record.read_text())
    section = page[page.index('<section id="train-full">') :]
    for path, entry in content["inputs"].items():
        assert f'">{path}</a>' in section, "the download stage wrote it"
        assert entry["sha256"] in section
    for path in content["outputs"]:
        assert f'<th scope="row">{path}</th>' in section
