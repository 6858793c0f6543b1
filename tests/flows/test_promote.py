"""Promotion with real git: fast-forward only, gates, and forced interleavings in which nobody loses work."""

from __future__ import annotations

import json
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from flows.local import processes
from flows.local.lock import LOCK, Holder
from flows.team.deployment import git as git_commands
from flows.team.deployment.git import Clone
from flows.team.deployment.promote import HOME, PromotionRefused, promote, promoted
from ground.hashing import digest_chunks
from ground.io import DataError, TransientError, write_json, write_text
from ground.remote import open_store
from tests.flows.conftest import CONFIG
from tests.flows.test_branch import git

SUMMARY = "metrics/summary.json"
RUN = "runs/2026-01-01-x"


@dataclass(frozen=True, slots=True)
class Team:
    """A bare repository with branch main, a person's clone, and a remote with what runs published."""

    folder: Path
    origin: Path = field(init=False)
    person: Path = field(init=False)
    remote: Path = field(init=False)

    def __post_init__(self) -> None:
        for name, path in (("origin", "origin.git"), ("person", "person"), ("remote", "remote")):
            object.__setattr__(self, name, self.folder / path)

    def results(self, folder: Path, f1: float, failed: int = 0) -> list[str]:
        """Write the results of a run and put on the remote what the run would have pushed and published there."""
        metrics = json.dumps({"gates_failed": failed, "f1": f1}).encode()
        md5 = digest_chunks([metrics]).md5
        lock = (
            "schema: '2.0'\nstages:\n  validate:\n    cmd: echo\n    outs:\n"
            f"    - path: metrics/validate.json\n      hash: md5\n      md5: {md5}\n      size: {len(metrics)}\n"
        )
        (folder / "dvc.lock").write_text(lock)
        (folder / "metrics").mkdir(exist_ok=True)
        (folder / SUMMARY).write_text(json.dumps({"benchmarks": {"processbench": f1}, "records": {"kept": 5}}))
        store = open_store(str(self.remote))
        store.put(f"files/md5/{md5[:2]}/{md5[2:]}", metrics)
        store.put(f"pathfinder/locks/{digest_chunks([lock.encode()]).sha256}.lock", lock.encode())
        return ["dvc.lock", SUMMARY]

    def nightly(self, f1: float, name: str = RUN, failed: int = 0) -> str:
        """A nightly run; returns its branch."""
        clone = Clone.update(self.folder / "clone", str(self.origin), "main")
        return clone.commit(self.results(clone.folder, f1, failed), name, ["Run it"], {})

    def push_by_hand(self, text: str) -> None:
        git(self.person, "pull", "-q", "--ff-only", "origin", "main")
        (self.person / "by-hand.txt").write_text(text)
        git(self.person, "add", ".")
        git(self.person, "commit", "-qm", text)
        git(self.person, "push", "-q", "origin", "main")

    def promote(self, branch: str = "", home: str = "promote", largest_drop: float = 5.0) -> str:
        store = open_store(str(self.remote))
        return promoted(self.folder / home, str(self.origin), branch, "main", largest_drop, store, [SUMMARY])

    def head(self, branch: str = "main") -> str:
        return git(self.origin, "rev-parse", branch)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    found = Team(tmp_path)
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(tmp_path, "init", "-q", "-b", "main", "person")
    git(found.person, "remote", "add", "origin", str(found.origin))
    found.results(found.person, 80.0)
    git(found.person, "add", ".")
    git(found.person, "commit", "-qm", "First")
    git(found.person, "push", "-q", "origin", "main")
    return found


def before_push(folder: Path, script: str) -> None:
    """Let something happen between the fetch and the push of a repository, once."""
    hook = folder / "hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nrm -f $0\nunset GIT_DIR\n{script}\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)


def test_a_run_branch_becomes_the_head_of_its_target(team: Team) -> None:
    branch = team.nightly(81.0)
    assert team.promote() == f"main is at {branch} ({team.head(branch)[:12]})"
    assert team.head() == team.head(branch)
    assert team.promote() == f"main is already at {branch}"


def test_a_branch_that_does_not_follow_the_target_is_refused(team: Team) -> None:
    branch = team.nightly(81.0)
    team.push_by_hand("later")
    head = team.head()
    with pytest.raises(PromotionRefused, match=rf"{branch} does not follow main, which is at {head[:12]} now"):
        team.promote(branch)
    with pytest.raises(PromotionRefused, match=r"no run branch runs/\* follows the head of main; run the nightly"):
        team.promote()
    assert team.head() == head


def test_closed_gates_are_named_together(team: Team) -> None:
    clone = Clone.update(team.folder / "clone", str(team.origin), "main")
    paths = team.results(clone.folder, 70.0, failed=2)
    (clone.folder / "code.py").touch()
    branch = clone.commit([*paths, "code.py"], RUN, ["Run it"], {})
    for entry in (team.remote / "pathfinder/locks").iterdir():
        entry.unlink()
    with pytest.raises(PromotionRefused) as refused:
        team.promote(branch)
    for reason in (
        "it changes code.py, and a run changes only dvc.lock, metrics/summary.json, params.yaml",
        "has no published run with its dvc.lock",
        "metrics/validate.json: 2 expectations were not met",
        "metrics/summary.json: processbench is 70.0, before 80.0",
    ):
        assert reason in str(refused.value)
    assert team.head() != team.head(branch)
    worse = team.nightly(70.0)
    with pytest.raises(PromotionRefused, match=r"processbench is 70\.0"):
        team.promote(worse)
    assert "main is at" in team.promote(worse, largest_drop=10.0)


