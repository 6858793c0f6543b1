"""A time-stamp authority of this machine: OpenSSL answers over HTTP, with a certificate below a root of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

_CONFIG = """
[tsa]
default_tsa = own
[own]
serial = {folder}/serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
"""


def make_authority(folder: Path) -> Path:
    """Write the keys and certificates of an authority to a folder; returns the file with the root's certificate."""
    folder.mkdir(parents=True)
    names = [
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{folder.name} {kind}")]) for kind in ("root", "tsa")
    ]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.TIME_STAMPING])
    root = _certificate(names[0], keys[0], names[0], keys[0], x509.BasicConstraints(ca=True, path_length=None))
    signer = _certificate(names[1], keys[1], names[0], keys[0], purpose)
    (folder / "root.pem").write_bytes(root)
    (folder / "signer.pem").write_bytes(signer)
    plain = (form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    (folder / "key.pem").write_bytes(keys[1].private_bytes(*plain))
    (folder / "tsa.cnf").write_text(_CONFIG.format(folder=folder))
    (folder / "serial").write_text("01\n")
    return folder / "root.pem"


def _certificate(
    name: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> bytes:
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    own, above = (x509.SubjectKeyIdentifier.from_public_key(each.public_key()) for each in (key, by))
    built = built.add_extension(extension, True).add_extension(own, False)
    built = built.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above), False)
    return built.sign(by, hashes.SHA256()).public_bytes(form.Encoding.PEM)


@contextmanager
def authority(folder: Path) -> Iterator[str]:
    """The address of an authority whose files are in a folder, while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (folder / "query").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            words = ["-config", "tsa.cnf", "-queryfile", "query", "-signer", "signer.pem", "-inkey", "key.pem"]
            done = subprocess.run(["openssl", "ts", "-reply", *words], cwd=folder, capture_output=True, check=True)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(done.stdout)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
