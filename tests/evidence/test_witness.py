"""A witness with a key of its own: who holds the runner's key and its disk cannot take back what it has seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evidence.__main__ import app
from evidence.record.ledger import LEDGER, RECORDS
from evidence.record.signing import KEY_FILE, own_key, public_pem
from evidence.remote.publication import publish
from evidence.remote.published import SEEN, SENT
from evidence.remote.witness import observe
from evidence.verbs.check import Report, check
from ground.io import DataError
from tests.evidence import small as project
from tests.evidence.small import NOTE
from tests.support.s3 import s3_bucket, s3_environment, s3_server
from tests.support.verbs import checked

STORE = "storage"


class Scene:
    """A project that published its runs, and the place where a second party keeps its notes."""

    def __init__(self, root: Path, place: str, patch: pytest.MonkeyPatch) -> None:
        self.root, self.place, self.key, self.patch = root, place, root.parent / "witness.pem", patch
        self.looked()

    def looked(self) -> None:
        """Let a witness with a key of its own sign what the project has now."""
        with self.patch.context() as patch:
            patch.setenv(KEY_FILE, str(self.root.parent / "witness/signing.pem"))
            observe(self.root, self.place)
            self.key.write_bytes(public_pem(own_key().public_key()))

    def report(self, *keys: Path) -> Report:
        return check(None, self.root, keys=keys or [self.key], testimony=self.place)

    def findings(self, *keys: Path) -> list[str]:
        return [str(each) for each in self.report(*keys).findings if str(each) != NOTE]


def ran(root: Path, ended: datetime) -> Path:
    """A run of a stage that says that it ended then."""
    times = {"start": ended.isoformat(), "end": ended.isoformat(), "seconds": 2.0, "peak_rss_bytes": 1}
    return project.add_record(root, "train", times=times)


@pytest.fixture
def scene(small: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    project.store(small, project.MODEL, STORE)
    project.store(small, project.RAW, STORE)
    publish(small, STORE)
    return Scene(small, str(small.parent / "notes"), monkeypatch)


def test_a_project_as_the_witness_saw_it_is_sound(scene: Scene) -> None:
    report = scene.report()
    assert scene.findings() == []
    assert report.read[-1] == f"witness {scene.place}"
    assert report.verdict == "SOUND"


def test_later_runs_give_no_alarm(scene: Scene) -> None:
    ran(scene.root, datetime.now(UTC))
    publish(scene.root, STORE)
    assert scene.findings() == []
    Path(scene.place, "witness/README.md").write_text("Notes of a second party.\n")
    scene.looked()
    assert scene.findings() == []


def forget(root: Path) -> None:
    """Delete what this machine remembers of logs."""
    for memory in (SENT, SEEN):
        (root / memory).unlink(missing_ok=True)


def written_anew(root: Path, stages: tuple[str, ...]) -> None:
    """The runner signs a history of its choice: records, statements, ledger and log agree with one another."""
    for evidence in (RECORDS, Path(STORE, "pathfinder")):
        shutil.rmtree(root / evidence, ignore_errors=True)
    forget(root)
    for stage in stages:
        project.add_record(root, stage)
    publish(root, STORE)


def drop_a_run(root: Path) -> None:
    written_anew(root, ("train",))


def exchange_two_runs(root: Path) -> None:
    written_anew(root, ("train", "download"))


def restore_an_older_state(root: Path) -> None:
    """The ledger as it was before its last line, with no record of the run."""
    lines = (root / LEDGER).read_bytes().splitlines(keepends=True)
    (root / LEDGER).write_bytes(b"".join(lines[:-1]))
    for file in (root / RECORDS / "train").iterdir():
        file.unlink()
    shutil.rmtree(root / STORE / "pathfinder")
    forget(root)


def cut_the_log(root: Path) -> None:
    (root / STORE / "pathfinder/log/00000001.json").unlink()
    for kind in ("manifests", "signatures"):
        shutil.rmtree(root / STORE / "pathfinder" / kind)
    forget(root)


def date_a_run_back(root: Path) -> None:
    ran(root, datetime.now(UTC) - timedelta(hours=1))


def give_no_time(root: Path) -> None:
    times = {"start": "", "end": "yesterday", "seconds": 2.0, "peak_rss_bytes": 1}
    project.add_record(root, "train", times=times)


def rename_the_remote(root: Path) -> None:
    config = root / ".dvc/config"
    config.write_text(config.read_text().replace('"storage"', '"other"'))


TAMPERINGS: list[tuple[Callable[[Path], None], str]] = [
    (drop_a_run, f"error: {LEDGER}: line 2 is not the one that witness "),
    (exchange_two_runs, f"error: {LEDGER}: line 2 is not the one that witness "),
    (restore_an_older_state, f"error: {LEDGER}: line 2 is not the one that witness "),
    (cut_the_log, "error: storage/pathfinder/log: entry 1 is not the one that witness "),
    (drop_a_run, "error: storage/pathfinder/log: entry 1 is not the one that witness "),
    (date_a_run_back, "is not in the ledger that witness "),
    (give_no_time, "is not in the ledger that witness "),
    (rename_the_remote, "the log of remote storage, which the witness saw, was not read"),
]


@pytest.mark.parametrize(("tamper", "expected"), TAMPERINGS, ids=lambda value: getattr(value, "__name__", "finding"))
def test_whoever_has_the_key_and_the_disk_is_found(scene: Scene, tamper: Callable[[Path], None], expected: str) -> None:
    tamper(scene.root)
    assert [each for each in scene.findings() if expected in each] != []
    assert scene.report().verdict == "ALTERED"


@pytest.mark.parametrize("tamper", [drop_a_run, exchange_two_runs, date_a_run_back], ids=lambda each: each.__name__)
def test_without_the_witness_nobody_sees_it(scene: Scene, tamper: Callable[[Path], None]) -> None:
    tamper(scene.root)
    found = [each for each in project.found(scene.root) if "not reproducible" not in each and "no record" not in each]
    assert found == []


def test_a_run_that_was_published_late_is_a_note(scene: Scene) -> None:
    """A clone has the log, but no ledger: a run that is back-dated cannot be told from one that was late."""
    ran(scene.root, datetime.now(UTC) - timedelta(hours=1))
    publish(scene.root, STORE)
    shutil.rmtree(scene.root / RECORDS)
    forget(scene.root)
    notes = scene.findings()
    assert [each.partition(": ")[0] for each in notes] == ["note"] * len(notes)
    assert any(f"{LEDGER}: is not here, so it was not compared" in each for each in notes)
    assert any("and was published later or back-dated (train)" in each for each in notes)


def test_notes_need_a_trusted_key_that_signs_no_runs(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "runner.pem").write_bytes(public_pem(own_key().public_key()))
    (line,) = scene.findings(tmp_path / "runner.pem")
    assert "no trusted key signed this note; name the public key of the witness with --key" in line
    shutil.rmtree(scene.place)
    observe(scene.root, scene.place)  # the runner's own
    (line,) = scene.findings()
    assert line.endswith("a key that signs runs also signed as the witness, so it is not a second party")


def test_notes_that_were_changed_are_named(scene: Scene) -> None:
    scene.looked()
    first, _ = sorted(Path(scene.place, "witness").iterdir())
    saved = first.read_bytes()
    first.unlink()
    assert ["the chain is broken" in each for each in scene.findings()] == [True]
    first.write_bytes(saved.replace(b'"payload": "', b'"payload": "QUJD'))
    assert ["edited after it was signed" in each for each in scene.findings()] == [True]
    first.write_bytes(b"{}")
    assert ["not the expected form" in each for each in scene.findings()] == [True]
    shutil.rmtree(scene.place)
    assert ["has no notes of a witness" in each for each in scene.findings()] == [True]


def test_a_project_without_evidence_has_nothing_to_see(small: Path) -> None:
    shutil.rmtree(small / RECORDS)
    with pytest.raises(DataError, match="no ledger and no log are here"):
        observe(small, str(small.parent / "notes"))


def test_a_witness_in_a_bucket(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as endpoint:
        for name, value in s3_environment(endpoint).items():
            monkeypatch.setenv(name, value)
        scene = Scene(small, f"{s3_bucket(endpoint)}/witness-of/project", monkeypatch)
        assert scene.findings() == []
        written_anew(small, ("train",))
        assert any("line 2 is not the one that witness" in each for each in scene.findings())


def test_the_verbs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--root``, a place is relative to the auditor's folder."""
    monkeypatch.chdir(scene.root.parent)
    done = CliRunner().invoke(app, ["witness", "notes", "--root", "project", "--json"])
    shown = checked("lineage witness", done.stdout)
    assert (shown["note"], shown["ledger"], shown["logs"]) == (2, 2, {STORE: 1})
    words = ["check", "--root", "project", "--witness", "notes", "--key", "witness.pem", "--json"]
    report = json.loads(CliRunner().invoke(app, words).stdout)
    assert [each["message"] for each in report["findings"] if each["level"] == "error"] == [
        "a key that signs runs also signed as the witness, so it is not a second party"
    ]
