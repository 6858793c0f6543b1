"""Time stamps by RFC 3161: an authority (TSA) signs that some bytes existed at a time.

The package rfc3161-client makes the requests and verifies the answers; the extra ``stamp`` installs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ground.io import DataError, TransientError, sha256_of
from ground.settings import require_address

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_LARGEST = 1 << 20
_WAIT_S = 30.0


def stamped(content: bytes, url: str) -> bytes:
    """The answer (DER) of the TSA at ``url`` about the sha256 of ``content``.

    Raises ``DataError`` if the answer is not a stamp of it, and ``TransientError`` if the TSA does not answer.
    """
    require_address(url, "give the address of a time-stamp authority, such as https://tsa.example.org")
    from urllib.request import Request, urlopen

    client = _client()
    asked = client.TimestampRequestBuilder().data(content).hash_algorithm(client.HashAlgorithm.SHA256).build()
    request = Request(url, asked.as_bytes(), {"Content-Type": "application/timestamp-query"})  # noqa: S310
    try:
        with urlopen(request, timeout=_WAIT_S) as answer:  # noqa: S310 - http or https
            stamp: bytes = answer.read(_LARGEST)
    except OSError as error:
        raise TransientError(f"{url}: the time-stamp authority does not answer ({error})") from error
    found = _decoded(stamp, url)
    if (found.message_imprint.message.hex(), found.nonce) != (sha256_of(content), asked.nonce):
        raise DataError(f"{url}: the time stamp is not the answer to this request; name another authority")
    return stamp


def proven_time(stamp: bytes, content: bytes, roots: Sequence[Certificate], where: str) -> datetime:
    """The time at which ``content`` existed, according to a stamp by a TSA below one of ``roots``.

    Raises ``DataError`` with ``where`` if the stamp is of different bytes, by an unknown TSA, or was edited.
    """
    client, time = _client(), datetime.fromisoformat(_decoded(stamp, where).gen_time.isoformat())
    try:
        verifier = client.VerifierBuilder(roots=[*roots]).build()
        verifier.verify_message(client.decode_timestamp_response(stamp), content)
    except (client.VerificationError, ValueError) as error:
        raise DataError(f"{where}: not a time stamp of this note by an authority that is trusted ({error})") from error
    return time


def certificates(files: Sequence[Path]) -> list[Certificate]:
    """The certificates (PEM) in files; raises ``DataError`` if one has none."""
    found = []
    for file in files:
        from cryptography import x509

        try:
            found += x509.load_pem_x509_certificates(file.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(f"{file}: has no certificate of a time-stamp authority ({error}); name PEM") from error
    return found


def _decoded(stamp: bytes, where: str) -> Any:
    """The signed content of a stamp."""
    try:
        found = _client().decode_timestamp_response(stamp)
        if found.status == 0:
            return found.tst_info
        problem = f"refused with status {found.status}: {', '.join(found.status_string)}"
    except ValueError as error:
        problem = str(error)
    raise DataError(f"{where}: no time stamp ({problem})")


def _client() -> ModuleType:
    try:
        import rfc3161_client
    except ImportError as error:
        raise DataError("time stamps need rfc3161-client; run `pip install '.[stamp]'` in a clone") from error
    return rfc3161_client
