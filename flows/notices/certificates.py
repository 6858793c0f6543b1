"""The certificates that a Prefect server with TLS is checked against, without Prefect, whose import takes seconds."""

from __future__ import annotations

import os
import ssl

import httpx

REMEDY = "set SSL_CERT_FILE to the certificate of its authority"
"""What to do about a certificate that is not trusted."""


def trusted() -> ssl.SSLContext:
    """The certificates that Prefect's client would trust; raises ``OSError`` if a named file cannot be read."""
    named = os.environ.get("PREFECT_API_SSL_CERT_FILE")
    return ssl.create_default_context(cafile=named) if named else httpx.create_ssl_context()  # reads SSL_CERT_FILE


def is_untrusted(error: Exception) -> bool:
    """Whether a connection failed because the server's certificate is not trusted."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)
