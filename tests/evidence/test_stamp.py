"""A time stamp (RFC 3161) by an authority of this machine makes the runner's own note as good as a second party's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.audit.trust import LIST, change_list
from evidence.record.ledger import LEDGER, RECEIPT, RECORDS, SIGNED, enter_received
from evidence.record.signing import KEY_FILE, own_key, public_pem
from evidence.remote import witness
from evidence.remote.publication import publish
from evidence.remote.stamp import stamped
from evidence.remote.witness import observe
from evidence.verbs.check import Report, check
from ground.io import DataError, TransientError
from tests.evidence import small as project
from tests.evidence.test_witness import STORE, date_a_run_back, drop_a_run, ran
from tests.support.tsa import authority, make_authority

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def tsa(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of an authority, and the file with its root's certificate."""
    folder = tmp_path_factory.mktemp("tsa") / "own"
    root = make_authority(folder)
    with authority(folder) as url:
        yield url, root


class Scene:
    """A project whose runner signs its own notes in a place that it cannot change, each with a time stamp."""

    def __init__(self, root: Path, tsa: tuple[str, Path]) -> None:
        self.root, (self.url, self.certificate) = root, tsa
        self.place = str(root.parent / "notes")
        self.looked()

    def looked(self) -> None:
        observe(self.root, self.place, self.url)

    def report(self, *certificates: Path) -> Report:
        return check(None, self.root, testimony=self.place, tsas=certificates or [self.certificate])

    def errors(self, *certificates: Path) -> list[str]:
        return [str(each) for each in self.report(*certificates).errors]

    def stamps(self) -> list[Path]:
        return sorted(Path(self.place, "stamps").iterdir(), key=lambda file: file.stat().st_mtime_ns)


@pytest.fixture
def scene(small: Path, tsa: tuple[str, Path]) -> Scene:
    project.store(small, project.MODEL, STORE)
    project.store(small, project.RAW, STORE)
    publish(small, STORE)
    return Scene(small, tsa)


def test_stamped_notes_of_the_runner_are_a_witness(scene: Scene) -> None:
    assert scene.report().verdict == "SOUND"
    ran(scene.root, datetime.now(UTC))
    scene.looked()
    assert scene.errors() == []
    assert "not a second party" in str(check(None, scene.root, testimony=scene.place).errors)


def exchange_stamps(scene: Scene) -> None:
    """The stamp of the second note, over another head, has the name of the first one."""
    ran(scene.root, datetime.now(UTC))
    scene.looked()
    first, second = scene.stamps()
    shutil.copy(second, first)


def delete_the_stamp(scene: Scene) -> None:
    scene.stamps()[0].unlink()


def edit_the_stamp(scene: Scene) -> None:
    (stamp,) = scene.stamps()
    content = bytearray(stamp.read_bytes())
    content[-10] ^= 1
    stamp.write_bytes(content)


def write_no_stamp(scene: Scene) -> None:
    scene.stamps()[0].write_text("granted")


def use_another_authority(scene: Scene) -> None:
    shutil.rmtree(scene.place)
    with authority(scene.root.parent / "other") as url:
        observe(scene.root, scene.place, url)


def back_date_a_run(scene: Scene) -> None:
    date_a_run_back(scene.root)


def drop_the_first_run(scene: Scene) -> None:
    drop_a_run(scene.root)


