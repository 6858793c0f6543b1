"""Every tampering of the catalogue with a finished run is found, and the link that it breaks is named.

The run has two variants of a model, DVC's cache and run cache, a remote with a log of manifests, records and a ledger.
The opposite is tested too: what people do every day gives no alarm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evidence.dvc.stores import EVIDENCE, FOLDER
from evidence.record.ledger import LEDGER
from evidence.remote.mirror import fetch
from evidence.remote.published import SENT
from evidence.remote.reading import Remote
from evidence.verbs.check import Report, check
from flows.local import storage
from ground.io import DataError
from ground.remote import ENDPOINT, open_store
from tests.evidence.tampering import records
from tests.evidence.tampering.bucket import Bucket, Far, flipped
from tests.evidence.tampering.catalogue import CAMPAIGN, FAR
from tests.evidence.tampering.claims import NAMED, UNREAD
from tests.evidence.tampering.edits import STORE, Tampering, record_of, replace
from tests.evidence.tampering.outs import FILES
from tests.support.miniature import GIT, ROOT, dvc, run_in
from tests.support.s3 import s3_bucket, s3_environment, s3_server, upload_in_parts

REMEMBERED = '''
import json
from fractions import Fraction

def answer(variant: str, rate: float, new: str) -> str:
    """The answer in the journal or, if it has none, a new one."""
    path = Path(f".pathfinder/train/{variant}-{rate}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as journal:
        journal.seek(0)
        known = [json.loads(line) for line in journal]
        if not known:
            journal.write(json.dumps({"sum": "0", "text": new}) + "\\n")
    return known[0]["text"] if known else new * int(Fraction(1))

'''
"""A stage that keeps its answers, as labelling does."""


@pytest.fixture(scope="module")
def finished(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature project after its run, pushed to a remote that is a folder, and published there."""
    project = Path(shutil.copytree(made, tmp_path_factory.mktemp("finished") / "project", symlinks=True))
    dvc(project, "remote", "add", "-d", "-q", "storage", STORE)
    with (project / ".gitignore").open("a") as ignored:
        ignored.write(f"/{STORE}\n")
    replace(
        project / "stages/train.py", "mix(corpus, variant, rate)", "answer(variant, rate, mix(corpus, variant, rate))"
    )
    replace(project / "stages/train.py", "@stage", REMEMBERED + "@stage")
    dvc(project, "repro", "-q")
    dvc(project, "push", "-q", "--run-cache")
    storage.publish(project, STORE)
    (project / "params.yaml").write_text("train: {rate: 0.25, note: x}\n")
    dvc(project, "repro", "-q")
    dvc(project, "push", "-q", "--run-cache")
    storage.publish(project, STORE)
    for words in (["add", "-A"], ["commit", "-qm", "run"], ["repack", "-adq"]):  # few files: each test copies them
        subprocess.run([*GIT, *words], cwd=project, check=True)
    return project


