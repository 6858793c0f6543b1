"""Unfinished work follows a run through the remote: only what is new is sent, and nothing that is not sound is used."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evidence.audit.trust import change_list
from evidence.record.signing import KEY_FILE, own_key, public_pem, sign
from extras import unfinished
from extras.unfinished import HOME, Copies, carried
from flows.local.storage import REMOTE, opened, shared
from ground.io import DataError, read_json
from ground.remote import open_store
from tests.flows.watch import soon
from tests.stages.test_label import set_params
from tests.support import warm
from tests.support.judge_process import counts, judge_process
from tests.support.stage_inputs import ROOT, write_raw

WORK = Path(".pathfinder/label/0a1b")
PAST = datetime(2026, 1, 1, tzinfo=UTC)
CARRY = """\
import subprocess, sys
from pathlib import Path
from extras import unfinished
from flows.local.storage import shared
unfinished.EVERY_S, unfinished._SHARE = 0.3, 0.0
with unfinished.carried(shared(Path.cwd(), unfinished.HOME), Path.cwd(), "label", lambda line: print(line, flush=True)):
    sys.exit(subprocess.run([sys.executable, "-m", "stages.label"]).returncode)
"""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(unfinished, "PIECE", 8)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "keys/signing.pem"))


def clone(tmp_path: Path, name: str) -> Copies:
    root = tmp_path / name
    root.mkdir()
    return Copies(root, opened(root, str(tmp_path / "remote"), HOME))


def write(copy: Copies, path: str, content: str) -> None:
    file = copy.root / WORK / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def fetched(copy: Copies, stage: str = "label") -> list[str]:
    return [Path(path).relative_to(WORK).as_posix() for path in copy.fetch("label", stage)]


def test_a_growing_journal_sends_its_last_piece_and_another_clone_continues_it(tmp_path: Path) -> None:
    one, other = clone(tmp_path, "one"), clone(tmp_path, "other")
    write(one, "journal.jsonl", "answer 1\nanswer 2\n")
    write(one, "examples/ids.npy", "made again")
    write(one, ".journal.part", "unfinished")
    assert one.send(one.root / WORK, "label") == 3
    assert one.send(one.root / WORK, "label") == 0
    write(one, "journal.jsonl", "answer 1\nanswer 2\nanswer 3\n")
    assert one.send(one.root / WORK, "label") == 2
    assert len(one.store.keys("label/0a1b/pieces/")) == 4, "the piece that was replaced is deleted"
    assert fetched(other, "train@full") == []
    assert fetched(other) == ["journal.jsonl"]
    assert (other.root / WORK / "journal.jsonl").read_text() == "answer 1\nanswer 2\nanswer 3\n"
    assert fetched(other) == []
    write(other, "journal.jsonl", "answer 1\nanswer 2\nanswer 3\nanswer 4\n")
    other.send(other.root / WORK, "label")
    write(one, "journal.jsonl", "answer 1\nanswer 2\nans")  # torn by a kill
    assert fetched(one) == ["journal.jsonl"]
    assert (one.root / WORK / "journal.jsonl").read_text().endswith("answer 4\n")


def test_a_journal_with_other_answers_stays(tmp_path: Path) -> None:
    one, other = clone(tmp_path, "one"), clone(tmp_path, "other")
    write(one, "journal.jsonl", "answer 1\nanswer 2\nanswer 3\n")
    one.send(one.root / WORK, "label")
    write(other, "journal.jsonl", "answer 1\nanswer X\n")
    assert fetched(other) == []
    assert (other.root / WORK / "journal.jsonl").read_text() == "answer 1\nanswer X\n"
    assert [path.name for path in (other.root / WORK).iterdir()] == ["journal.jsonl"]


def test_what_is_done_is_deleted_from_the_remote(tmp_path: Path) -> None:
    one = clone(tmp_path, "one")
    write(one, "checkpoint-5/part-0-of-1.safetensors", "weights")
    one.send(one.root / WORK, "train@full")
    assert one.finished() == []
    shutil.rmtree(one.root / WORK)
    assert one.finished() == ["label/0a1b"]
    one.drop("label/0a1b")
    assert (one.finished(), one.store.keys()) == ([], [])


def test_the_newest_checkpoint_is_sent_whole_although_training_deletes_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of the paper's size takes longer to send than training keeps it."""
    one, other = clone(tmp_path, "one"), clone(tmp_path, "other")
    for step in (9, 10):
        for suffix in ("safetensors", "json"):
            write(one, f"checkpoint-{step}/part-00000-of-00001.{suffix}", f"{suffix} of step {step}")
    write(one, "checkpoint-11/part-00000-of-00002.json", "the other process is still writing")
    put = one.store.put
    put(f"label/0a1b/pieces/{'0' * 64}", b"of a copy that did not complete")

    def slow(key: str, content: bytes) -> None:
        shutil.rmtree(one.root / WORK / "checkpoint-10", ignore_errors=True)
        put(key, content)

    monkeypatch.setattr(one.store, "put", slow)
    sent = one.send(one.root / WORK, "label")
    assert len(one.store.keys("label/0a1b/pieces/")) == sent, "pieces that no state names are deleted"
    names = [f"checkpoint-10/part-00000-of-00001.{suffix}" for suffix in ("json", "safetensors")]
    assert fetched(other) == names
    assert (other.root / WORK / names[1]).read_text() == "safetensors of step 10"
    assert not (one.root / WORK / ".sending").exists()
    shutil.rmtree(one.root / WORK)
    one.send(one.root / WORK, "label")
    assert one.finished() == ["label/0a1b"], "a finished training's folder is not made again"


