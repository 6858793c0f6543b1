"""Signatures of a run's records: DSSE envelopes with an Ed25519 key of this user.

The key is made on first use, in ``signing.pem`` below the user's configuration folder, outside of any project; the
variable ``KEY_FILE`` names another file. A signature proves that the key was used. If the runner can read the key, the
signature proves nothing against the runner; evidence/README.md describes what does.
DSSE: https://github.com/secure-systems-lab/dsse
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from evidence.settings import PREFIX, SETTINGS, Form, parsed
from ground.io import DataError, exclusive_file, sha256_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_FILE = f"{PREFIX}SIGNING_KEY"
TRUSTED = Path(SETTINGS.keys)
"""Public keys (PEM) that the project trusts; git holds them."""


class Signature(Form):
    """One signature of an envelope, in base64."""

    keyid: str
    sig: str


class Envelope(Form):
    """A DSSE envelope; the payload is in base64."""

    payload_type: Annotated[str, Field(alias="payloadType")]
    payload: str
    signatures: list[Signature]


def key_file() -> Path:
    """The path of this user's private key; raises ``DataError`` for a user without a home folder."""
    if named := os.environ.get(KEY_FILE):
        return Path(named)
    try:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError as error:
        raise DataError(f"this user has no home folder for the key of signatures; name a file in {KEY_FILE}") from error
    return folder / SETTINGS.name / "signing.pem"


def model_key_file() -> Path:
    """The path of this user's private key for models: OpenSSF signatures exclude Ed25519."""
    return key_file().with_name(f"{key_file().stem}-models.pem")


def own_key() -> Ed25519PrivateKey:
    """This user's key, made on first use; raises ``DataError`` if the file cannot be used."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = _private_key(key_file(), Ed25519PrivateKey.generate)
    if not isinstance(key, Ed25519PrivateKey):
        raise DataError(f"{key_file()}: not an Ed25519 key; name another file in {KEY_FILE}")
    return key


def own_model_key() -> EllipticCurvePrivateKey:
    """This user's P-256 key for models, made on first use; raises ``DataError`` if the file cannot be used."""
    from cryptography.hazmat.primitives.asymmetric import ec

    key = _private_key(model_key_file(), lambda: ec.generate_private_key(ec.SECP256R1()))
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise DataError(f"{model_key_file()}: not a P-256 key; move it away")
    return key


def own_public_keys() -> list[bytes]:
    """The PEM of the keys that sign logs and models, the former first; they are made on first use.

    Raises ``DataError`` as ``own_key`` does: without both, a run is not signed.
    """
    return [public_pem(own_key().public_key()), public_pem(own_model_key().public_key())]


def public_pem(key: Ed25519PublicKey | EllipticCurvePublicKey) -> bytes:
    """The public key as PEM."""
    from cryptography.hazmat.primitives import serialization as form

    return key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def key_id(pem: bytes) -> str:
    """The name of a public key: the sha256 of its PEM."""
    return sha256_of(pem)


def read_public_keys(folder: Path) -> dict[str, bytes]:
    """The PEM of every public key in a folder (``*.pem``), by its name."""
    return {key_id(pem): pem for pem in map(read_pem, sorted(folder.glob("*.pem")))}


def read_pem(path: Path) -> bytes:
    """The text of a key with the line ends that its name is made from; git may have changed them."""
    return path.read_bytes().replace(b"\r\n", b"\n")


def sign(payload: bytes, payload_type: str) -> dict[str, object]:
    """An envelope signed with this user's key; raises ``DataError`` as ``own_key`` does."""
    key = own_key()
    signature = key.sign(pre_authentication(payload_type, payload))
    name = key_id(public_pem(key.public_key()))
    return {
        "payloadType": payload_type,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": name, "sig": base64.b64encode(signature).decode()}],
    }


def verify(envelope: Envelope, keys: Mapping[str, bytes], where: str) -> tuple[bytes, list[str]]:
    """The payload, and the names of the ``keys`` that signed it; empty if no signature is by one of them.

    Raises ``DataError`` with ``where`` if a signature by one of the keys is wrong or the envelope is not well formed.
    """
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signers = []
    with wrong_signatures_refused(where, "envelope"):
        payload = base64.b64decode(envelope.payload, validate=True)
        for signature in (each for each in envelope.signatures if each.keyid in keys):
            key = form.load_pem_public_key(keys[signature.keyid])
            if not isinstance(key, Ed25519PublicKey):
                raise DataError(f"{where}: key {signature.keyid[:12]} is not an Ed25519 key")
            key.verify(
                base64.b64decode(signature.sig, validate=True), pre_authentication(envelope.payload_type, payload)
            )
            signers.append(signature.keyid)
    return payload, signers


def opened(content: bytes, keys: Mapping[str, bytes], where: str) -> tuple[str, bytes, list[str]]:
    """The payload's type, the payload, and the ``keys`` that signed an envelope; raises ``DataError`` as ``verify``."""
    envelope = parsed(Envelope, content, where)
    return envelope.payload_type, *verify(envelope, keys, where)


def opened_as(kind: str, content: bytes, keys: Mapping[str, bytes], where: str, remedy: str) -> tuple[bytes, list[str]]:
    """The payload of an envelope, and the ``keys`` that signed it.

    Raises ``DataError`` as ``verify``, and with ``remedy`` if no key signed it or its type is not ``kind``.
    """
    found, payload, signers = opened(content, keys, where)
    if found != kind or not signers:
        raise DataError(f"{where}: {remedy}")
    return payload, signers


def keys_named(content: bytes, where: str) -> list[str]:
    """The names of the keys in an envelope, unverified; raises ``DataError`` if its form is wrong."""
    return [signature.keyid for signature in parsed(Envelope, content, where).signatures]


@contextmanager
def wrong_signatures_refused(where: str, form: str) -> Iterator[None]:
    """Raise ``DataError`` with ``where`` for a signature that is wrong, or content that is not a valid ``form``."""
    from cryptography.exceptions import InvalidSignature

    try:
        yield
    except DataError:
        raise
    except InvalidSignature as error:
        raise DataError(f"{where}: the signature is wrong: the content was edited after it was signed") from error
    except ValueError as error:
        raise DataError(f"{where}: not a valid {form} ({error})") from error


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """The bytes that DSSE signs."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _private_key(path: Path, make: Callable[[], Any]) -> Any:
    """The private key in a file, made on first use."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form

    try:
        if not path.exists():
            pem = make().private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(FileExistsError), exclusive_file(path, 0o600) as temporary:  # of several processes one wins
                temporary.write_bytes(pem)
        return form.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise DataError(f"{path}: cannot be used for signatures ({error}); name another file in {KEY_FILE}") from error
