"""The content of the lineage page, hostile text on it, and the page in a real browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.formats.lineage import Lineage
from evidence.formats.page.render import PAGE, render, write_page
from ground.io import DataError, write_json
from tests.evidence.formats.conftest import HOSTILE
from tests.pages.test_browser import CHROMIUM, NARROWEST, PROBE, dom

FIGURE = "reports/tables.json#/results/0/loss"


@pytest.fixture(scope="module")
def page(study: Path) -> str:
    return render(study)


def test_a_stage_may_have_the_name_of_the_figures(study: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(study, tmp_path / "project", symlinks=True))
    for name in ("dvc.yaml", "dvc.lock"):
        text = (project / name).read_text()
        (project / name).write_text(text.replace("  report:\n", "  figure:\n"))
    found = rows(render(project))
    assert ">figure<" in found["figure"]
    assert 'data-up="figure"' in found["figure-2"]


def rows(page: str) -> dict[str, str]:
    """The HTML of every row by its address."""
    parts = re.split(r'<li id="([^"]+)" class="(?:figure|stage|plan|source)"', page)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_row_holds_what_the_record_says(page: str, lineage: Lineage) -> None:
    found = rows(page)
    assert list(found) == ["figure", "report", "export", "train", "download", "source-corpus", "data-dvc"]
    for run in lineage.runs:
        row = found[run.name.partition("@")[0]]
        made = [out.sha256 for out in run.outputs.values()]
        read = [dep.sha256 for dep in run.inputs.values()]
        code = [each.sha256 for each in run.rooms.values()]
        assert all(digest in row for digest in [run.record.digest, *run.key_ids, *made, *read, *code])
        assert run.content["environment"]["cpu"] in row
    assert "2 runs" in found["train"]
    assert "5 of 5 stages have a record here; they took" in page
    assert "&#34;rate&#34;: 0.5" in found["train"] or "&quot;rate&quot;: 0.5" in found["train"]
    assert 'from <a href="#train">train</a>' in found["report"]
    assert 'from <a href="#source-corpus">corpus</a>' in found["train"]


def test_lines_lead_from_the_figure_to_the_source(page: str) -> None:
    up = dict(re.findall(r'<li id="([^"]+)" class="[a-z]+" data-up="([^"]*)">', page))
    assert up == {
        "figure": "report",
        "report": "train",
        "export": "download",
        "train": "download",
        "download": "source-corpus",
        "source-corpus": "data-dvc",
        "data-dvc": "",
    }


def test_a_figure_shows_only_what_it_rests_on(study: Path) -> None:
    page = render(study, FIGURE)
    found = rows(page)
    assert list(found) == ["figure", "report", "train", "download", "source-corpus", "data-dvc"]
    assert "train@plain" not in found["train"]
    assert '<a href="#train">metrics/<wbr>train/<wbr>full.json#/<wbr>loss</a>' in found["figure"]
    assert "0.50 [0.10, 0.90]" in found["figure"]


def test_signatures_are_told_apart(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copytree(study, tmp_path / "copy"))
    (signed,) = (copy / ".pathfinder/lineage/train@full").glob("*.dsse")
    (other,) = (copy / ".pathfinder/lineage/train@plain").glob("*.dsse")
    (gone,) = (copy / ".pathfinder/lineage/report").glob("*.dsse")
    other_text = other.read_text(encoding="utf-8")
    gone.unlink()
    signed.write_text(other_text, encoding="utf-8")
    found = rows(render(copy))
    assert '<span class="badge bad">the signature is wrong</span>' in found["train"]
    assert '<span class="badge plain">not signed</span>' in found["report"]
    assert '<span class="badge good">signed</span>' in found["download"]
    monkeypatch.setenv("PATHFINDER_SIGNING_KEY", str(tmp_path / "none.pem"))
    assert "signed by a key that is not trusted here" in rows(render(copy))["download"]


def test_every_run_writes_the_page_and_ignores_an_edited_record(study: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(study, tmp_path / "copy"))
    (record,) = (copy / ".pathfinder/lineage/train@full").glob("*.json")
    (intact,) = (copy / ".pathfinder/lineage/download").glob("*.json")
    record.write_text(record.read_text().replace('"seconds": ', '"seconds": 9'))
    write_page(copy)
    page = (copy / PAGE).read_text(encoding="utf-8")
    found, times = rows(page), json.loads(intact.read_text())["times"]
    assert "4 of 5 stages have a record here" in page
    assert "1 of 2: no record here" in found["train"]
    assert (
        f"{times['start']}, {times['seconds']:,.1f} s, {times['peak_rss_bytes'] / 2**20:,.0f} MiB" in found["download"]
    )
    shutil.rmtree(copy / ".pathfinder/lineage")
    write_page(copy)
    assert "0 of 5 stages have a record here" in (copy / PAGE).read_text(encoding="utf-8")


def test_hostile_text_stays_text(page: str) -> None:
    assert "<img" not in page
    assert page.count("<script") == page.count("</script") == 1
    assert "&lt;img src=x onerror=document.title=&#39;broken&#39;&gt;" in page
    assert HOSTILE not in page


def test_the_page_is_self_contained(page: str) -> None:
    assert re.findall(r'(?:src|href|action)="(?!#)', page) == []
    assert "url(" not in page
    assert "@import" not in page
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


def test_the_same_records_give_the_same_page(page: str, study: Path) -> None:
    assert render(study) == page
    assert str(study) not in page


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("reports/tables.json#/results/7", "reports/tables.json#/results: has no .7."),
        ("models/full#/x", "models/full: no such JSON file; name a figure by its place in one"),
        ("nowhere", "not an output in dvc.lock"),
    ],
)
def test_a_wrong_target_is_named(target: str, message: str, study: Path) -> None:
    with pytest.raises(DataError, match=message):
        render(study, target)


def test_a_report_of_another_form_has_no_figures(study: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(study, tmp_path / "copy"))
    for content in ({"results": "none"}, [1], {"results": [3, {"loss": {"value": "high"}}]}):
        write_json(copy / "reports/tables.json", content)
        assert "figure" not in rows(render(copy))


def test_the_verb_writes_the_page(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    monkeypatch.chdir(study)
    file = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["render", "--output", str(file), "--json"])
    assert json.loads(done.stdout) == {"page": str(file), "bytes": len(page.encode())}
    assert file.read_text(encoding="utf-8") == page


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not on the path")
OPEN = "for (const each of document.querySelectorAll('details')) each.open = true;"


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_overflows_even_with_every_row_open(tmp_path: Path, page: str, width: int) -> None:
    long = page.replace("<summary>train@", "<summary>processbench@no_error_categories_")
    bare = re.sub(r"<meta http-equiv=.*?>", "", long).replace("</body>", PROBE.replace("<script>", f"<script>{OPEN}"))
    narrow = f"<style>html{{width:{width}px}}</style></head>"
    found = re.search(
        r"<title>(\d+) (\d+)</title>", dom(tmp_path, bare.replace("</head>", narrow), max(width, NARROWEST))
    )
    assert found
    assert int(found[1]) <= int(found[2]) == width


@pytest.mark.browser
@needs_browser
def test_the_script_runs_under_the_policy_and_no_other_does(tmp_path: Path, page: str) -> None:
    """The address of a row opens it, and lights up its way and nothing else; injected scripts do not run."""
    file = tmp_path / "page.html"
    file.write_text(page.replace("</body>", "<script>document.title='broken'</script></body>"), encoding="utf-8")
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--dump-dom", f"{file.as_uri()}#train"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "<title>Lineage of the pipeline</title>" in shown
    states = dict(re.findall(r'<li id="([^"]+)" class="([a-z ]+)"', shown))
    lit = [name for name, state in states.items() if state.endswith(" on")]
    assert lit == ["figure", "report", "train", "download", "source-corpus", "data-dvc"]
    assert re.search(r'<li id="train"[^>]*>\s*<details open="">', shown)
    assert not re.search(r'<li id="download"[^>]*>\s*<details open="">', shown)