def back_date_the_note(scene: Scene) -> None:
    """A note of an older state, with a time before it, can only be stamped now."""
    shutil.rmtree(scene.place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(witness, "datetime", Earlier)
        scene.looked()


class Earlier(datetime):
    """A clock that is a day behind."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) - timedelta(days=1)


def post_date_a_run(scene: Scene) -> None:
    ran(scene.root, datetime.now(UTC) + HOUR)
    scene.looked()


TAMPERINGS: list[tuple[Callable[[Scene], None], str]] = [
    (exchange_stamps, "not a time stamp of this note by an authority that is trusted (Mismatch between messages)"),
    (delete_the_stamp, "a key that signs runs also signed as the witness"),
    (edit_the_stamp, "not a time stamp of this note by an authority that is trusted"),
    (write_no_stamp, "no time stamp (ASN.1 parse error"),
    (use_another_authority, "not a time stamp of this note by an authority that is trusted"),
    (back_date_a_run, "is not in the ledger that witness "),
    (drop_the_first_run, f"{LEDGER}: line 2 is not the one that witness "),
    (back_date_the_note, ", but its time stamp has "),
    (post_date_a_run, "says that it ended after "),
]


@pytest.mark.parametrize(("tamper", "expected"), TAMPERINGS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_a_stamp_disproves_is_found(scene: Scene, tamper: Callable[[Scene], None], expected: str) -> None:
    make_authority(scene.root.parent / "other")
    tamper(scene)
    assert any(expected in each for each in scene.errors()), scene.errors()
    assert scene.report().verdict == "ALTERED"


@pytest.fixture
def worker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """Receive the run of a worker, which ended two hours ago, and revoke its key as of a time from now."""

    def received(revoked: timedelta) -> None:
        own = (scene.root.parent / "key.pem").as_posix()

        def signs_in(name: str) -> Path:
            monkeypatch.setenv(KEY_FILE, str(scene.root.parent / name / "signing.pem"))
            (file := scene.root.parent / f"{name}.pem").write_bytes(public_pem(own_key().public_key()))
            return file

        public = signs_in("worker")
        ended = (datetime.now(UTC) - 2 * HOUR).isoformat()
        copy = Path(shutil.copytree(scene.root, scene.root.parent / "copy"))
        path = project.add_record(
            copy, "train", times={"start": ended, "end": ended, "seconds": 1.0, "peak_rss_bytes": 1}
        )
        files = {ending: path.with_suffix(ending).read_text() for ending in (".json", SIGNED)}
        monkeypatch.setenv(KEY_FILE, own)
        enter_received("train", path.stem, files, scene.root)
        assert (scene.root / RECORDS / "train" / f"{path.stem}{RECEIPT}").is_file()
        signs_in("root")
        since = {"from": datetime(2025, 1, 1, tzinfo=UTC)}
        change_list(scene.root, "worker", public, since)
        change_list(scene.root, "worker", None, {"revoked": {"at": datetime.now(UTC) + revoked, "reason": "stolen"}})
        monkeypatch.setenv(KEY_FILE, own)

    return received


def test_a_revoked_key_cannot_date_a_run_back(scene: Scene, worker: Callable[[timedelta], None]) -> None:
    """The run says that it ended before the revocation; no stamp of that time has it."""
    worker(-HOUR)
    found = scene.errors()
    assert len(found) == 1, found
    assert "but was received later, and key worker is revoked since " in found[0]
    assert "(stolen): nobody but its signer can say that it is older" in found[0]


def test_a_run_that_is_received_late_gives_no_alarm(scene: Scene, worker: Callable[[timedelta], None]) -> None:
    """Its key was revoked after the stamp that does not have it, so that stamp proves nothing against it."""
    worker(HOUR)
    assert scene.errors() == []
    scene.looked()
    assert scene.errors() == []


def test_an_older_list_of_keys_is_found(scene: Scene, worker: Callable[[timedelta], None]) -> None:
    """The root signed it, before it revoked a key."""
    worker(HOUR)
    before = (scene.root / LIST).read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_FILE, str(scene.root.parent / "root/signing.pem"))
        change_list(scene.root, "worker", None, {"revoked": {"at": datetime.now(UTC) - 3 * HOUR, "reason": "stolen"}})
    scene.looked()
    assert not any("is older than" in each for each in scene.errors())
    (scene.root / LIST).write_bytes(before)
    assert any(f"{LIST.as_posix()}: is older than version 3 that witness " in each for each in scene.errors())


def test_an_authority_that_does_not_answer_or_answers_something_else(scene: Scene, tsa: tuple[str, Path]) -> None:
    with pytest.raises(TransientError, match="does not answer"):
        observe(scene.root, f"{scene.place}2", "http://127.0.0.1:9")
    assert not Path(f"{scene.place}2").exists() or not [*Path(f"{scene.place}2").rglob("*.dsse")]
    with pytest.raises(DataError, match="give the address of a time-stamp authority"):
        stamped(b"note", "file:///etc/passwd")
    with pytest.raises(DataError, match=r"^127\.0\.0\.1:9: an address must not name a user or a password"):
        stamped(b"note", "http://me:secret@127.0.0.1:9")
    folder = scene.root.parent / "replay"
    make_authority(folder)
    with authority(folder) as url:
        (folder / "tsa.cnf").write_text((folder / "tsa.cnf").read_text().replace("sha256\ness", "sha512\ness"))
        with pytest.raises(DataError, match=r"no time stamp .refused with status 2"):
            stamped(b"note", url)


def test_a_file_without_certificates_is_named(scene: Scene) -> None:
    with pytest.raises(DataError, match=r"weights.txt: has no certificate of a time-stamp authority"):
        scene.report(scene.root / project.MODEL / "weights.txt")


def test_the_verbs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scene.root)
    done = CliRunner().invoke(app, ["witness", "../notes", "--stamp", scene.url, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["note"] == 2
    words = ["check", "--witness", "../notes", "--tsa", str(scene.certificate)]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout.splitlines()[-1].partition(":")[0]) == (0, "SOUND"), done.stdout
