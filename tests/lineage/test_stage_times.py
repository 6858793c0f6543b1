from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from pathfinder.lineage.stage_times import PAGE, write_stage_times


def test_the_page_has_the_time_of_every_stage_that_ran_and_of_no_other(made: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(made, project)
    shutil.rmtree(project / ".pathfinder/lineage/train@plain")
    write_stage_times(project)
    page = (project / PAGE).read_text()
    rows = re.findall(
        r'<tr><th scope="row"><a href="#[a-z-]+">(.*?)</a></th><td class=n>([\d.,]+)</td><td class=n>([\d,]+)</td>',
        page,
    )
    assert [name for name, *_ in rows] == ["download", "train@full"]
    (record,) = (project / ".pathfinder/lineage/train@full").glob("*.json")
    assert rows[1][1] == f"{json.loads(record.read_text())['times']['seconds']:,.1f}"
    assert "2 stages have run here" in page


def test_an_edited_record_tells_no_time(made: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(made, project)
    (record,) = (project / ".pathfinder/lineage/train@full").glob("*.json")
    record.write_text(record.read_text().replace('"seconds": ', '"seconds": 9'))
    write_stage_times(project)
    assert "train@full" not in (project / PAGE).read_text()
    assert "train@plain" in (project / PAGE).read_text()


def test_what_a_stage_read_leads_to_what_wrote_it(made: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(made, project)
    write_stage_times(project)
    page = (project / PAGE).read_text()
    anchors = set(re.findall(r'id="([^"]+)"', page))
    leads = re.findall(r'href="#([^"]+)"', page)
    assert leads
    assert set(leads) <= anchors
    (record,) = (project / ".pathfinder/lineage/train@full").glob("*.json")
    content = json.loads(record.read_text())
    story = page[page.index('<section id="train-full">') :]
    for path, entry in content["inputs"].items():
        assert f'">{path}</a>' in story, "the download stage wrote it"
        assert entry["sha256"] in story
    for path in content["outputs"]:
        assert f'<th scope="row">{path}</th>' in story
