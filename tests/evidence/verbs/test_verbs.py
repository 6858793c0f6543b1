"""``list``, ``view``, ``find``, ``up`` and ``check --all-commits`` on a project with two committed runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.dvc.history import read_lock
from evidence.dvc.stores import EVIDENCE
from evidence.record.ledger import SIGNED
from evidence.record.reading import PUBLISHED, known_records, read_records
from evidence.record.signing import KEY_FILE, own_key, public_pem
from evidence.verbs import ways
from evidence.verbs.every_commit import check_all_commits
from evidence.verbs.finding import find
from evidence.verbs.views import rows_of, view
from evidence.verbs.ways import way_back, way_forward
from ground.io import DataError, sha256_file, write_json
from tests.evidence import small as small_project
from tests.evidence.verbs.conftest import git

cli = CliRunner()
VERBS = ("list", "view", "up", "down", "find", "diff", "check", "replay")


def test_stages_and_outs_are_those_of_the_lock(twice: Path) -> None:
    rows = {row["stage"]: row for row in rows_of("stages", twice)}
    assert rows["train@full"]["records"] == 2
    assert rows["train@full"]["record"] == read_records(twice, "train@full")[0].digest
    assert rows["data.dvc"]["command"] is None
    old = {row["stage"]: row for row in rows_of("stages", twice, "HEAD~2")}
    assert old["train@full"]["record"] == read_records(twice, "train@full")[1].digest
    outs = {row["out"]: row for row in rows_of("outs", twice)}
    assert outs["models/full"]["md5"].endswith(".dir")
    assert outs["models/full"]["md5"] != {r["out"]: r for r in rows_of("outs", twice, "HEAD~2")}["models/full"]["md5"]


def test_records_say_whether_they_made_the_lock(twice: Path) -> None:
    rows = [row for row in rows_of("records", twice) if row["stage"] == "train@plain"]
    assert [row["made what dvc.lock has"] for row in rows] == [True, False]
    old = [row for row in rows_of("records", twice, "HEAD~2") if row["stage"] == "train@plain"]
    assert [row["made what dvc.lock has"] for row in old] == [False, True]


def test_runs_are_those_of_the_parameters(project: Path) -> None:
    with (project / "params.yaml").open("a") as file:
        file.write("runs: [full, other]\n")
    full, other = rows_of("runs", project)
    assert (full["stage"], full["used by"], other["md5"]) == ("train@full", [], None)


def test_a_stage_an_out_a_file_in_it_a_record_and_a_value_can_be_viewed(twice: Path) -> None:
    stage = view("train@full@HEAD~2", twice)
    assert stage["params"]["train"]["rate"] == 0.5
    packages = {"stages/__init__.py", "pathfinder/__init__.py"}
    assert set(stage["code"]) == {"infra/locks", "ground", "pathfinder/mixing", "stages/train.py"} | packages
    out = view("models/full", twice)
    assert (out["made by"], out["in the project"], out["in a store"]) == ("train@full", True, True)
    assert out["files"].keys() == {"weights.txt"}
    inner = view("models/full/weights.txt@HEAD~2", twice)
    assert inner["md5"] != view("models/full/weights.txt", twice)["md5"]
    record = read_records(twice, "train@full")[0]
    assert view(record.digest[:10], twice)["params"] == record.content["params"]
    assert view("metrics/train/full.json@HEAD~2#/loss", twice) == 0.5
    assert view("artifacts/raw/corpus", twice)["read by"] == ["train@full", "train@plain"]
    assert view("params.yaml", twice)["tracked by"] == view("params.yaml@HEAD~2", twice)["tracked by"] == "git"


@pytest.mark.parametrize(
    "name", ["absent", "models/other", "models/full/absent.txt", "metrics/train/full.json#/absent"]
)
def test_the_view_of_nothing_is_one_line(twice: Path, name: str) -> None:
    with pytest.raises(DataError) as error:
        view(name, twice)
    assert len(str(error.value).splitlines()) == 1


def test_a_record_without_facts_about_its_environment_has_a_way_back(project: Path) -> None:
    (record,) = read_records(project, "train@full")
    bare = replace(record, content=record.content | {"environment": {}})
    assert "ran on    Python None, torch None, None, None" in ways._record_lines(bare)


def test_a_digest_that_begins_several_records_is_refused(project: Path) -> None:
    (record,) = read_records(project, "train@full")
    shutil.copyfile(record.path, record.path.with_name(f"{record.digest[:20]}{'0' * 44}.json"))
    with pytest.raises(DataError, match="2 records begin with it"):
        view(record.digest[:12], project)


def test_a_damaged_record_of_a_remote_is_named_by_the_view_and_is_no_obstacle_to_find(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = read_records(project, "train@full")
    monkeypatch.chdir(project)
    with (project / ".dvc/config").open("a") as config:
        config.write(f"['remote \"near\"']\n    url = {tmp_path}/near\n")
    remote = tmp_path / "near" / PUBLISHED / "train@full"
    remote.mkdir(parents=True)
    (remote / f"{'0' * 64}.json").write_text("{}")
    (remote / f"{'1' * 64}.json").write_bytes(record.path.read_bytes())
    record.path.with_suffix(SIGNED).write_text("{}")
    (project / "notes.txt").write_text("mine\n")
    assert view("notes.txt", Path()) == {"path": "notes.txt", "tracked by": None, "bytes": 5}
    for digest, problem in (("0" * 8, f"{'0' * 64}.json: "), ("1" * 8, f"train@full/{'1' * 64}.json: was edited; run")):
        with pytest.raises(DataError, match=f"^{problem}"):
            view(digest, Path())
    assert {place["stage"] for place in find("host=*", Path())["places"]} >= {"train@full", "train@plain"}


def kinds(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(place["kind"], place["role"], place["path"]) for place in found["places"]}


def test_bytes_are_found_in_records_locks_of_every_commit_and_stores(twice: Path, tmp_path: Path) -> None:
    copy = tmp_path / "from a mail.txt"
    copy.write_bytes((twice / "models/full/weights.txt").read_bytes())
    found = find(str(copy), twice)
    assert ("record", "output", "models/full/weights.txt") in kinds(found)
    assert ("store", "file of a folder", "models/full/weights.txt") in kinds(found)
    assert sha256_file(copy) in found["digests"]
    old = {row["out"]: row for row in rows_of("outs", twice, "HEAD~2")}["models/full"]["md5"]
    places = find(old[:12], twice)["places"]
    first = git(twice, "rev-parse", "--short=12", "HEAD~2").strip()
    assert {place["where"] for place in places if place["kind"] == "lock"} == {first}
    assert {place["stage"] for place in places if place["kind"] == "record"} == {"train@full"}


def test_bytes_are_found_in_the_files_of_dvc_of_every_commit(small: Path) -> None:
    def commit(file: str, old: str, new: str) -> str:
        (small / file).write_text((small / file).read_text().replace(old, new))
        git(small, "add", ".")
        git(small, "commit", "-qm", file)
        return git(small, "rev-parse", "--short=12", "HEAD").strip()

    git(small, "init", "-qb", "main")
    md5, merged = read_lock(small)["data.dvc"].outs["data"], read_lock(small)["world"].outs[small_project.PRETRAINED]
    first = commit("params.yaml", "0.5", "0.5")
    git(small, "checkout", "-qb", "side")
    side = commit("infra/pretraining/dvc.lock", merged, "b" * 32)
    git(small, "checkout", "-q", "main")
    commit("data.dvc", md5, "c" * 32)
    git(small, "merge", "-qs", "ours", "side", "-m", "merge")
    git(small, "branch", "-D", "side")
    commit("dvc.lock", "schema", "<<<<<<< HEAD\nschema")
    commit("dvc.lock", "<<<<<<< HEAD\n", "")
    for digest, commits in ((md5, {first, "now"}), ("b" * 32, {side})):
        assert {place["where"] for place in find(digest, small)["places"] if place["kind"] == "lock"} == commits


def test_only_a_star_stands_for_any_text_in_a_fact(small: Path) -> None:
    environment = {"packages": {"ruamel-yaml": "0.19"}}
    small_project.add_record(small, "train", params={"sizes": [1, 2], "note": "a?\nb"}, environment=environment)
    for fact in ("sizes=[1, 2]", "sizes=[*", "note=a?*", "note=*b", "package=Ruamel.YAML", "package=ruamel_yaml==0.19"):
        assert len(find(fact, small)["places"]) == 1, fact
    for fact in ("sizes=[12]", "sizes=?1, 2]", "note=a", "package=ruamel.yaml==0.1?", "package=ruamel"):
        assert find(fact, small)["places"] == [], fact


def test_a_sha256_and_an_md5_find_the_same_places(twice: Path) -> None:
    entry = read_records(twice, "train@full")[0].content["outputs"]["metrics/train/full.json"]
    assert kinds(find(entry["sha256"], twice)) == kinds(find(entry["md5"][:16], twice))
    record = read_records(twice, "train@full")[0]
    assert ("record", "the record itself", record.path.name) in kinds(find(record.digest, twice))


def test_a_tracked_file_is_found_in_git_and_unknown_bytes_nowhere(
    twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ("git", "tracked file", "dvc.yaml") in kinds(find(str(twice / "dvc.yaml"), twice))
    unknown = tmp_path / "unknown"
    unknown.write_text("unknown")
    assert find(str(unknown), twice)["places"] == []
    monkeypatch.chdir(twice)
    unseen = cli.invoke(app, ["find", str(unknown)])
    assert (unseen.exit_code, unseen.stderr) == (1, "no stage, record, commit or store has these bytes\n")
    with pytest.raises(DataError, match="not the beginning of a digest"):
        find("xyz", twice)


def test_up_names_the_sources_that_no_stage_makes(tmp_path: Path) -> None:
    deps = [{"path": name, "hash": "md5", "md5": "1" * 32} for name in ("data.csv", "pathfinder/a.py")]
    stage = {"cmd": "fit", "deps": deps, "outs": [{"path": "a.txt", "hash": "md5", "md5": "0" * 32}]}
    write_json(tmp_path / "dvc.lock", {"schema": "2.0", "stages": {"a": stage}})
    lines = list(way_back("a.txt", tmp_path).lines())
    assert lines[-1].endswith(f" data.csv  md5 {'1' * 32}")
    assert "pathfinder/a.py" in "".join(lines[:-1])


def test_up_goes_from_a_place_in_a_file_to_the_sources(twice: Path) -> None:
    found = way_back("metrics/train/full.json#/loss", twice)
    assert found.figures[0]["value"] == 0.25
    text = "\n".join(found.lines())
    assert "metrics/train/full.json#/loss  0.25" in text
    assert "train@full  $ python -m stages.train full" in text
    assert "data.dvc" in text
    old = way_back("metrics/train/full.json@HEAD~2#/loss", twice)
    assert old.figures[0]["value"] == 0.5
    assert '"rate": 0.5' in "\n".join(old.lines())
    assert "licence Apache-2.0" in "\n".join(old.lines()), "the manifest of sources comes from the cache"


def test_up_follows_the_origins_of_a_figure_and_makes_it_again(project: Path) -> None:
    origin = {"how": "mean", "of": [f"metrics/train/{run}.json#/loss" for run in ("full", "plain")]}
    row = ["mean", "0.5"]
    tables = {"tables": {"A/B": [{"rows": [row], "origins": {"rows": [[None, origin]]}}]}}
    write_json(project / "tables.json", tables)
    (figure,) = way_back("tables.json#/tables/A~1B/0/rows/0/1", project).figures
    assert [place["stage"] for place in figure["of"]] == ["train@full", "train@plain"]
    assert [place["value"] for place in figure["of"]] == [0.5, 0.5]
    assert figure["computed again"] == "the same"
    found = way_back("tables.json#/tables", project)
    assert [node.facts["path"] for node in found.trees] == ["metrics/train/full.json", "metrics/train/plain.json"]
    row[1] = "0.6"
    write_json(project / "tables.json", tables)
    (figure,) = way_back("tables.json#/tables/A~1B/0/rows/0/1", project).figures
    assert figure["computed again"].startswith("DIFFERS")
    with pytest.raises(DataError, match=r"tables.json#/tables: has no 'x'; it has A/B"):
        way_back("tables.json#/tables/x", project)


def test_down_names_the_stages_the_outs_and_the_figures_behind_a_file(project: Path) -> None:
    origins = {"loss": {"how": "copy", "of": ["metrics/train/full.json#/loss"]}}
    write_json(project / "reports/tables.json", {"results": [{"origins": origins}]})
    found = way_forward("data/corpus/one.txt", project)
    rows = [(row["stage"], row["stages between"], row["reads"]) for row in found["stages"]]
    corpus = "artifacts/raw/corpus"
    assert rows == [("download", 0, "data"), ("train@full", 1, corpus), ("train@plain", 1, corpus)]
    assert found["figures"] == [{"figure": "reports/tables.json#/results/0/loss", "stages between": 2}]
    assert [row["stage"] for row in way_forward("pathfinder/mixing", project)["stages"]] == [
        "train@full",
        "train@plain",
    ]
    with pytest.raises(DataError, match="models/full: no stage reads it"):
        way_forward("models/full", project)


def test_the_locks_of_all_commits_are_compared_with_the_records(twice: Path, tmp_path: Path) -> None:
    checked = check_all_commits(twice)
    assert [(one.stages, one.recorded, one.attested) for one in checked] == [(3, 3, 3), (3, 3, 3)]
    assert [finding for one in checked for finding in one.findings] == []
    forged = Path(shutil.copytree(twice, tmp_path / "forged"))
    lock = forged / "dvc.lock"
    md5 = {row["out"]: row for row in rows_of("outs", forged)}["models/full"]["md5"]
    lock.write_text(lock.read_text().replace(md5, f"{'0' * 32}.dir"))
    git(forged, "commit", "-qam", "forged")
    newest, *_ = check_all_commits(forged)
    assert (newest.recorded, newest.attested, len(newest.findings)) == (2, 2, 1)
    assert "has the same inputs, but made different models/full (train@full)" in str(newest.findings[0])
    lock.write_text("stages: [")
    git(forged, "commit", "-qam", "broken")
    newest, *_ = check_all_commits(forged)
    assert "dvc.lock: error" not in str(newest.findings[0])
    assert "not valid YAML" in str(newest.findings[0])


def test_a_commit_is_attested_only_by_keys_that_are_trusted(
    twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = tmp_path / "runner.pem"
    runner.write_bytes(public_pem(own_key().public_key()))
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "another.pem"))
    checked = check_all_commits(twice)
    assert [(one.stages, one.recorded, one.attested) for one in checked] == [(3, 3, 0), (3, 3, 0)]
    told = "note: .pathfinder/lineage: the record is not signed by a trusted key (download, train@full, train@plain)"
    assert [str(finding) for finding in checked[0].findings] == [told]
    assert [one.attested for one in check_all_commits(twice, [runner])] == [3, 3]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb: str) -> None:
    result = cli.invoke(app, [verb, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "--json" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "records", "--at", "HEAD~2"],
        ["view", "models/full"],
        ["up", "models/full"],
        ["up", "metrics/train/full.json@HEAD~2#/loss"],
        ["find", "models/full"],
        ["find", "train.rate=*"],
        ["down", "data"],
        ["down", "data", "--at", "HEAD~2"],
        ["diff", "HEAD~2", "HEAD"],
        ["check", "--all-commits"],
        ["check"],
    ],
    ids=" ".join,
)
def test_every_verb_prints_json_and_text(twice: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(twice)
    result = cli.invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    text = cli.invoke(app, words)
    assert text.exit_code == 0
    assert text.stdout


@pytest.mark.parametrize("words", [["list"], ["view", "models/full@HEAD~2"], ["up", "models/full"], ["diff", "HEAD~2"]])
def test_a_verb_starts_with_few_modules(twice: Path, words: list[str]) -> None:
    """A verb that only reads records starts in half a second, because it loads no library of tables or models."""
    code = (
        "import atexit, sys\nfrom evidence.__main__ import app\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\napp(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=twice, check=True, capture_output=True, text=True)
    loaded = done.stderr.splitlines()[-1].split()
    assert {"polars", "numpy", "pyarrow", "torch", "dvc", "rich", "httpx2", "cryptography"}.isdisjoint(loaded)
    assert len(loaded) < 400


def test_a_restored_clone_knows_the_records_that_its_remote_has(project: Path) -> None:
    (record,) = read_records(project, "train@full")
    fetched = project / EVIDENCE / "storage" / PUBLISHED / "train@full" / record.path.name
    fetched.parent.mkdir(parents=True)
    record.path.rename(fetched)
    assert [known.digest for known in known_records(project, "train@full")] == [record.digest]
    assert record.digest[:16] in "\n".join(way_back("models/full", project).lines())
    assert view(record.digest[:12], project)["stage"] == "train@full"
    fetched.write_text(fetched.read_text().replace("train@full", "train@fake"))
    assert known_records(project, "train@full") == [], "an edited record says nothing"
