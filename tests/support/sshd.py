"""An ssh server on this machine, which plays another machine, and the client that reaches it as `box`."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.flows.watch import soon
from tests.support.servers import free_ports

_SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
needs_ssh = pytest.mark.skipif(
    _SSHD is None or shutil.which("ssh") is None, reason="needs ssh and sshd (apt-get install openssh-server)"
)
_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/person.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
ForceCommand export HOME={home}; cd && eval "$SSH_ORIGINAL_COMMAND"
"""
_CLIENT = """\
Host box
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/person
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking yes
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A folder for PATH, whose `ssh` reads no file of the user, and the process of the server."""

    programs: Path
    server: int

    def connections(self) -> list[int]:
        """The processes of the server that each serve a connection."""
        return [each.pid for each in psutil.Process(self.server).children()]


@contextmanager
def box(folder: Path, home: Path) -> Iterator[Box]:
    """A server with its files in an empty folder, whose commands start in ``home``, as after a login."""
    for name in ("host", "person"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (port,) = free_ports(1)
    fields = {"port": port, "folder": folder, "home": home, "user": pwd.getpwuid(os.getuid()).pw_name}
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "sshd_config").write_text(_SERVER.format_map(fields))
    (folder / "ssh_config").write_text(_CLIENT.format_map(fields))
    (folder / "bin").mkdir()
    (folder / "bin/ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    (folder / "bin/ssh").chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a server of root gives up its rights
    words = [str(_SSHD), "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "log")]
    clean = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    server = subprocess.Popen(words, env=clean, cwd="/", stdin=subprocess.DEVNULL)
    try:
        assert soon(lambda: _answers(port)), (folder / "log").read_text()
        yield Box(folder / "bin", server.pid)
    finally:
        server.terminate()
        server.wait(60)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
