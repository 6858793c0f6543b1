"""The signed list of keys: rotation and expiry are silent, and what a revoked or unknown key signs is not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.audit.trust import LIST, LIST_TYPE, change_list, trusted_keys
from evidence.record.signing import KEY_FILE, TRUSTED, key_id, own_key, public_pem, sign
from evidence.remote.guard import Guard
from evidence.remote.publication import publish
from evidence.verbs.check import Report, check
from evidence.verbs.every_commit import check_all_commits
from evidence.verbs.finding import find
from ground.io import DataError, write_json
from tests.evidence import small as project
from tests.support.miniature import GIT
from tests.support.verbs import checked

DAY = timedelta(days=1)
RAN = datetime.fromisoformat(project.START)
"""When the runs of the small project ended."""
SIGNED = f"keys.json: key runner signed 2 runs, the first at {project.START}, but"
REVOKED = f"{SIGNED} is revoked since 2025-12-31T00:00:00+00:00 (lost laptop)"


class Team:
    """The small project, in which a root key signs the list of keys; the key of an auditor is elsewhere."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.patch, self.folder = root, patch, root.parent

    def as_user(self, name: str) -> Path:
        """Use the key of a user from now on; returns the file with its public half."""
        self.patch.setenv(KEY_FILE, str(self.folder / name / "signing.pem"))
        file = self.folder / f"{name}.pem"
        file.write_bytes(public_pem(own_key().public_key()))
        return file

    def lists(self, name: str, by: str = "root", start: datetime | None = None, **changes: object) -> None:
        """The root adds or changes a key in the list, and the user of the machine is the auditor again."""
        file = self.as_user(name)
        self.as_user(by)
        change_list(self.root, name, file, {"from": start, **changes})
        self.as_user("auditor")

    def report(self, *keys: Path) -> Report:
        return check(None, self.root, keys=keys, roots=[self.folder / "root.pem"])

    def errors(self) -> list[str]:
        return [str(each) for each in self.report().errors]


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    team = Team(tmp_path / "project", monkeypatch)
    team.as_user("runner")
    project.write_project(team.root)
    team.lists("runner", start=RAN - DAY)
    return team


def test_a_key_in_the_list_is_trusted_and_named_with_its_time(team: Team) -> None:
    report = team.report()
    assert report.verdict == "SOUND"
    assert "by runner (keys/keys.json, since 2025-12-31T00:00:00+00:00)" in report.summary().replace("infra/", "")
    assert check(None, team.root).verdict == "SOUND", "the root's key is next to the list"


def rotate(team: Team) -> None:
    """The old key signs until a time, and the new one from then on."""
    team.lists("runner", until=RAN + DAY)
    team.lists("newer", start=RAN + DAY)
    team.as_user("newer")
    ended = (RAN + 2 * DAY).isoformat()
    project.add_record(team.root, "train", times={"start": ended, "end": ended, "seconds": 1.0, "peak_rss_bytes": 1})


def expire(team: Team) -> None:
    team.lists("runner", until=RAN + timedelta(seconds=1))


def revoke_later(team: Team) -> None:
    team.lists("runner", revoked={"at": RAN + DAY, "reason": "lost laptop"})


def replace_the_root(team: Team) -> None:
    """A second root, whose key git holds next to the first one's, signs the list again."""
    (team.root / TRUSTED / "next.pem").write_bytes(team.as_user("next").read_bytes())
    team.lists("runner", by="next")
    team.folder.joinpath("root.pem").write_bytes(team.folder.joinpath("next.pem").read_bytes())


@pytest.mark.parametrize("change", [rotate, expire, revoke_later, replace_the_root], ids=lambda each: each.__name__)
def test_what_happens_to_keys_every_year_gives_no_alarm(team: Team, change: Callable[[Team], None]) -> None:
    change(team)
    assert team.errors() == []
    assert team.report().verdict == "SOUND"


def revoke(team: Team) -> None:
    team.lists("runner", revoked={"at": RAN - DAY, "reason": "lost laptop"})


def sign_after_expiry(team: Team) -> None:
    team.lists("runner", until=RAN)


def sign_too_early(team: Team) -> None:
    team.lists("runner", start=RAN + DAY)


