"""OpenStack Swift with its S3 interface on one machine: a real object store for tests and experiments.

Run     python -m venv .venv-swift && .venv-swift/bin/pip install -r tests/support/swift/requirements.in
        .venv-swift/bin/python tests/support/swift/serve.py FOLDER --port 9010

Runs four processes (proxy, account, container, object) on 127.0.0.1 until SIGTERM; FOLDER holds data and settings.
Access key `test:tester`, secret key `testing` unless `--secret` names another, region us-east-1. One replica and no
TLS: do not store valuable data.
"""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ACCESS_KEY = "test:tester"
_READY_S = 120.0
_BACK_ENDS = ("object", "container", "account")
_SWIFT = """\
[swift-hash]
swift_hash_path_prefix = pathfinder
swift_hash_path_suffix = pathfinder
[storage-policy:0]
name = default
default = yes
"""
_COMMON = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
disable_fallocate = true
log_address = {folder}/no-syslog
"""
_BACK_END = """\
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
_PROXY = """\
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck s3api tempauth copy slo dlo versioned_writes symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
s3_acl = false
check_bucket_owner = false
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
allow_object_versioning = true
"""
_PLAIN_FILTERS = ("catch_errors", "gatekeeper", "healthcheck", "copy", "slo", "dlo", "symlink")


def configure(folder: Path, port: int, secret: str) -> list[tuple[str, Path]]:
    """Write settings and rings, keeping existing rings; returns each server with its settings file."""
    (folder / "devices" / "disk").mkdir(parents=True, exist_ok=True)
    (folder / "swift.conf").write_text(_SWIFT)
    servers = []
    for number, name in enumerate(("proxy", *_BACK_ENDS)):
        text = _COMMON.format(port=port + number, user=getpass.getuser(), folder=folder)
        if name == "proxy":
            text += _PROXY.format(secret=secret) + "".join(
                f"[filter:{plain}]\nuse = egg:swift#{plain}\n" for plain in _PLAIN_FILTERS
            )
        else:
            text += _BACK_END.format(name=name)
            _ring(folder, name, port + number)
        path = folder / f"{name}-server.conf"
        path.write_text(text)
        servers.append((name, path))
    return servers


def _ring(folder: Path, name: str, port: int) -> None:
    """Build a partition table with one device."""
    builder = folder / f"{name}.builder"
    if (folder / f"{name}.ring.gz").exists():
        return
    for words in (["create", "4", "1", "1"], ["add", f"r1z1-127.0.0.1:{port}/disk", "1"], ["rebalance"]):
        done = subprocess.run([_tool("swift-ring-builder"), str(builder), *words], capture_output=True, text=True)
        if done.returncode > 1:  # 1 is a warning
            sys.exit(f"swift-ring-builder {' '.join(words)}: {done.stdout}{done.stderr}")


def serve(folder: Path, port: int, secret: str) -> None:
    """Run the four servers until SIGTERM or SIGINT; exits with an error if one of them ends."""
    processes = []
    for name, path in configure(folder, port, secret):
        command = [sys.executable, _tool(f"swift-{name}-server"), str(path), "--verbose"]
        with (folder / f"{name}.log").open("ab") as log:
            environment = {**os.environ, "SWIFT_DIR": str(folder)}
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        _wait(port)
        print(f"ready at http://127.0.0.1:{port} with key {ACCESS_KEY}, secret {secret}", flush=True)
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
        sys.exit(f"a server ended unexpectedly; see the logs in {folder}")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(port: int) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    sys.exit("the proxy server did not start; see proxy.log")


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def main() -> None:
    """Run the servers from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="data, settings and logs")
    parser.add_argument("--port", type=int, default=9010, help="first of four consecutive ports (default: 9010)")
    parser.add_argument("--secret", default="testing", help="secret key (default: testing)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    serve(arguments.folder.absolute(), arguments.port, arguments.secret)


if __name__ == "__main__":
    main()
