"""The OpenSSF signature of a model folder, which the ``model_signing`` package verifies.

It is a Sigstore bundle with a DSSE envelope around an in-toto statement that names every file of the folder and its
sha256, except the card: publishing replaces it by a card with results. The bundle is kept next to the record of the run
that made the model: a file in the folder would change the out.
Format: https://github.com/ossf/model-signing-spec
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from evidence.record.signing import (
    Envelope,
    own_model_key,
    pre_authentication,
    public_pem,
    wrong_signatures_refused,
)
from evidence.record.statement import PAYLOAD_TYPE, STATEMENT
from evidence.settings import SETTINGS, Form, parsed
from ground.io import DataError, parse_json, sha256_of

MODELS = SETTINGS.models
"""The folder of the outs that are models."""
CARD = "README.md"
"""The file of a model folder that the signature leaves out."""
MODEL_SIGNATURE = ".sig"
"""Ending of the signature; the rest of its name is the record's."""
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PREDICATE = "https://model_signing/signature/v1.0"


class KeyHint(Form):
    """The sha256 of the public key's PEM."""

    hint: str


class Material(Form):
    """The part of a bundle that says which key to use."""

    public_key: KeyHint = Field(alias="publicKey")
    log_entries: list[Any] = Field(alias="tlogEntries")


class Bundle(Form):
    """A Sigstore bundle with a DSSE envelope."""

    media_type: str = Field(alias="mediaType")
    material: Material = Field(alias="verificationMaterial")
    envelope: Envelope = Field(alias="dsseEnvelope")


def model_of(record: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """The model folder that a run made, and the sha256 of its files by name; ``None`` if it made none."""
    for path, entry in record["outputs"].items():
        if path.startswith(MODELS) and entry.get("files"):
            return path, {name: file["sha256"] for name, file in sorted(entry["files"].items())}
    return None


def sign_model(path: str, files: Mapping[str, str]) -> dict[str, Any]:
    """The bundle for a folder whose files have these sha256; raises ``DataError`` as ``own_model_key`` does."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = own_model_key()
    payload = json.dumps(_statement(path, files), sort_keys=True).encode()
    signature = key.sign(pre_authentication(PAYLOAD_TYPE, payload), ec.ECDSA(hashes.SHA256()))
    return {
        "mediaType": _BUNDLE,
        "verificationMaterial": {
            "publicKey": {"hint": sha256_of(public_pem(key.public_key()))},
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
        },
    }


def verify_model(content: bytes, path: str, files: Mapping[str, str], keys: Mapping[str, bytes], name: str) -> bool:
    """True if a trusted key signed exactly these files; ``False`` if the key is not among ``keys`` (PEM by name).

    Raises ``DataError`` with ``name`` if the signature is wrong, is about other files or is not well formed.
    """
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    bundle = parsed(Bundle, content, name)
    if (pem := keys.get(bundle.material.public_key.hint)) is None:
        return False
    with wrong_signatures_refused(name, "signature of a model"):
        key = serialization.load_pem_public_key(pem)
        if not isinstance(key, ec.EllipticCurvePublicKey) or len(bundle.envelope.signatures) != 1:
            raise DataError(f"{name}: expected one signature by an elliptic-curve key")
        payload = base64.b64decode(bundle.envelope.payload, validate=True)
        signature = base64.b64decode(bundle.envelope.signatures[0].sig, validate=True)
        key.verify(signature, pre_authentication(bundle.envelope.payload_type, payload), ec.ECDSA(hashes.SHA256()))
    if parse_json(payload, name) != _statement(path, files):
        raise DataError(f"{name}: signs different files of {path} from the record")
    return True


def _statement(path: str, files: Mapping[str, str]) -> dict[str, Any]:
    """The statement about a folder: every file but the card, and the sha256 over their digests in order."""
    signed = {name: files[name] for name in sorted(files) if name != CARD}
    whole = hashlib.sha256(b"".join(map(bytes.fromhex, signed.values())))
    ignored = [CARD] if CARD in files else []
    return {
        "_type": STATEMENT,
        "subject": [{"name": path.rpartition("/")[2], "digest": {"sha256": whole.hexdigest()}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": ignored,
            },
            "resources": [{"name": name, "algorithm": "sha256", "digest": digest} for name, digest in signed.items()],
        },
    }