def give_no_time(team: Team) -> None:
    team.as_user("runner")
    times = {"start": "", "end": "yesterday", "seconds": 1.0, "peak_rss_bytes": 1}
    project.add_record(team.root, "train", times=times)
    team.as_user("auditor")


TAMPERINGS = [
    (revoke, REVOKED),
    (sign_after_expiry, f"{SIGNED} was valid until {project.START}"),
    (sign_too_early, f"{SIGNED} is not valid before 2026-01-02T00:00:00+00:00"),
    (give_no_time, "keys.json: key runner signed 1 run, the first at yesterday, but the time cannot be read (train)"),
]


@pytest.mark.parametrize(("tamper", "expected"), TAMPERINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_key_that_was_not_valid_is_named(team: Team, tamper: Callable[[Team], None], expected: str) -> None:
    tamper(team)
    (error,) = team.errors()
    assert expected in error
    assert team.report().verdict == "ALTERED"


def test_all_commits_are_checked_with_the_list_of_a_root(team: Team) -> None:
    roots = [team.folder / "root.pem"]
    for words in (["init", "-q"], ["add", "-Af"], ["commit", "-qm", "A run"]):
        subprocess.run([*GIT, *words], cwd=team.root, check=True)
    (commit,) = check_all_commits(team.root, roots=roots)
    assert (commit.stages, commit.attested) == (2, 2)
    revoke(team)
    (commit,) = check_all_commits(team.root, roots=roots)
    (finding,) = [each for each in commit.findings if each.level == "error"]
    assert (commit.attested, finding.stages) == (0, ("download", "train"))
    assert finding.message.startswith("key runner signed it, but is revoked since 2025-12-31T00:00:00+00:00")
    assert find("key=*", team.root)["places"], "find names what a revoked key signed, too"


def test_the_list_outweighs_a_key_that_is_named(team: Team) -> None:
    """An auditor who knows the runner's key need not know that it is revoked."""
    revoke(team)
    assert team.report(team.folder / "runner.pem").verdict == "ALTERED"


def edited(content: bytes) -> bytes:
    return content.replace(b'"payload": "', b'"payload": "AAAA')


def unsigned(content: bytes) -> bytes:
    return json.dumps(json.loads(content) | {"signatures": []}).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edited, "the signature is wrong"),
        (unsigned, "no root key signed this list"),
        (lambda _: b"{}", "payloadType"),
    ],
)
def test_a_list_that_no_root_signed_stops_the_check(team: Team, change: Callable[[bytes], bytes], message: str) -> None:
    (team.root / LIST).write_bytes(change((team.root / LIST).read_bytes()))
    with pytest.raises(DataError, match=message):
        team.report()


def test_only_a_root_signs_a_list(team: Team) -> None:
    """The runner signs a list in which its key is not revoked, and adds its own key as the root's."""
    revoke(team)
    for file in (team.root / TRUSTED).iterdir():
        file.unlink()
    team.lists("runner", by="thief", start=RAN - DAY)
    assert check(None, team.root).verdict == "SOUND", "without --root-key, the thief's key is a root"
    with pytest.raises(DataError, match="no root key signed this list"):
        team.report()
    (team.root / LIST).unlink()
    with pytest.raises(DataError, match="a root key signs a list of keys there"):
        team.report()


def test_a_second_entry_of_a_key_cannot_undo_its_revocation(team: Team) -> None:
    revoke(team)
    runner = team.folder / "runner.pem"
    team.as_user("root")
    with pytest.raises(DataError, match=r"keys\.json: .*runner and again are the same key; change its one entry"):
        change_list(team.root, "again", runner, {})


def test_a_key_of_the_list_cannot_sign_it(team: Team) -> None:
    with pytest.raises(DataError, match="would list the key that signs it"):
        team.lists("root")
    team.as_user("runner")
    keys = [{"name": "runner", "pem": (team.folder / "runner.pem").read_text(), "from": "2020-01-01T00:00:00Z"}]
    write_json(team.root / LIST, sign(json.dumps({"number": 9, "keys": keys}).encode(), LIST_TYPE))
    (team.folder / "root.pem").write_bytes((team.folder / "runner.pem").read_bytes())
    with pytest.raises(DataError, match="a key of this list signed it"):
        team.report()