def test_pieces_of_a_copy_that_did_not_complete_are_deleted_with_their_folder(tmp_path: Path) -> None:
    one = clone(tmp_path, "one")
    one.is_writer = lambda: False
    write(one, "journal.jsonl", "answer 1\n")
    assert one.send(one.root / WORK, "label") == 2
    shutil.rmtree(one.root / WORK)
    assert one.finished() == ["label/0a1b"]
    one.drop("label/0a1b")
    assert one.store.keys() == []


def test_a_piece_with_other_bytes_is_refused(tmp_path: Path) -> None:
    one, other = clone(tmp_path, "one"), clone(tmp_path, "other")
    write(one, "journal.jsonl", "answer 1\n")
    one.send(one.root / WORK, "label")
    key = one.store.keys("label/0a1b/pieces/")[0]
    one.store.put(key, b"answer 0")
    with pytest.raises(DataError, match=f"{key}: sha256 is .*, expected .*; it was changed in the remote"):
        fetched(other)
    assert not list((other.root / WORK).iterdir())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"revoked": {"at": PAST, "reason": "stolen"}}, "is revoked since 2026-01-01"),
        ({"until": PAST + timedelta(days=1)}, "was valid until 2026-01-02"),
    ],
)
def test_a_state_by_a_key_that_is_not_valid_now_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], problem: str
) -> None:
    one, other = clone(tmp_path, "one"), clone(tmp_path, "other")
    write(one, "journal.jsonl", "answer 1\n")
    one.send(one.root / WORK, "label")
    (tmp_path / "worker.pem").write_bytes(public_pem(own_key().public_key()))
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "root.pem"))
    change_list(other.root, "worker", tmp_path / "worker.pem", {"from": PAST})
    fetched(other)
    change_list(other.root, "worker", None, change)
    with pytest.raises(DataError, match=f"state.json: key worker {problem}.*; delete it in the remote"):
        fetched(other)


def test_a_state_of_someone_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = clone(tmp_path, "one"), clone(tmp_path, "other")
    write(one, "journal.jsonl", "answer 1\n")
    one.send(one.root / WORK, "label")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "other.pem"))
    with pytest.raises(DataError, match="not signed by a key that is trusted here"):
        fetched(other)


@pytest.mark.parametrize("path", ["../../../x", "/x"])
def test_a_path_outside_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    one = clone(tmp_path, "one")
    state = unfinished.State(folder="label/0a1b", stages=["label"], files={path: unfinished.File(size=0, pieces=[])})
    for kind, message in ((unfinished.TYPE, "leaves its folder"), ("another", "not signed by a key that is trusted")):
        envelope = sign(json.dumps(state.model_dump()).encode(), kind)
        one.store.put("label/0a1b/state.json", json.dumps(envelope).encode())
        with pytest.raises(DataError, match=message):
            fetched(one)


