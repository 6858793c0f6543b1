"""Garbage: only what no commit, folder, young object or published run names is deleted, with real git and real DVC."""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path

import pytest
from prefect.states import Completed, Pending, Running, Scheduled

from evidence.dvc.stores import object_file
from flows import server
from flows.local import storage
from flows.team.deployment import garbage
from flows.team.deployment import git as git_commands
from flows.team.deployment.definition import connected
from flows.team.deployment.garbage import describe, find, names_of, places_of, refuse_during_runs, sweep_up
from flows.team.deployment.nightly import nightly
from ground.io import DataError, write_text
from ground.remote import open_store
from tests.flows.conftest import CONFIG
from tests.flows.test_branch import git
from tests.support.miniature import dvc
from tests.support.s3 import s3_bucket, s3_environment, s3_server

DAY_S = 24 * 3600.0


PIPELINE = """\
stages:
  make:
    cmd: mkdir -p out && cp params.yaml out/one.txt && echo same > out/two.txt && echo "{}" > figures.json
    params: [count]
    deps: [given.txt]
    outs: [out]
    metrics: [figures.json]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with four runs: on main, on a branch that is not merged, tagged, and committed nowhere.

    The remote has all of them: a remote in a folder has the form of the cache.
    """
    root = tmp_path_factory.mktemp("garbage") / "project"
    (root / ".dvc").mkdir(parents=True)
    (root / ".dvc/config").write_text(CONFIG)
    (root / ".dvc/.gitignore").write_text("/cache\n/tmp\n/config.local\n")
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / ".gitignore").write_text("/.pathfinder\n")
    (root / "given.txt").touch()
    git(root.parent, "init", "-q", "-b", "main", "project")
    for count, *then in (
        (1, "commit"),
        (2, "checkout -b other", "commit"),
        (3, "checkout --detach", "commit", "tag v1"),
        (4,),
    ):
        if count > 1:
            git(root, "checkout", "-q", "main")
        (root / "params.yaml").write_text(f"count: {count}\n")
        dvc(root, "repro", "-q")
        for command in then:
            word, *more = command.split()
            if word == "commit":
                git(root, "add", "-A")
                more = ["-q", "-m", f"Run {count}"]
            git(root, word, *more)
    git(root, "checkout", "-q", "--force", "main")
    shutil.copytree(root / ".dvc/cache", root / storage.DEFAULT)
    git(root, "reflog", "expire", "--expire=now", "--all")
    return root


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "project"))


def swept(root: Path, age_days: float, delete: bool = True) -> list[garbage.Place]:
    """Collect as if the clock were ``age_days`` after the runs, with a grace period of 14 days."""
    before = time.time() + (age_days - garbage.DAYS) * DAY_S
    sweeps = find(list(places_of(root)), names_of(root, str(root)), before)
    if delete:
        sweep_up(sweeps)
    return sweeps


def test_what_no_reference_names_is_deleted_and_every_commit_can_still_be_pulled(project: Path) -> None:
    sweeps = swept(project, 15)
    # Each place loses the listing, the first file and the run-cache entry of the last run.
    assert [(sweep.kind, len(sweep.garbage)) for sweep in sweeps] == [("remote", 3), ("cache", 3)]
    assert "remote .pathfinder/storage: deleted 3 of " in describe(sweeps[0], deleted=True)
    shutil.rmtree(project / ".dvc/cache")
    git(project, "checkout", "-q", "--force", "other")
    dvc(project, "pull", "-q", "--force")
    assert (project / "out/one.txt").read_text() == "count: 2\n"
    for reference in ("main", "v1"):
        outs = garbage.in_text(git(project, "show", f"{reference}:dvc.lock").partition("outs:")[2].encode())
        assert all(object_file(project / storage.DEFAULT, md5).is_file() for md5 in outs)
    assert swept(project, 15)[0].garbage == []


