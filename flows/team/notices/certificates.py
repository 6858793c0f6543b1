"""The certificates that a Prefect server with TLS is checked against, without Prefect, whose import takes seconds."""

from __future__ import annotations

import os
import ssl

import httpx


def trusted() -> ssl.SSLContext:
    """The certificates that Prefect's client would trust; raises ``OSError`` if a named file cannot be read."""
    named = os.environ.get("PREFECT_API_SSL_CERT_FILE")
    return ssl.create_default_context(cafile=named) if named else httpx.create_ssl_context()  # reads SSL_CERT_FILE