def test_a_run_without_benchmarks_and_validation_is_refused(team: Team) -> None:
    clone = Clone.update(team.folder / "clone", str(team.origin), "main")
    paths = team.results(clone.folder, 81.0)
    (clone.folder / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    (clone.folder / SUMMARY).write_text(json.dumps({"benchmarks": {}}))
    branch = clone.commit(paths, RUN, ["Run it"], {})
    missing = r"its dvc\.lock has no validation stage; metrics/summary\.json: processbench is missing, before 80\.0"
    with pytest.raises(PromotionRefused, match=missing):
        team.promote(branch)


def test_a_run_of_some_stages_is_refused(team: Team) -> None:
    """Its lock has the committed entries of the validation stages, whose metrics it has not sent."""
    branch = team.nightly(81.0)
    for path in team.remote.glob("files/md5/*/*"):
        path.unlink()
    with pytest.raises(PromotionRefused, match=r"has no metrics/validate\.json of it; run the nightly without targets"):
        team.promote(branch)


def test_a_push_by_hand_between_fetch_and_promotion_is_kept(team: Team) -> None:
    branch = team.nightly(81.0)
    mirror = git_commands.mirror(team.folder / "promote/mirror.git", str(team.origin))
    by_hand = f"cd {team.person} && git -c user.name=p -c user.email=p@example.org commit -q --allow-empty -m 'By hand'"
    before_push(mirror, f"{by_hand} && git push -q origin main")
    with pytest.raises(PromotionRefused, match=r"main has moved while runs/.* was checked: ! \[rejected\]|remote rej"):
        team.promote(branch)
    assert git(team.origin, "log", "-1", "--format=%s", "main") == "By hand"
    assert git(team.origin, "rev-parse", "--verify", branch)


def test_of_two_promotions_at_once_one_is_refused(team: Team) -> None:
    first, second = team.nightly(81.0), team.nightly(82.0, name=f"{RUN}-other")
    mirror = git_commands.mirror(team.folder / "promote/mirror.git", str(team.origin))
    before_push(mirror, f"cd {team.origin} && git update-ref refs/heads/main {second}")
    with pytest.raises(PromotionRefused, match="main has moved while"):
        team.promote(first)
    assert team.head() == team.head(second)
    assert git(team.origin, "rev-parse", "--verify", first)


def test_a_nightly_that_is_overtaken_between_commit_and_push_takes_another_name(team: Team) -> None:
    clone = Clone.update(team.folder / "slow", str(team.origin), "main")
    other = Clone.update(team.folder / "fast", str(team.origin), "main")
    paths = team.results(other.folder, 82.0)
    git(other.folder, "add", ".")
    git(other.folder, "commit", "-qm", "The faster run")
    push = f"git push -q origin HEAD:refs/heads/{RUN} && cd {team.person} && git push -q origin HEAD:refs/heads/{RUN}-2"
    before_push(clone.folder / ".git", f"cd {other.folder} && {push}")
    team.results(clone.folder, 81.0)
    assert clone.commit(paths, RUN, ["The slower run"], {}) == f"{RUN}-3"
    subjects = [git(team.origin, "log", "-1", "--format=%s", f"{RUN}{end}") for end in ("", "-2", "-3")]
    assert subjects == ["The faster run", "First", "The slower run"]


def test_a_branch_that_moves_while_a_nightly_runs_keeps_both(team: Team) -> None:
    clone = Clone.update(team.folder / "clone", str(team.origin), "main")
    paths = team.results(clone.folder, 81.0)
    team.push_by_hand("while it runs")
    branch = clone.commit(paths, RUN, ["Run it"], {})
    assert git(team.origin, "merge-base", "main", branch) == clone.head
    assert git(team.origin, "show", "main:by-hand.txt") == "while it runs"


def test_a_promotion_says_that_it_takes_the_place_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / ".dvc/config", CONFIG)
    write_text(tmp_path / "dvc.yaml", "stages: {}\n")
    folder, said = tmp_path / HOME, list[str]()
    folder.mkdir(parents=True)
    killed = Holder(1 << 22, "-m prefect flow-run execute", "yesterday", processes.place(folder))
    write_json(folder / LOCK, asdict(killed))
    monkeypatch.setattr("flows.team.deployment.promote.flow_output", lambda _: said.append)
    monkeypatch.setattr("flows.team.deployment.promote.promoted", lambda *_: "main is at runs/x")
    for _ in range(2):
        promote.fn()
    assert said == [f"the last run here did not end properly ({killed})", "main is at runs/x", "main is at runs/x"]


def test_a_target_that_cannot_be_moved_is_named(team: Team, tmp_path: Path) -> None:
    branch = team.nightly(81.0)
    with pytest.raises(DataError, match="the repository has no branch release"):
        promoted(tmp_path / "p", str(team.origin), branch, "release", 5.0, open_store(str(team.remote)), [SUMMARY])
    with pytest.raises(TransientError, match=r"nowhere: cannot be read \(fatal"):
        git_commands.mirror(tmp_path / "m", str(tmp_path / "nowhere"))
    git(team.person, "fetch", "-q", "origin", f"{branch}:{branch}")
    with pytest.raises(DataError, match="main is checked out in the repository; run `git merge --ff-only"):
        promoted(tmp_path / "q", str(team.person), branch, "main", 5.0, open_store(str(team.remote)), [SUMMARY])