@pytest.fixture
def tree(finished: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    subprocess.run(["cp", "-r", "--reflink=auto", str(finished), str(tmp_path / "project")], check=True)
    return tmp_path / "project"


def audited(project: Path) -> tuple[Report | None, list[str]]:
    """The report, and its errors in words; a file that cannot be read is one error, as the command prints it."""
    try:
        report = check(None, project)
    except DataError as error:
        return None, [f"error: {error}"]
    return report, [str(finding) for finding in report.errors]


def test_the_page_states_the_size_of_the_catalogue() -> None:
    names = [name for name, _ in CAMPAIGN] + [f"{far.name} in the bucket" for far in FAR]
    assert len(names) == len(set(names)) >= 240
    page = " ".join((ROOT / "docs/audit.md").read_text(encoding="utf-8").split())
    assert f"plants {len(names)} tamperings in" in page
    assert f"{len(FAR)} of them in an S3 bucket" in page


@pytest.mark.parametrize("tamper", [tamper for _, tamper in CAMPAIGN], ids=[name for name, _ in CAMPAIGN])
def test_tampering_is_found_and_the_broken_link_named(tree: Path, tamper: Tampering) -> None:
    expected = tamper(tree)
    _, errors = audited(tree)
    assert any(expected in text for text in errors), (expected, errors)


@pytest.mark.parametrize("file, old, new, named", NAMED, ids=[f"{case[0]}: {case[3]}" for case in NAMED])
def test_a_statement_that_dvc_acts_on_and_no_record_has_is_named(
    tree: Path, file: str, old: str, new: str, named: str
) -> None:
    replace(tree / file, old, new)
    report = check(None, tree)
    (finding,) = report.findings
    assert (finding.level, finding.where) == ("note", file)
    assert finding.message.startswith(f"has {named}")
    assert finding.message.endswith(": DVC acts on it, and no record confirms it")


@pytest.mark.parametrize("file, old, new", UNREAD)
def test_a_statement_that_dvc_does_not_act_on_gives_no_alarm(tree: Path, file: str, old: str, new: str) -> None:
    replace(tree / file, old, new)
    assert check(None, tree).findings == []


def test_an_untouched_run_is_sound(finished: Path) -> None:
    report, errors = audited(finished)
    assert errors == []
    assert report is not None
    assert report.findings == []
    assert report.summary().startswith(
        "SOUND: 3 of 3 stages attested by this user's own key; workspace, cache, remote storage read; commit "
    )
    assert report.summary().endswith(" clean, 1 commit after the runs")


def commit_again(project: Path) -> None:
    subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", "later"], cwd=project, check=True)


def collect_garbage(project: Path) -> None:
    subprocess.run([*GIT, "commit", "-q", "--amend", "-m", "another"], cwd=project, check=True)
    subprocess.run([*GIT, "reflog", "expire", "--expire=now", "--all"], cwd=project, check=True)
    subprocess.run([*GIT, "gc", "-q", "--prune=now"], cwd=project, check=True)


def touch(project: Path) -> None:
    for name in FILES:
        (project / name).touch()


def empty_the_cache(project: Path) -> None:
    shutil.rmtree(project / ".dvc/cache")


def run_a_stage_again(project: Path) -> None:
    done = run_in(project, "-m", "stages.train", "plain")
    assert done.returncode == 0, done.stderr


def return_to_older_parameters(project: Path) -> None:
    replace(project / "params.yaml", "0.25, note: x", "0.5, note: 'Ünïcode <+>'")
    assert "is cached" in dvc(project, "repro")


@pytest.fixture(scope="module")
def s3(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """A bucket with everything that the finished project published, and a clone of the project with its outs."""
    clone = tmp_path_factory.mktemp("far") / "clone"
    subprocess.run(["cp", "-r", "--reflink=auto", str(finished), str(clone)], check=True)
    for name in (STORE, ".dvc/cache/runs"):
        shutil.rmtree(clone / name)
    for file in (clone / ".pathfinder").glob("se*.json"):
        file.unlink()
    with s3_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(endpoint).items():
            patch.setenv(name, value)
        url = f"{s3_bucket(endpoint)}/a/prefix"
        (clone / ".dvc/config.local").write_text(f"['remote \"far\"']\n    url = {url}\n    endpointurl = {endpoint}\n")
        dvc(clone, "config", "-q", "core.remote", "far")
        dvc(clone, "remote", "remove", "-q", STORE)
        subprocess.run([*GIT, "commit", "-qam", "another remote"], cwd=clone, check=True)
        bucket = Bucket(open_store(url), clone)
        for path in (path for path in (finished / STORE).rglob("*") if path.is_file()):
            bucket.store.put(path.relative_to(finished / STORE).as_posix(), path.read_bytes())
        yield bucket


@pytest.fixture
def bucket(s3: Bucket) -> Iterator[Bucket]:
    yield s3
    s3.restore()


@pytest.mark.parametrize("far", FAR, ids=lambda far: far.name)
def test_tampering_in_a_bucket_is_found_and_the_broken_link_named(bucket: Bucket, far: Far) -> None:
    if far.fetched:
        fetch(bucket.project)
    else:
        shutil.rmtree(bucket.project / EVIDENCE, ignore_errors=True)
    expected = far.tamper(bucket)
    errors = [str(finding) for finding in check(None, bucket.project, remote=far.remote).errors]
    if not far.fetched:
        shutil.rmtree(bucket.project / EVIDENCE)
    assert any(expected in text for text in errors), (expected, errors)


@pytest.mark.parametrize("remote", ["no", "quick", "full"])
def test_an_untouched_bucket_gives_no_alarm(bucket: Bucket, remote: Remote) -> None:
    report = check(None, bucket.project, remote=remote)
    assert report.findings == []
    url = bucket.store.url
    assert report.not_read == ([f"remote far ({url})"] if remote == "no" else [])
    read = {"no": "cache read", "quick": "remote far (listing) read", "full": "remote far read"}[remote]
    assert read in report.summary()


def test_files_of_a_file_manager_next_to_copies_give_no_alarm(bucket: Bucket) -> None:
    fetch(bucket.project)
    for pattern in ("log/*.json", "records/*/*.json"):
        litter(next((bucket.project / EVIDENCE / "far" / FOLDER).glob(pattern)))
    assert check(None, bucket.project, remote="quick").findings == []
    shutil.rmtree(bucket.project / EVIDENCE)


def test_objects_that_were_uploaded_in_parts_give_no_alarm(bucket: Bucket) -> None:
    """Their entity tag is not the md5 of their bytes: the listing gives their size, ``--full`` reads them."""
    key = bucket.object("models/full", 1)
    content = bucket.store.read(key)
    bucket.put(key, content)
    upload_in_parts(os.environ[ENDPOINT], f"{bucket.store.url}/{key}", content)
    assert [item.md5 for item in bucket.store.listed(key)] == [""]
    assert check(None, bucket.project, remote="quick").findings == []
    assert check(None, bucket.project, remote="full").findings == []
    upload_in_parts(os.environ[ENDPOINT], f"{bucket.store.url}/{key}", flipped(content))
    assert check(None, bucket.project, remote="quick").findings == []
    errors = [str(finding) for finding in check(None, bucket.project, remote="full").errors]
    assert [f"{key}: md5 is" in text for text in errors] == [True]


def look_around(project: Path) -> None:
    """What file managers and editors leave in the folders that they show, apart from outs."""
    evidence = project / STORE / FOLDER
    for pattern in ("log/*.json", "manifests/*.json", "records/*/*.json"):
        litter(next(evidence.glob(pattern)))
    for name in (record_of(project, "train@full"), LEDGER, SENT, "dvc.yaml", Path(STORE, FOLDER)):
        litter(project / name)


def litter(file: Path) -> None:
    for name in (".DS_Store", f"._{file.name}", "Thumbs.db", f".{file.name}.swp", f"{file.name}~", f"#{file.name}#"):
        (file.parent / name).write_bytes(b"\0\0")


EVERYDAY = [
    *(commit_again, collect_garbage, touch, empty_the_cache, run_a_stage_again, return_to_older_parameters),
    look_around,
]


@pytest.mark.parametrize("habit", EVERYDAY, ids=lambda habit: habit.__name__)
def test_everyday_work_gives_no_alarm(tree: Path, habit: Callable[[Path], None]) -> None:
    habit(tree)
    report, errors = audited(tree)
    assert errors == []
    assert report is not None
    assert (report.attested, report.stages, report.findings) == (3, 3, [])


def test_a_folder_of_evidence_that_is_a_link_is_named(tree: Path) -> None:
    """It may be on a larger disk."""
    moved = (tree / ".pathfinder").rename(tree.with_name("elsewhere"))
    (tree / ".pathfinder").symlink_to(moved)
    (note,) = check(None, tree).findings
    assert str(note).startswith(f"note: .pathfinder: is a symbolic link to {moved}")


def test_a_moved_folder_gives_no_alarm(tree: Path) -> None:
    moved = tree.rename(tree.with_name("moved"))
    report, errors = audited(moved)
    assert errors == []
    assert report is not None
    assert report.attested == 3


def test_a_clone_of_git_and_a_far_remote_is_attested_by_what_it_fetches(tree: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(tree), str(clone)], check=True)
    config = clone / ".dvc/config.local"
    config.write_text(f"['remote \"storage\"']\n    url = {tree / STORE}\n")
    dvc(clone, "pull", "-q")
    config.write_text(f"['remote \"storage\"']\n    url = file://{tree / STORE}\n")
    report = check(None, clone)
    assert (report.attested, report.not_read, report.errors) == (0, [f"remote storage (file://{tree / STORE})"], [])
    (line,) = fetch(clone)
    assert line.startswith("storage: ")
    report = check(None, clone, strict=True)
    assert report.findings == []
    assert report.summary().startswith(
        "SOUND: 3 of 3 stages attested by this user's own key; workspace, cache, evidence of remote storage"
    )
    assert fetch(clone)[0].startswith("storage: 0 of ")
    entry_file = clone / ".pathfinder/evidence/storage/pathfinder/log/00000001.json"
    replace(entry_file, '"number":1', '"number":2')
    assert ["the chain is broken" in str(finding) for finding in check(None, clone).errors] == [True]


def test_a_clone_restored_from_the_remote_gives_no_alarm(tree: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(tree), str(clone)], check=True)
    (clone / ".dvc/config.local").write_text(f"['remote \"storage\"']\n    url = {tree / STORE}\n")
    dvc(clone, "pull", "-q")
    report, errors = audited(clone)
    assert errors == []
    assert report is not None
    assert "remote storage read" in report.summary()
    assert report.findings == check(None, clone, strict=True).findings == []
    assert report.summary().startswith("SOUND: 3 of 3 stages attested by this user's own key; ")
    shutil.rmtree(tree / STORE / FOLDER)
    assert [finding.level for finding in check(None, clone, strict=True).findings] == ["error"]


