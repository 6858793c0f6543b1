"""HTTP servers for tests: a judge with the OpenAI API that fails on request, and a file server."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

Faults = Callable[[int], str]
_USAGE = {"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8}


@dataclass
class JudgeServer:
    """A judge and its record of calls. ``reply`` writes an answer; ``fault`` names the fault of call n (from 0)."""

    reply: Callable[[str, int], str]
    fault: Faults = lambda _: "none"
    model: str = "tiny-judge"
    owner: str = "me"
    too_long: str = "This model's maximum context length is 10 tokens."
    url: str = ""
    calls: int = 0
    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    usage: Mapping[str, int | None] | None = field(default_factory=_USAGE.copy)
    seen: list[dict[str, Any]] | None = None  # collects the bodies of the calls
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect; the tests provoke that."""


class JSONHandler(BaseHTTPRequestHandler):
    """A handler of a JSON API: keeps connections open and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def send(self, status: int, value: Any, cut: int = 0, headers: Mapping[str, str] | None = None) -> None:
        """Send ``value`` without its last ``cut`` bytes; a cut response closes the connection."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])
        self.close_connection = bool(cut)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve ``handler`` and yield the address, https with ``tls``."""
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def private_tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """The TLS of a server at 127.0.0.1, and the certificate of the authority that no system trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "private")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority, both = folder / "authority.pem", folder / "server.pem"
    authority.write_bytes(certificate.public_bytes(Encoding.PEM))
    both.write_bytes(authority.read_bytes() + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(both)
    return tls, authority


@contextmanager
def judge_server(judge: JudgeServer) -> Iterator[JudgeServer]:
    """Serve ``judge`` at ``judge.url`` (…/v1)."""

    class Handler(JSONHandler):
        def do_GET(self) -> None:
            self.send(
                200, {"object": "list", "data": [{"id": judge.model, "object": "model", "owned_by": judge.owner}]}
            )

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = asked["messages"][-1]["content"] if "messages" in asked else asked["prompt"]
            with judge.lock:
                number, judge.calls = judge.calls, judge.calls + 1
                if judge.seen is not None:
                    judge.seen.append(asked)
            fault = judge.fault(number)
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.rfile.close()
                self.wfile.close()
                self.connection.close()
            elif fault == "timeout":
                time.sleep(3)
            elif fault == "429":
                self.send(429, {"error": {"message": "slow down"}}, headers={"Retry-After": "0"})
            elif fault in ("400", "401", "404", "500", "503"):
                self.send(int(fault), {"error": {"message": "fault"}})
            elif fault == "setting":
                told = {"message": "'max_tokens' is not supported with this model.", "param": "max_tokens"}
                self.send(400, {"error": told})
            elif fault == "too_long":
                self.send(400, {"error": {"message": judge.too_long}})
            elif fault == "empty":
                self.send(200, {"id": "x", "object": "chat.completion", "choices": []})
            else:
                text = judge.reply(prompt, asked["seed"])
                with judge.lock:
                    judge.answered[prompt, asked["seed"]] += 1
                message = {"role": "assistant", "content": text}
                finish = "content_filter" if fault == "filter" else "stop"
                choice = {"index": 0, "message": message, "text": text, "finish_reason": finish}
                answer = {"id": "x", "object": "chat.completion", "created": 0, "model": asked["model"]}
                self.send(200, answer | {"choices": [choice], "usage": judge.usage}, cut=20 if fault == "cut" else 0)

    with serving(Handler) as url:
        judge.url = f"{url}/v1"
        yield judge


@dataclass
class FileServer:
    """Files by path. A response takes the next of ``cuts`` (body length) and ``statuses``, if any are left."""

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    url: str = ""
    commit: str = "c" * 40


@contextmanager
def file_server(content: FileServer) -> Iterator[FileServer]:
    """Serve ``content`` at ``content.url`` with Range, If-Range, ETag and the Hub's commit header."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.command == "GET":
                content.ranges.append(self.headers.get("Range"))
            if content.statuses:
                self.send_error(content.statuses.pop(0))
                return
            body = content.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            tag = f'"{hashlib.sha256(body).hexdigest()[:8]}"'
            start = 0
            asked = self.headers.get("Range")
            if asked is not None and self.headers.get("If-Range") == tag:
                start = int(asked.removeprefix("bytes=").partition("-")[0])
            self.send_response(206 if start else 200)
            self.send_header("ETag", tag)
            self.send_header("X-Repo-Commit", content.commit)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            if self.command == "HEAD":
                return
            end = content.cuts.pop(0) if content.cuts else len(body)
            self.wfile.write(body[start:end])

    with serving(Handler) as url:
        content.url = url
        yield content


def free_ports(count: int) -> Sequence[int]:
    """Ports of this machine on which nothing listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
