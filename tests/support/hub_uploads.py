"""A local stand-in for the part of the Hub that takes uploads: the real ``huggingface_hub`` client talks to it.

    with upload_server() as hub:
        hub.lead_here(monkeypatch)
        …
        hub.repositories["me/prm"]["config.json"]  # the bytes of a file after its commit

It creates repositories, says which files go to the storage of large files, takes these, and commits. A large file is in
a commit only if its bytes arrived and have the sha256 and the size that the commit names. Only ``token`` may write, and
only to ``me/…``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.hub_server import LARGE
from tests.support.servers import JSONHandler, serving


@dataclass
class UploadServer:
    """The files of each committed repository by name and path, and which repositories are private."""

    token: str = "hf_let_me_write"  # noqa: S105 - no real one
    url: str = ""
    refuse_commits: int = 0  # the status of every commit, if not 0
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    stored: dict[str, bytes] = field(default_factory=dict)

    def lead_here(self, patch: pytest.MonkeyPatch) -> None:
        """Lead the client of this process to the server, over HTTP alone, until ``patch`` is undone."""
        patch.setattr("huggingface_hub.constants.ENDPOINT", self.url)
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        patch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        patch.setenv("HF_TOKEN", self.token)


@contextmanager
def upload_server() -> Iterator[UploadServer]:
    """Serve uploads on a free port."""
    hub = UploadServer()

    class Handler(JSONHandler):
        def body(self) -> bytes:
            return self.rfile.read(int(self.headers["Content-Length"]))

        def do_PUT(self) -> None:
            content = self.body()
            hub.stored[hashlib.sha256(content).hexdigest()] = content
            self.send(200, {})

        def do_POST(self) -> None:
            content = self.body()
            if self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.send(401, {"error": "Invalid credentials"}, headers={"X-Error-Message": "Invalid credentials"})
            elif self.path == "/api/repos/create":
                self.create(json.loads(content))
            elif self.path == "/api/validate-yaml":
                self.send(200, {"warnings": [], "errors": []})
            elif found := re.fullmatch(r"/api/(?:model|dataset)s/(.+)/preupload/main", self.path):
                self.modes(found[1], json.loads(content))
            elif self.path.endswith(".git/info/lfs/objects/batch"):
                self.places(json.loads(content))
            elif found := re.fullmatch(r"/api/(?:model|dataset)s/(.+)/commit/main", self.path):
                self.commit(found[1], [json.loads(line) for line in content.splitlines()])
            else:
                self.send(404, {"error": self.path})

        def create(self, asked: dict[str, Any]) -> None:
            name = f"{asked['organization']}/{asked['name']}"
            if asked["organization"] != "me":
                said = "You don't have the rights to create a model under this namespace"
                self.send(403, {"error": said}, headers={"X-Error-Message": said})
            elif name in hub.repositories:
                self.send(409, {"error": "You already created this repo", "url": f"{hub.url}/{name}"})
            else:
                hub.repositories[name] = {}
                hub.private |= {name} if asked.get("visibility") == "private" else set()
                self.send(200, {"url": f"{hub.url}/{name}"})

        def modes(self, name: str, asked: dict[str, Any]) -> None:
            files = [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for each in asked["files"]
            ]
            self.send(200, {"files": files})

        def places(self, asked: dict[str, Any]) -> None:
            objects = [
                each | ({} if each["oid"] in hub.stored else {"actions": {"upload": {"href": f"{hub.url}/storage"}}})
                for each in asked["objects"]
            ]
            self.send(200, {"transfer": "basic", "objects": objects})

        def commit(self, name: str, lines: list[dict[str, Any]]) -> None:
            if hub.refuse_commits:
                self.send(hub.refuse_commits, {"error": "not now"}, headers={"X-Error-Message": "not now"})
                return
            files = hub.repositories[name]
            for line in lines[1:]:
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                else:
                    assert len(hub.stored[value["oid"]]) == value["size"]
                    files[value["path"]] = hub.stored[value["oid"]]
            oid = hashlib.sha1(repr(sorted(files)).encode(), usedforsecurity=False).hexdigest()
            self.send(200, {"commitUrl": f"{hub.url}/{name}/commit/{oid}", "commitOid": oid, "success": True})

    with serving(Handler) as url:
        hub.url = url
        yield hub
