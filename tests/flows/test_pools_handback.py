"""A worker's result is taken only if a trusted key signed that it is the run that was ordered."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from evidence.dvc.history import next_run
from evidence.dvc.stores import FOLDER, object_file, run_cache_key
from evidence.record.ledger import SIGNED
from evidence.record.reading import read_records
from evidence.record.signing import KEY_FILE, key_id, own_public_keys, sign
from evidence.record.statement import PAYLOAD_TYPE, statement_of
from evidence.remote import made as handing
from evidence.remote.made import Made, Order, hand_back, receive
from evidence.verbs.check import check
from flows.local import storage
from flows.local.dvc import Dvc
from flows.local.graph import load_graph
from flows.team.pools.away import Away
from flows.team.pools.order import committed, needed, place
from flows.team.pools.table import Needs
from ground.io import DataError
from tests.flows.conftest import Project
from tests.flows.test_branch import git
from tests.flows.test_pools_handover import STAGE, published
from tests.support import warm

LOCK = Path("infra/locks/cpu.lock")
VERSION = metadata.version("pydantic")
Change = Callable[[dict[str, Any]], None]


def changed(made: Made, **values: object) -> Made:
    """The result with different values."""
    return made.model_copy(update=values)


@dataclass(frozen=True, slots=True)
class Handed:
    """The folder of a run, its worker's key, the result that the worker handed back, and the bucket between them."""

    root: Path
    key: Path
    made: Made
    bucket: Path
    order: Order

    def receive(self, made: Made, packages: str = "locked") -> list[str]:
        """Take a result as a run does; returns what the run says about it."""
        said: list[str] = []
        needs = Needs(packages="any" if packages == "any" else "locked")
        allow = lambda others: needs.require_packages(STAGE, others, said.append)  # noqa: E731
        receive(self.root, self.order, made, str(self.bucket), allow)
        return said

    def record(self) -> dict[str, Any]:
        """The record that the worker signed."""
        (key,) = (key for key in self.made.evidence if key.endswith(".json"))
        content: dict[str, Any] = json.loads((self.bucket / FOLDER / key).read_bytes())
        return content

    def forged(self, change: Change, by: Path | None = None) -> Made:
        """The result with a changed record, signed anew with the worker's key or with the key ``by``."""
        record = self.record()
        change(record)
        text = json.dumps(record)
        digest = hashlib.sha256(text.encode()).hexdigest()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(KEY_FILE, str(by or self.key))
            statement = json.dumps(sign(json.dumps(statement_of(record, digest, {})).encode(), PAYLOAD_TYPE))
        return self.put({f"records/{STAGE}/{digest}.json": text, f"records/{STAGE}/{digest}{SIGNED}": statement})

    def put(self, files: dict[str, str]) -> Made:
        """The result with these files as its evidence, which the bucket gets."""
        for key, text in files.items():
            (self.bucket / FOLDER / key).write_text(text)
        digests = {key: hashlib.sha256(text.encode()).hexdigest() for key, text in files.items()}
        return changed(self.made, evidence=digests)

    def refused(self, made: Made, packages: str = "locked") -> str:
        """The line that refuses a result, of which nothing is left."""
        before = self.kept()
        with pytest.raises(DataError) as caught:
            self.receive(made, packages)
        assert self.kept() == before
        line = str(caught.value)
        assert "\n" not in line
        return line

    def kept(self) -> dict[str, bytes]:
        """The content of cache, run cache, records and ledger, and the lock."""
        folders = (self.root / ".dvc/cache", self.root / ".pathfinder/lineage")
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in [*files, self.root / "dvc.lock"]}


@pytest.fixture(scope="module")
def handed(make_project: Callable[[], Project], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handed]:
    """A worker with its own key, which the project trusts, has run the stage in a clone with only its inputs."""
    folder, project = tmp_path_factory.mktemp("handed"), make_project()
    bucket, key, trusted = folder / "bucket", folder / "worker/signing.pem", project.root / "infra/keys/worker.pem"
    with warm.starts(), pytest.MonkeyPatch.context() as patch:
        patch.setenv(storage.REMOTE, str(bucket))
        (project.root / LOCK).parent.mkdir(parents=True)
        (project.root / LOCK).write_text(f"pydantic=={VERSION}\n")
        with patch.context() as own:
            own.setenv(KEY_FILE, str(key))
            trusted.parent.mkdir()
            trusted.write_bytes(own_public_keys()[0])
        origin = published(project)
        flow, worker = Dvc(project.root), Dvc(folder / "clone")
        git(folder, "clone", "-q", str(origin), "clone")
        for each in (flow, worker):
            storage.configure(each.root)
        flow.reproduce("numbers", on_line=print)
        flow.push("numbers")
        graph = load_graph(flow.root)
        order = Order(next_run(flow.root, graph.stages[STAGE]), committed(flow.root, graph, [STAGE]))
        with patch.context() as own:
            own.setenv(KEY_FILE, str(key))
            place(worker, STAGE, needed(flow.root, graph, STAGE))
            worker.reproduce(STAGE, on_line=print)
            worker.push(STAGE)
            made = hand_back(worker.root, STAGE, "ran", str(bucket))
        yield Handed(flow.root, key, made, bucket, order)