def published(team: Team, by: str = "runner") -> None:
    """The runner, or another user, publishes its runs to the default remote."""
    team.as_user(by)
    for path in (project.MODEL, project.RAW):
        project.store(team.root, path, "storage")
    config = team.root / ".dvc/config"
    config.write_text("[core]\n    remote = storage\n" + config.read_text())
    publish(team.root, "storage")
    team.as_user("auditor")


def test_nothing_is_taken_from_a_log_by_a_revoked_key(team: Team) -> None:
    """An entry has no time, so it may be newer than the revocation."""
    published(team)
    assert Guard(team.root).entries != []
    revoke_later(team)
    assert team.errors() == []
    message = (
        r"key runner is revoked since .*, and it signed the newest entry .* Publish again with a key that is valid"
    )
    with pytest.raises(DataError, match=message):
        Guard(team.root)


def test_nothing_is_taken_if_the_key_of_a_record_was_not_valid(team: Team) -> None:
    """The key that signed the entry is valid; the one that signed the runs is not."""
    team.lists("newer", start=RAN - DAY)
    published(team, by="newer")
    assert Guard(team.root).entries != []
    sign_after_expiry(team)
    with pytest.raises(DataError, match=r"key runner signed 2 runs, .* but was valid until .*; nothing is taken"):
        Guard(team.root)


def test_an_entry_that_names_a_run_after_the_revocation_is_found(team: Team) -> None:
    published(team)
    revoke(team)
    assert any("names a run that ended later than its signature can be: key runner is" in e for e in team.errors())


def test_an_entry_by_an_old_key_that_names_a_later_run_is_found(team: Team) -> None:
    """A key may sign an entry with runs older than itself, but none with runs that ended after its time."""
    team.lists("old", start=RAN + DAY)
    published(team, by="old")
    assert team.errors() == []
    team.lists("old", start=RAN - DAY, until=RAN)
    assert any("later than its signature can be: key old was valid until" in error for error in team.errors())
    with pytest.raises(DataError, match=r"key old was valid until .*; nothing is taken from remote"):
        Guard(team.root)


def test_with_a_root_no_other_key_counts(team: Team) -> None:
    """A key in the folder of trusted keys may be the runner's own work."""
    (team.root / TRUSTED / "thief.pem").write_bytes(team.as_user("thief").read_bytes())
    thief = key_id((team.folder / "thief.pem").read_bytes())
    assert thief in trusted_keys(team.root)
    assert thief not in trusted_keys(team.root, roots=[team.folder / "root.pem"])


def test_the_verb_makes_and_changes_the_list(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(team.root)
    team.as_user("gpu")
    team.as_user("root")

    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["keys", *words], catch_exceptions=False)
        return done.stdout

    rows = checked("lineage keys", said("gpu", "--pem", "../gpu.pem", "--from", "2026-02-03", "--json"))
    assert [(each["name"], each["from"]) for each in rows] == [
        ("runner", "2025-12-31T00:00:00Z"),
        ("gpu", "2026-02-03T00:00:00Z"),
    ]
    said("gpu", "--revoked", "2026-03-01T12:00:00+02:00", "--reason", "stolen")
    rows = json.loads(said("--json"))
    assert rows[1]["revoked"] == {"at": "2026-03-01T12:00:00+02:00", "reason": "stolen"}
    assert rows[1]["pem"] == (team.folder / "gpu.pem").read_text()
    with pytest.raises(DataError, match="not a time"):
        said("gpu", "--until", "soon")
    with pytest.raises(DataError, match="has no key 'cpu'; add it with --pem FILE; it has runner, gpu"):
        said("cpu", "--until", "2027-01-01")
    team.as_user("runner")
    with pytest.raises(DataError, match="would list the key that signs it"):
        said("gpu", "--until", "2027-01-01")
    for words in (["gpu"], ["--pem", "../gpu.pem"], ["--reason", "stolen"]):
        with pytest.raises(DataError, match="a change needs the NAME of a key and an option"):
            said(*words)
    assert datetime.now(UTC) > RAN