@pytest.mark.campaign
def test_a_bucket_keeps_what_commits_and_published_runs_name(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole collection against an S3 server: a dry run, what an entry of the log names, then everything unnamed."""
    with s3_server() as endpoint:
        for name, value in s3_environment(endpoint).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(storage.REMOTE, f"{s3_bucket(endpoint)}/team")
        bucket = open_store(os.environ[storage.REMOTE])
        local = open_store(str(project / storage.DEFAULT))
        for item in local.listed():
            bucket.put(item.key, local.read(item.key))
        everything = set(bucket.keys())
        dry = swept(project, 15, delete=False)
        assert [(sweep.kind, len(sweep.garbage)) for sweep in dry] == [("remote", 3), ("cache", 3)]
        assert set(bucket.keys()) == everything
        (listing,) = [item.key for item in dry[0].garbage if item.key.endswith(".dir")]
        published = f"pathfinder/manifests/{'a' * 64}.json"
        md5 = listing.removeprefix("files/md5/").replace("/", "")
        bucket.put(published, f'{{"outs": {{"out": {{"md5": "{md5}"}}}}}}'.encode())
        assert swept(project, 15)[0].garbage == [], "the log names the folder, so its files and its entry stay"
        bucket.delete(published)
        unnamed = {item.key for item in swept(project, 15)[0].garbage}
        assert len(unnamed) == 3
        assert set(bucket.keys()) == everything - unnamed
        shutil.rmtree(project / ".dvc/cache")
        shutil.rmtree(project / storage.DEFAULT)
        for branch, count in (("other", 2), ("main", 1)):
            git(project, "checkout", "-q", "--force", branch)
            dvc(project, "pull", "-q", "--force")
            assert (project / "out/one.txt").read_text() == f"count: {count}\n"


@pytest.mark.parametrize("is_bucket", [False, True])
def test_old_parts_of_stages_are_deleted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bucket: bool
) -> None:
    """A part that has one young file is in use; journals and checkpoints stay whatever their age."""
    write_text(tmp_path / ".dvc/config", CONFIG)
    with s3_server() as endpoint:
        if is_bucket:
            for name, value in s3_environment(endpoint).items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv(storage.REMOTE, s3_bucket(endpoint))
        sent = open_store(storage.absolute(tmp_path, os.environ.get(storage.REMOTE) or str(storage.DEFAULT)))
        stored = tmp_path / ".pathfinder/parts/prepare"
        for part in ("old-1-of-2", "young-1-of-2"):
            (stored / part).mkdir(parents=True)
            (stored / part / "part.json").write_text("{}")
            (stored / part / "steps.arrow").write_text("{}")
            sent.put(f"unfinished/parts/prepare/{part}/state.json", b"{}")
            sent.put(f"unfinished/parts/prepare/{part}/pieces/0", b"{}")
        sent.put("unfinished/label/old-1-of-2/state.json", b"{}")
        sent.put("leases/0a1b/00000001", b"{}")
        time.sleep(1.1)  # a bucket knows whole seconds
        before = time.time()
        (stored / "young-1-of-2/steps.arrow").write_text("{}")
        sent.put("unfinished/parts/prepare/young-1-of-2/pieces/1", b"{}")
        sent.put("leases/0a1b/00000002", b"{}")
        found = garbage.find_parts(tmp_path, math.floor(before))
        assert [len(sweep.garbage) for sweep in found] == [2, 1, 2]
        sweep_up(found)
        garbage.remove_empty(tmp_path)
        assert {path.name for path in stored.iterdir()} == {"young-1-of-2"}
        assert len(sent.keys("unfinished/parts/prepare/young-1-of-2/")) == 3
        assert sent.keys("unfinished/parts/prepare/old-1-of-2/") == []
        assert sent.keys("leases/") == ["leases/0a1b/00000002"]
        assert sent.keys("unfinished/label/") == ["unfinished/label/old-1-of-2/state.json"]


def test_a_dry_run_and_the_grace_period_delete_nothing(project: Path) -> None:
    count = len(list((project / storage.DEFAULT).rglob("*")))
    assert all(sweep.garbage for sweep in swept(project, 15, delete=False))
    assert not any(sweep.garbage for sweep in swept(project, 13))
    assert len(list((project / storage.DEFAULT).rglob("*"))) == count


def test_published_runs_workspaces_and_young_entries_keep_what_they_name(project: Path) -> None:
    unnamed = [item.key for item in swept(project, 15, delete=False)[0].garbage]
    objects = [key for key in unnamed if key.startswith("files/")]
    md5 = "".join(Path(objects[0]).parts[-2:])
    manifest = project / storage.DEFAULT / "pathfinder/manifests/one.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(f'{{"outs": {{"models/full": {{"md5": "{md5}"}}}}}}')
    assert objects[0] not in [item.key for item in swept(project, 15, delete=False)[0].garbage]
    manifest.unlink()
    (project / "kept.dvc").write_text(f"outs:\n- md5: {md5}\n  path: kept\n")
    assert objects[0] not in [item.key for item in swept(project, 15, delete=False)[0].garbage]
    (project / "kept.dvc").unlink()
    # A run that starts to push now may find its objects there already: its entry of the run cache protects them.
    entry = next(key for key in unnamed if key.startswith("runs/"))
    content = (project / storage.DEFAULT / entry).read_bytes()
    later = project / ".dvc/cache/runs/ab" / ("a" * 64) / ("b" * 64)
    later.parent.mkdir(parents=True)
    later.write_bytes(content)
    before = later.stat().st_mtime - 0.01
    sweeps = find(list(places_of(project)), names_of(project, str(project)), before)
    assert len(sweeps[0].garbage) < len(unnamed)
    named = {f"files/md5/{md5[:2]}/{md5[2:]}" for md5 in garbage.in_text(content)}
    assert not named & {item.key for sweep in sweeps for item in sweep.garbage}


def test_an_edited_listing_or_a_shallow_clone_stops_the_collection(project: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", project.as_uri(), "shallow")
    with pytest.raises(DataError, match="is a shallow clone, so older commits are unknown"):
        garbage.in_history(tmp_path / "shallow")
    md5 = next(md5 for md5 in sorted(garbage.in_folder(project)) if md5.endswith(".dir"))
    listing = object_file(project / storage.DEFAULT, md5)
    listing.chmod(0o644)
    listing.write_text("[]")
    with pytest.raises(DataError, match=r"was edited, so the files of this folder are unknown and nothing is deleted"):
        swept(project, 15)


@pytest.mark.campaign
def test_nothing_is_deleted_while_a_run_starts_or_is_in_progress(tmp_path: Path) -> None:
    with server.local_server(tmp_path) as url, connected(tmp_path, url) as client:
        run = client.create_flow_run(nightly, name="nightly of main", state=Scheduled())
        refuse_during_runs()
        for begin in (Pending, Running):
            client.set_flow_run_state(run.id, begin(), force=True)
            with pytest.raises(DataError, match="run nightly of main is in progress and may use what would be deleted"):
                refuse_during_runs()
        client.set_flow_run_state(run.id, Completed(), force=True)
        refuse_during_runs()


def test_merges_and_renamed_locks_name_objects(tmp_path: Path) -> None:
    root, digests = tmp_path / "repository", [letter * 32 for letter in "abcdef"]
    root.mkdir()
    git(root, "init", "-q", "-b", "main")

    def commit(path: str, *md5s: str) -> None:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("".join(f"md5: {md5}.dir\n" for md5 in md5s))
        git(root, "add", "-A")
        git(root, "commit", "-qm", path)

    commit("dvc.lock", digests[0])
    git(root, "checkout", "-q", "-b", "side")
    commit("dvc.lock", digests[1])
    git(root, "checkout", "-q", "main")
    commit("dvc.lock", digests[2])
    git(root, "merge", "-q", "-s", "ours", "--no-commit", "side")
    commit("dvc.lock", digests[3])  # in the merge alone
    commit("sub/dvc.lock", digests[4])
    git(root, "rm", "-q", "-r", "sub")
    commit("data.dvc", digests[5])
    mirror = git_commands.mirror(tmp_path / "mirror.git", str(root))
    assert garbage.in_history(mirror) == {f"{md5}.dir" for md5 in digests}
