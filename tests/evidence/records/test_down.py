"""``down`` from every kind of selector, now and at a revision."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from extras.cli import lineage as app
from extras.records.down import at_revision, down
from extras.records.forget import forget
from ground.io import DataError, read_json
from pathfinder.data.exclusions import EXCLUSIONS
from pathfinder.reporting.index import schema
from stages import build, report
from tests.evidence.records.conftest import LOCK, index, trained
from tests.support.verbs import checked


def test_down_from_a_record_a_line_and_a_content_id(project: Path) -> None:
    row = trained()
    found = down(row["id"], project)
    assert (found["kind"], found["lines"], found["records"], found["fates"]) == ("record", 1, 1, {"kept": 1})
    steps = read_json(Path("metrics/train/full.json"))["optimiser_steps"]
    run = {"run": "full", "model": "models/full", "records": 1, "steps": 2, "of_steps": steps}
    assert found["runs"] == [run]
    assert {mix["mix"] for mix in found["mixes"]} == set(row["mixes"])
    figure = {"figure": "reports/tables.json#/results/0/processbench", "runs": ["full"], "through": "training"}
    assert found["figures"] == [figure]
    line = down(row["line_id"], project)
    content = index("lines").filter(id=row["line_id"])["content"][0]
    by_content = down(content, project)
    assert {key: line[key] for key in line if key not in ("selector", "kind")} == {
        key: by_content[key] for key in by_content if key not in ("selector", "kind")
    }
    single = down(f"{content}-{row['position']}-{row['completion']}", project)
    assert single["runs"] == found["runs"]


@pytest.mark.parametrize("kind, column", [("licence", "licence"), ("rater", "rater"), ("source", "source")])
def test_the_totals_are_those_of_their_lines(project: Path, kind: str, column: str) -> None:
    for value in index("lines")[column].drop_nulls().unique():
        found = down(f"{kind}:{value}", project)
        lines = index("lines").filter(pl.col(column) == value)
        steps = index("steps").filter(pl.col("line_id").is_in(lines["id"].implode()))
        assert (found["lines"], found["records"]) == (len(lines), len(steps))
        assert found["fates"] == dict(steps.group_by(schema.fate().alias("fate")).len().sort("fate").iter_rows())
        used = pl.read_parquet(schema.INDEX / schema.run_file("full")).filter(
            pl.col("id").is_in(steps["id"].implode()), pl.col("tokens").is_null()
        )
        counts = [(run["records"], run["steps"]) for run in found["runs"]]
        assert counts == ([(len(used), used["steps"].explode().n_unique())] if len(used) else [])
    assert down("source:mistral", project)["lines"] == 8


def test_a_record_that_no_run_used_supports_no_model(project: Path) -> None:
    for reason in ("limit", "too_long", "null_text", "disagrees"):
        dropped = index("steps").filter(reason=reason).row(0, named=True)
        found = down(dropped["id"], project)
        assert (found["runs"], found["figures"]) == ([], []), reason
        assert found["fates"] == {f"{dropped['stage']}: {reason}": 1}
    held = index("steps").filter(pl.col("stage").is_null(), side="test").row(0, named=True)
    assert (down(held["id"], project)["held_out"], down(held["id"], project)["runs"]) == (1, [])
    unread = index("lines").filter(reason="missing_field")["id"][0]
    assert down(unread, project)["fates"] == {"prepare: missing_field": 1}


@pytest.mark.parametrize(
    "selector, says",
    [
        ("nothing", "names no records; expected the id of a record"),
        ("prm800k-00000000-1", "the index has no such line"),
        ("licence:GPL", "no such licence; it has Apache-2.0, MIT"),
        ("rater:nobody", "no such rater; it has rater-0, rater-1, rater-2"),
    ],
)
def test_an_unknown_selector_is_refused_in_one_line(project: Path, selector: str, says: str) -> None:
    done = CliRunner().invoke(app, ["down", selector])
    assert isinstance(done.exception, DataError)
    assert says in str(done.exception)


def test_a_record_that_the_line_lacks_and_a_missing_index_are_refused(project: Path) -> None:
    with pytest.raises(DataError, match="the line has no such record"):
        down(f"{trained()['line_id']}-99-0", project)
    shutil.rmtree(schema.INDEX)
    with pytest.raises(DataError, match="no such file; make the index"):
        down("rater:rater-1", project)


def test_a_run_that_was_not_repeated_still_rests_on_what_it_used(project: Path) -> None:
    row = trained("rater-1")
    forget([row["id"], "rater:rater-0"], project)
    build.main([])
    report.main(["index"])
    assert down(row["id"], project)["fates"] == {"build: excluded": 1}
    assert [run["records"] for run in down(row["id"], project)["runs"]] == [1]
    assert down("rater:rater-0", project)["runs"] != []


def test_the_verbs_print_text_and_json(project: Path) -> None:
    row, cli = trained(), CliRunner()
    text = cli.invoke(app, ["down", row["id"]])
    assert text.exit_code == 0, text.output
    assert f"{row['id']}: 1 record of 1 upstream line" in text.output
    assert "models/full" in text.output
    assert checked("lineage down", cli.invoke(app, ["down", row["id"], "--json"]).output) == down(row["id"], project)
    dry = cli.invoke(app, ["forget", row["id"], "--dry-run"])
    assert "would be added to exclusions.jsonl" in dry.output
    assert "models to retrain: models/full" in dry.output
    found = checked("lineage forget", cli.invoke(app, ["forget", row["id"], "--dry-run", "--json"]).output)
    assert found["retrain"] == ["models/full"]
    assert EXCLUSIONS.read_text() == ""
    rows = checked("lineage items", cli.invoke(app, ["items", "processbench", "full", "--json"]).output)
    assert rows[0]["item"] == "gsm8k-0"


def test_down_at_a_revision_reads_the_cache(project: Path) -> None:
    """The index of a commit is in DVC's cache; the project's files may be others, or be missing."""
    before = down("rater:rater-1", project)
    cache = Path(".dvc/cache/files/md5")
    listing, md5s = [], {}
    for path in [*sorted(schema.INDEX.rglob("*.parquet")), Path("reports/tables.json")]:
        md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        (cache / md5[:2]).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, cache / md5[:2] / md5[2:])
        if path.is_relative_to(schema.INDEX):
            listing.append({"md5": md5, "relpath": path.relative_to(schema.INDEX).as_posix()})
        md5s[path.as_posix()] = md5
    content = json.dumps(listing).encode()
    folder = hashlib.md5(content, usedforsecurity=False).hexdigest()
    (cache / folder[:2]).mkdir(exist_ok=True)
    (cache / folder[:2] / f"{folder[2:]}.dir").write_bytes(content)
    empty = "{path: artifacts/index, md5: d41d8cd98f00b204e9800998ecf8427e}"
    assert empty in LOCK
    made = f"{{path: artifacts/index, md5: {folder}.dir}}, "
    made += f"{{path: reports/tables.json, md5: {md5s['reports/tables.json']}}}"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for lock in (LOCK.replace(empty, made), "schema: '2.0'\nstages: {}\n"):
        Path("dvc.lock").write_text(lock)
        subprocess.run([*git, "add", "dvc.lock"], check=True)
        subprocess.run([*git, "commit", "-qm", "run"], check=True)
    shutil.rmtree("artifacts/index")
    done = CliRunner().invoke(app, ["down", "rater:rater-1", "--at", "HEAD~1", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == before
    items = CliRunner().invoke(app, ["items", "sample", "policy", "--at", "HEAD~1", "--json"])
    assert json.loads(items.output)[0]["benchmark"] == "sample"
    with pytest.raises(DataError, match=r"HEAD:dvc.lock: has no artifacts/index"), at_revision(project, "HEAD"):
        pass
    md5 = md5s["artifacts/index/steps.parquet"]
    (cache / md5[:2] / md5[2:]).unlink()
    says = rf"artifacts/index/steps.parquet: no store of this machine has its bytes \(md5 {md5}\)"
    with pytest.raises(DataError, match=says), at_revision(project, "HEAD~1"):
        pass