@pytest.fixture(autouse=True)
def no_out_is_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused result must be refused before its outs are read."""
    if "taken" not in request.node.name:
        monkeypatch.setattr(handing, "fetch_outs", lambda *_, **__: pytest.fail("read an out"))


def test_a_key_that_nobody_trusts_is_named_with_the_remedy(handed: Handed, tmp_path: Path) -> None:
    """A worker with an empty HOME makes a key and signs everything with it."""
    fresh = tmp_path / "signing.pem"
    line = handed.refused(handed.forged(lambda _: None, by=fresh))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_FILE, str(fresh))
        (pem, _) = own_public_keys()
    actor = handed.record()["actor"]
    assert line.startswith(f"{STAGE}: key {key_id(pem)[:12]}, which is not trusted here, signed the worker's record (")
    assert f"by {actor['user']} on {actor['host']})" in line
    assert "commit its public half to infra/keys/ (see docs/audit.md), push, and run again" in line


def test_a_record_without_its_signature_is_refused(handed: Handed) -> None:
    evidence = {key: sha256 for key, sha256 in handed.made.evidence.items() if key.endswith(".json")}
    assert "the worker's record is not signed" in handed.refused(changed(handed.made, evidence=evidence))
    assert "handed back 0 records of its run" in handed.refused(changed(handed.made, evidence={}))


def of_another_commit(record: dict[str, Any]) -> None:
    record["git"]["commit"] = "0" * 40


def with_another_input(record: dict[str, Any]) -> None:
    record["inputs"]["out/numbers.txt"]["md5"] = "0" * 32


def with_one_more_out(record: dict[str, Any]) -> None:
    record["outputs"]["out/odd.txt"] = record["outputs"]["out/even.txt"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.update(stage="square@odd"), "is of stage square@odd"),
        (of_another_commit, f"the commit is '{'0' * 40}' in the worker's signed record and '"),
        (lambda record: record.update(cmd="python make.py odd"), "its command is 'python make.py odd' in the worker's"),
        (with_another_input, f"out/numbers.txt is '{'0' * 32}' in the worker's signed record and '"),
        (lambda record: record.update(params={"count": 9}), "parameter count is 9 in the worker's signed record and "),
        (with_one_more_out, "out/odd.txt is 'an out' in the worker's signed record and None in the order"),
    ],
)
def test_a_signed_record_of_another_run_is_refused(handed: Handed, change: Change, words: str) -> None:
    line = handed.refused(handed.forged(change))
    assert line.startswith(f"{STAGE}: ")
    assert words in line


def test_outs_that_the_record_does_not_state_are_refused(handed: Handed) -> None:
    outs = {**handed.made.outs, "out/even.txt": handed.order.stage.deps["out/numbers.txt"]}
    line = handed.refused(changed(handed.made, outs=outs))
    assert re.search(
        r"out/even.txt is '\w{32}' in the worker's signed record and '\w{32}' in what .* handed back", line
    )


def test_another_version_of_a_package_is_refused_unless_the_table_allows_it(handed: Handed) -> None:
    (handed.root / LOCK).write_text("pydantic==1.0\n")
    try:
        line = handed.refused(handed.made)
        told = f"{STAGE}: the worker has pydantic {VERSION} instead of 1.0 (pinned in infra/locks); "
        assert line == (
            f"{told}run `make env` there and run again, or allow it with `packages: any` in infra/resources.yaml"
        )
        said: list[str] = []
        Needs(packages="any").require_packages(STAGE, [f"pydantic {VERSION} instead of 1.0"], said.append)
        assert said == [f"{told}`packages: any` in infra/resources.yaml allows it"]
    finally:
        (handed.root / LOCK).write_text(f"pydantic=={VERSION}\n")

    def in_a_process(record: dict[str, Any]) -> None:
        record["unlocked_packages"] = {"numpy in grader": ["2.2.6", "2.4.6"], "tzdata in grader": [None, "2026.6"]}

    line = handed.refused(handed.forged(in_a_process))
    assert "the worker has numpy in grader 2.2.6 instead of 2.4.6 (" in line


def test_an_edited_record_is_refused(handed: Handed) -> None:
    text = json.dumps({**handed.record(), "notes": {"edited": True}})
    files = {key: (handed.bucket / FOLDER / key).read_text() for key in handed.made.evidence}
    (name,) = (key for key in files if key.endswith(".json"))
    try:
        line = handed.refused(handed.put({**files, name: text}))
        assert f"the worker's record {name.rpartition('/')[2]}: has sha256 " in line
        line = handed.refused(handed.made)
        assert "it was changed in the remote" in line
    finally:
        handed.put(files)
    digest = hashlib.sha256(text.encode()).hexdigest()
    signed = files[name.replace(".json", SIGNED)]
    line = handed.refused(
        handed.put({f"records/{STAGE}/{digest}.json": text, f"records/{STAGE}/{digest}{SIGNED}": signed})
    )
    assert "is a statement about another record" in line
    wrong = signed.replace('"sig": "', '"sig": "A')
    line = handed.refused(handed.put({**files, name.replace(".json", SIGNED): wrong}))
    assert line.startswith(f"{STAGE}: nothing of the worker's result is taken: {STAGE}/")
    handed.put(files)


def test_a_file_that_no_record_needs_is_refused(handed: Handed) -> None:
    files = {key: (handed.bucket / FOLDER / key).read_text() for key in handed.made.evidence}
    more = {key.replace(".json", ".sig"): "{}" for key in files if key.endswith(".json")}
    assert "not the files of one record" in handed.refused(handed.put({**files, **more}))


@pytest.mark.parametrize(
    "name",
    ["{0}/../../../ledger.json", "../../etc/passwd", "square@odd/{1}.json", "{0}/{1}.received.dsse", "{0}/x.json"],
)
def test_names_outside_the_record_s_folder_are_refused(handed: Handed, name: str) -> None:
    key = f"records/{name.format(STAGE, '0' * 64)}"
    line = handed.refused(changed(handed.made, evidence={**handed.made.evidence, key: "0" * 64}))
    assert (
        line == f"{STAGE}: the worker named {key!r}, which is neither a file of its record nor an entry of a run cache"
    )
    assert "which is neither a file of its record" in handed.refused(changed(handed.made, runs={"../../etc/x": "0"}))


def test_an_entry_of_the_run_cache_must_state_the_signed_run(handed: Handed) -> None:
    (key,) = handed.made.runs
    text = (handed.bucket / key).read_text()
    even = handed.made.outs["out/even.txt"]
    planted = f"runs/00/{'0' * 64}/{'0' * 64}"
    others = [text.replace(even, "f" * 32), text.replace(even, f"{even}\n  push: false")]
    for where, content in [
        (planted, text),
        (planted, "- not an entry\n"),
        *((run_cache_key(yaml.safe_load(other)), other) for other in others),
    ]:
        assert where != key
        file = handed.bucket / where
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        line = handed.refused(changed(handed.made, runs={where: hashlib.sha256(content.encode()).hexdigest()}))
        assert where in line or "run.yaml" in line
        file.unlink()  # `check` would find it
    line = handed.refused(changed(handed.made, runs={key: "0" * 64}))
    assert "it was changed in the remote" in line


def test_a_result_is_taken_by_a_run(handed: Handed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run refuses changed bytes, then takes an earlier run of the worker at a commit that it knows."""
    path = object_file(handed.bucket, handed.made.outs["out/even.txt"])
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"0\n")
    with pytest.raises(DataError, match="changed in the remote and is not installed"):
        handed.receive(handed.made)
    path.write_bytes(content)

    def with_another_sha256(record: dict[str, Any]) -> None:
        record["outputs"]["out/even.txt"]["sha256"] = "0" * 64

    with pytest.raises(DataError, match=f"sha256 is .*, expected {'0' * 64}; it belongs to out/even.txt"):
        handed.receive(handed.forged(with_another_sha256))
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(handing, "enter_received", Mock(side_effect=KeyboardInterrupt))
        handed.receive(handed.made)
    assert not any((handed.root / ".dvc/cache" / run).exists() for run in handed.made.runs), "DVC would restore it"
    git(handed.root, "commit", "-q", "--allow-empty", "-m", "A later commit")
    later = committed_head(handed.root)
    away = Away(Dvc(handed.root), load_graph(handed.root), str(handed.bucket))
    away.needs = {STAGE: Needs(pool="gpu")}
    away._commit = later
    for name in ("_start", "_follow", "_require_completed"):
        monkeypatch.setattr(away, name, lambda *_: None)
    monkeypatch.setattr(away.leases, "made", lambda *_: handed.made)
    with pytest.raises(DataError, match=f"the commit is '{handed.order.commit}' in the worker's .* '{later}' in the"):
        away.run_away(STAGE, True, print)
    monkeypatch.setattr(away.leases, "has_earlier", lambda *_: False)  # another run made it after this one had asked
    (handed.root / LOCK).write_text("pydantic==1.0\n")
    away.needs = {STAGE: Needs(pool="gpu", packages="any")}
    said: list[str] = []
    assert away.run_away(STAGE, False, said.append) == "ran"
    assert [line for line in said if "`packages: any`" in line] == [
        f"{STAGE}: the worker has pydantic {VERSION} instead of 1.0 (pinned in infra/locks); `packages: any` in "
        "infra/resources.yaml allows it"
    ]
    assert (handed.root / "out/even.txt").read_bytes() == content
    (record,) = read_records(handed.root, STAGE)
    assert record.content == handed.record()
    errors = [finding for finding in check(root=handed.root).errors if STAGE in finding.stages]
    assert not errors


def committed_head(root: Path) -> str:
    """The commit that is checked out."""
    from evidence.record.environment import git as read

    return (read("rev-parse", "HEAD", root=root) or "").strip()
