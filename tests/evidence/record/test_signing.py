"""Signed statements: DSSE envelopes of in-toto statements, by a key of the user."""

from __future__ import annotations

import base64
import importlib
import json
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from evidence.record.ledger import SIGNED
from evidence.record.reading import read_records
from evidence.record.record import recorded
from evidence.record.signing import (
    KEY_FILE,
    Envelope,
    key_file,
    key_id,
    own_key,
    own_public_keys,
    public_pem,
    sign,
    verify,
)
from evidence.record.statement import byproducts
from evidence.settings import validated
from ground.io import DataError


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A new key of this user, as a trusted key."""
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "keys/signing.pem"))
    pem = public_pem(own_key().public_key())
    return {key_id(pem): pem}


def envelope(payload: bytes = b"text", kind: str = "text/plain") -> Envelope:
    return validated(Envelope, sign(payload, kind), "envelope")


def public_of(_: int) -> bytes:
    return public_pem(own_key().public_key())


def test_what_was_signed_is_verified(own: dict[str, bytes], tmp_path: Path) -> None:
    assert verify(envelope(), own, "x") == (b"text", list(own))
    assert verify(envelope(), {}, "x") == (b"text", [])
    assert key_file().stat().st_mode & 0o777 == 0o600
    assert [path.name for path in key_file().parent.iterdir()] == ["signing.pem"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"payload": base64.b64encode(b"other").decode()}, "the signature is wrong"),
        ({"payload_type": "text/html"}, "the signature is wrong"),
        ({"payload": "?"}, "not a valid envelope"),
    ],
)
def test_an_edited_envelope_is_refused(own: dict[str, bytes], change: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=f"x: {message}"):
        verify(envelope().model_copy(update=change), own, "x")


def test_processes_that_start_together_make_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "keys/signing.pem"))
    with ProcessPoolExecutor(4) as pool:
        assert len(set(pool.map(public_of, range(8)))) == 1


def test_a_key_on_an_unknown_curve_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "signing.pem"))
    curve = ("-pkeyopt", "ec_paramgen_curve:secp112r1", "-out", str(tmp_path / "signing.pem"))
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", *curve], check=True)
    with pytest.raises(DataError, match=r"signing\.pem: cannot be used for signatures"):
        own_public_keys()


def test_without_a_usable_key_the_record_is_written_unsigned(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.pem").write_text("no key")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "broken.pem"))
    monkeypatch.chdir(project)
    with recorded("python -m stages.train full"):
        pass
    newest = read_records(project, "train@full")
    assert [record.path.with_suffix(SIGNED).exists() for record in newest].count(False) == 1
    assert "the record of train@full is not signed" in capsys.readouterr().err


def test_the_statement_names_every_file_and_the_record(made: Path) -> None:
    (record,) = read_records(made, "train@full")
    document = json.loads(record.path.with_suffix(SIGNED).read_text())
    statement = json.loads(base64.b64decode(document["payload"]))
    assert document["payloadType"] == "application/vnd.in-toto+json"
    assert byproducts(statement)["record"] == record.digest == record.path.stem
    weights = record.content["outputs"]["models/full"]["files"]["weights.txt"]["sha256"]
    assert {"name": "models/full/weights.txt", "digest": {"sha256": weights}} in statement["subject"]
    named = {entry["name"] for entry in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert {"commit", "artifacts/raw/corpus/one.txt", "stages/train.py", "infra/locks/cpu.lock"} <= named
    assert byproducts({"predicate": {}}) == {}


def test_public_tools_accept_the_statement(made: Path) -> None:
    """``securesystemslib`` verifies the envelope, ``in-toto-attestation`` the statement and the predicate."""
    dsse = importlib.import_module("securesystemslib.dsse")
    signer = importlib.import_module("securesystemslib.signer")
    statements = importlib.import_module("in_toto_attestation.v1.statement")
    form = importlib.import_module("google.protobuf.json_format")
    message = importlib.import_module("in_toto_attestation.v1.statement_pb2").Statement()
    predicate = importlib.import_module("in_toto_attestation.predicates.provenance.v1.provenance_pb2").Provenance()
    (record,) = read_records(made, "train@full")
    found = dsse.Envelope.from_dict(json.loads(record.path.with_suffix(SIGNED).read_text()))
    key = signer.SSlibKey.from_crypto(own_key().public_key())
    (key.keyid,) = found.signatures
    assert list(found.verify([key], 1)) == [key.keyid]
    statement = json.loads(found.payload)
    statements.Statement.copy_from_pb(form.ParseDict(statement, message)).validate()
    assert form.ParseDict(statement["predicate"], predicate).run_details.builder.id