def test_a_remote_that_refuses_does_not_end_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setenv(REMOTE, str(tmp_path / "remote"))
    with carried(shared(tmp_path, HOME), tmp_path, "label", lines.append):
        (tmp_path / WORK).mkdir(parents=True)
        (tmp_path / WORK / "journal.jsonl").write_text("answer\n")
        (tmp_path / "remote").touch()  # a file where the folder should be
    assert [line.partition(": ")[0] for line in lines] == ["unfinished work could not be sent to the remote"]


def test_a_folder_with_changes_is_sent_whatever_the_clock_of_its_file_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTE, str(tmp_path / "remote"))
    older = tmp_path / ".pathfinder/label/older"
    older.mkdir(parents=True)
    (older / "journal.jsonl").write_text("answer\n")
    with carried(shared(tmp_path, HOME), tmp_path, "label", print):
        journal = tmp_path / WORK / "journal.jsonl"
        journal.parent.mkdir()
        journal.write_text("answer\n")
        for path in (journal, journal.parent):
            os.utime(path, (1, 1))
    sent = {key.split("/")[1] for key in open_store(str(tmp_path / "remote/unfinished")).keys("label/")}
    assert sent == {"0a1b"}, "only this run's work is sent"


def test_without_a_named_remote_and_for_other_stages_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stage, remote in (("label", ""), ("filter", str(tmp_path / "remote"))):
        monkeypatch.setenv(REMOTE, remote)
        with carried(shared(tmp_path, HOME), tmp_path, stage, print):
            (tmp_path / WORK).mkdir(parents=True, exist_ok=True)
            (tmp_path / WORK / "journal.jsonl").write_text("answer\n")
    assert not (tmp_path / "remote").exists()


@contextlib.contextmanager
def labelling(folder: Path, remote: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), REMOTE: remote}
    command = [sys.executable, "-c", CARRY]
    with warm.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        yield process


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*(folder / "artifacts/labels").iterdir()]}


@pytest.mark.campaign
def test_a_labelling_that_was_killed_continues_in_another_clone_without_asking_again(
    tmp_path: Path, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # pieces of the real size
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "signing.pem"))
    labelled_in_two_clones(tmp_path, str(tmp_path / "remote"), monkeypatch)


def labelled_in_two_clones(tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a labelling in one clone, and compare what another one makes of its journal in ``remote``."""
    first = tmp_path / "first"
    first.mkdir()
    monkeypatch.chdir(first)
    set_params(first)
    write_raw(first, lines=20)
    from stages.prepare import main as prepare

    prepare()
    (first / "artifacts/raw/models/judge").mkdir(parents=True)
    (first / "artifacts/raw/models/judge/weights").write_text("1")
    journal = open_store(f"{remote}/unfinished")
    with judge_process(str(ROOT), seconds=0.1) as url:
        set_params(first, engine="openai", base_urls=[f"{url}/v1"], concurrency=2, mistral_per_rating=1000)
        second = shutil.copytree(first, tmp_path / "second")
        with labelling(first, remote) as process:
            assert soon(lambda: journal.keys("label/") and counts(url)[0] > 15, 120)
            os.killpg(process.pid, signal.SIGKILL)
        assert not (first / "artifacts/labels").exists()
        reached = Copies(tmp_path / "check", opened(tmp_path / "check", remote, HOME))
        (path,) = list(reached.fetch("label", "label"))
        held = (tmp_path / "check" / path).read_bytes().count(b"\n")
        before = counts(url)[0]
        with labelling(second, remote) as process:
            output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert f"resumes with {path} from the remote" in output
        paid = read_json(second / "metrics/label.json")["calls"]
        assert held > 5
        assert counts(url)[0] - before == paid - held, "no answer that the journal held is asked for again"
        with labelling(first, str(tmp_path / "elsewhere")) as process:  # the first clone's own journal, another remote
            output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    print(f"\n{held} of {paid} answers came with the journal")
    assert results(first) == results(second)