def test_a_remote_that_does_not_exist_was_not_read(tree: Path) -> None:
    shutil.rmtree(tree / STORE)
    report = check(None, tree)
    assert "workspace, cache read; not read: remote storage (no folder " in report.summary()
    assert report.not_read == [f"remote storage (no folder {(tree / STORE).resolve()})"]


def test_a_remote_that_is_no_longer_configured_is_named(tree: Path) -> None:
    """Someone who takes back a publication could hide the log that shows it."""
    dvc(tree, "remote", "remove", "-q", STORE)
    (note,) = check(None, tree).findings
    assert (note.level, note.where) == ("note", ".dvc/config")
    assert note.message.startswith(f"does not name {STORE}, where this machine published or read a log, so that log")


def test_a_ledger_that_ends_before_a_published_record_is_named(tree: Path) -> None:
    """The record names the last line that is left; a copy of the folder from before the run looks the same."""
    name = records.cut_both(tree).partition("does not name record ")[2][:12]
    assert not [finding for finding in check(None, tree).errors if "ends before" in finding.message]
    for file in (tree / ".pathfinder").glob("se*.json"):
        file.unlink()
    report = check(None, tree)
    (note,) = report.findings
    assert (report.verdict, note.level) == ("SOUND", "note")
    assert note.message.startswith(f"ends before published record {name}: it was cut, or this is an older copy ")


def test_a_run_whose_commit_was_lost_is_named(tree: Path) -> None:
    assert check(None, tree).findings == []
    (branch,) = (tree / ".git/refs/heads").iterdir()
    subprocess.run([*GIT, "checkout", "-q", "--orphan", "new"], cwd=tree, check=True)
    subprocess.run([*GIT, "commit", "-qm", "one commit"], cwd=tree, check=True)
    branch.unlink()
    notes = check(None, tree).findings
    assert {(note.level, note.message.partition(" commit ")[0]) for note in notes} == {("note", "no branch or tag has")}


@pytest.mark.parametrize("text", ["[]", "[1]", "{", '{"a": 1}'])
@pytest.mark.parametrize("name", ["sent", "seen"])
def test_a_memory_of_another_form_is_refused_in_one_line(tree: Path, name: str, text: str) -> None:
    (tree / f".pathfinder/{name}.json").write_text(text)
    report, errors = audited(tree)
    assert report is None
    (line,) = errors
    assert line.startswith(f"error: .pathfinder/{name}.json: ")
