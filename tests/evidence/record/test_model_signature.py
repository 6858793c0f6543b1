"""The signature of a model: the ``model_signing`` package verifies it, and the audit notices every edit."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from evidence.record.model_signature import MODEL_SIGNATURE, model_of, verify_model
from evidence.record.reading import read_records
from evidence.record.signing import key_id, model_key_file, own_model_key, public_pem
from ground.io import DataError


@pytest.fixture
def signed(project: Path) -> tuple[bytes, str, dict[str, str]]:
    (record,) = read_records(project, "train@full")
    model = model_of(record.content)
    assert model is not None
    return (record.path.with_suffix(MODEL_SIGNATURE).read_bytes(), *model)


def test_model_signing_verifies_the_signature_of_a_run(project: Path, tmp_path: Path) -> None:
    verifying: Any = importlib.import_module("model_signing.verifying")
    (record,) = read_records(project, "train@full")
    public = tmp_path / "models.pem"
    public.write_bytes(public_pem(own_model_key().public_key()))
    config = verifying.Config().use_elliptic_key_verifier(public_key=public)
    signature = record.path.with_suffix(MODEL_SIGNATURE)
    config.verify(project / "models/full", signature)
    more = project / "models/full/more.txt"
    for file in (project / "models/full/weights.txt", more):
        file.write_text("other")
        with pytest.raises(ValueError, match="Signature mismatch"):
            config.verify(project / "models/full", signature)


def test_an_edited_signature_is_found(signed: tuple[bytes, str, dict[str, str]]) -> None:
    content, path, files = signed
    pem = public_pem(own_model_key().public_key())
    keys = {key_id(pem): pem}
    assert verify_model(content, path, files, keys, "a.sig")
    assert not verify_model(content, path, files, {}, "a.sig")
    with pytest.raises(DataError, match="signs different files of models/full"):
        verify_model(content, path, files | {"weights.txt": "0" * 64}, keys, "a.sig")
    bundle = json.loads(content)
    bundle["dsseEnvelope"]["payload"] = bundle["dsseEnvelope"]["payload"].replace("A", "B", 1)
    with pytest.raises(DataError, match="the signature is wrong"):
        verify_model(json.dumps(bundle).encode(), path, files, keys, "a.sig")
    with pytest.raises(DataError, match="dsseEnvelope: Field required"):
        verify_model(
            json.dumps({k: v for k, v in bundle.items() if k != "dsseEnvelope"}).encode(), *signed[1:], keys, "a.sig"
        )


def test_a_stage_without_a_model_has_no_signature(project: Path) -> None:
    (record,) = read_records(project, "download")
    assert model_of(record.content) is None
    assert not record.path.with_suffix(MODEL_SIGNATURE).exists()
    assert model_key_file().stat().st_mode & 0o777 == 0o600
