"""A local stand-in for the Hub and for hosts of raw files: the real ``huggingface_hub`` client talks to it over HTTP.

It serves folders as repositories, and fails on request::

    hub = HubServer()
    commit = hub.add("Qwen/Qwen2.5-Math-7B-Instruct", folder)  # a model; "datasets/owner/name" is a data set
    hub.add("datasets/Qwen/ProcessBench", other, commit="3bdcd5…")  # under a commit id of your choice
    hub.add_tree(root, {"Qwen/Qwen2.5-7B-Instruct": "a09a35…"})  # root/owner/name, root/datasets/owner/name
    hub.add_raw("openai/prm800k", third)  # any other address: {hub.url}/openai/prm800k/… gives the files of the folder
    with hub_server(hub) as url:
        subprocess.run(command, env=os.environ | hub.environment(home))  # home: the folder for HF_HOME

A second ``add`` of the same repository makes its folder the newest commit of ``main`` (and of every ``refs/pr/N``);
older commits stay available. The client reads its environment when it is imported: give ``environment`` to a process
of its own, or call ``lead_here`` in this one. For an ``https`` source, write ``{url}/openai/prm800k`` as ``location``
into params.yaml.

The answers follow the Hub's rules: the repository's description and its tree (in pages of ``page_files``); ``resolve``
with commit, ETag and size, where large files (``LARGE``) redirect to another host name; range requests; 404 for an
unknown revision or file; 401 for an unknown repository. A repository added with ``gated=True`` answers 401 without a
token, and 403 with another token than ``token``.

Faults apply to the next GET of a file (a HEAD too for ``fail``) whose address contains ``part``::

    hub.fail("model.safetensors", status=503, times=2, retry_after=1)  # 429, 500 …
    hub.cut("model.safetensors", after=1000)  # the connection ends after 1,000 bytes of the answer

``requests`` records what was asked, in order.
"""

from __future__ import annotations

import hashlib
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import JSONHandler, serving

LARGE = (".safetensors", ".bin", ".pt", ".jsonl", ".parquet")
"""Files that the Hub keeps outside of git: their ETag is the sha256, and ``resolve`` redirects to a storage host."""
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """One request: method, address (path and query) and headers in lower case."""

    method: str
    address: str
    headers: Mapping[str, str]


@dataclass
class _Repository:
    gated: bool = False
    commits: dict[str, Path] = field(default_factory=dict)  # the last one is the newest of main

    def commit_of(self, revision: str) -> str | None:
        if revision in self.commits:
            return revision
        return next(reversed(self.commits)) if revision == "main" or revision.startswith("refs/pr/") else None


@dataclass
class _Fault:
    part: str
    times: int
    status: int = 0
    retry_after: int | None = None
    after: int = 0


@dataclass
class HubServer:
    """The repositories, the raw folders, the faults still to come, and the requests so far."""

    token: str = field(default="hf_let_me_in")
    page_files: int = 1000
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    repositories: dict[str, _Repository] = field(default_factory=dict)
    raw: dict[str, Path] = field(default_factory=dict)
    faults: list[_Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, folder: Path, *, commit: str | None = None, gated: bool = False) -> str:
        """Serve ``folder`` as the newest commit of ``name``; returns the commit id (default: a digest of the files)."""
        commit = commit or _sha1("".join(f"{file} {_digest(path)}" for file, path in _files(folder)).encode())
        repository = self.repositories.setdefault(name, _Repository())
        repository.gated = gated
        repository.commits.pop(commit, None)
        repository.commits[commit] = folder
        return commit

    def add_tree(self, root: Path, commits: Mapping[str, str] | None = None) -> dict[str, str]:
        """Add every repository below ``root``; returns commit ids by name, the ids of ``commits`` where given."""
        folders = [path for path in root.glob("*/*") if path.parent.name != "datasets" and path.is_dir()]
        folders += [path for path in root.glob("datasets/*/*") if path.is_dir()]
        names = {path.relative_to(root).as_posix(): path for path in sorted(folders)}
        return {name: self.add(name, path, commit=(commits or {}).get(name)) for name, path in names.items()}

    def add_raw(self, prefix: str, folder: Path) -> None:
        """Serve the files of ``folder`` at ``/<prefix>/…``; a later path segment (a revision) is a folder below it."""
        self.raw[prefix.strip("/")] = folder

    def fail(self, part: str, status: int, times: int = 1, retry_after: int | None = None) -> None:
        """Answer the next ``times`` requests whose address contains ``part`` with ``status``."""
        self.faults.append(_Fault(part, times, status, retry_after))

    def cut(self, part: str, after: int, times: int = 1) -> None:
        """End the connection of the next ``times`` file transfers whose address contains ``part`` early."""
        self.faults.append(_Fault(part, times, after=after))

    def environment(self, home: Path, token: str | None = None) -> dict[str, str]:
        """The variables that lead ``huggingface_hub`` to this server, with ``home`` as its cache and ``token``."""
        variables = {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
        variables |= {"HF_HUB_CACHE": str(home / "hub"), "HF_TOKEN": token or "", "HF_HUB_DISABLE_TELEMETRY": "1"}
        return variables | {"no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost"}

    def lead_here(self, patch: pytest.MonkeyPatch, home: Path) -> None:
        """Lead the client of this process to the server, with ``home`` as its cache, until ``patch`` is undone."""
        client = "huggingface_hub.constants"
        patch.setattr(f"{client}.ENDPOINT", self.url)
        patch.setattr(f"{client}.HUGGINGFACE_CO_URL_TEMPLATE", self.url + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(f"{client}.HF_HUB_CACHE", str(home / "hub"))
        patch.setattr(f"{client}.HF_HUB_OFFLINE", False)
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")

    def transfers(self, part: str = "") -> list[str | None]:
        """The Range headers of the GET requests whose address contains ``part``."""
        return [r.headers.get("range") for r in self.requests if r.method == "GET" and part in r.address]

    def take(self, address: str, *, cuts: bool) -> _Fault | None:
        """The next fault of ``address``, counted as used; ``cuts``: of the kind that cuts a transfer."""
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.part in address and (fault.status == 0) is cuts:
                    fault.times -= 1
                    return fault
        return None


def _files(folder: Path) -> list[tuple[str, Path]]:
    return sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


_digests: dict[tuple[Path, int, int], tuple[str, str]] = {}


def _digest(path: Path) -> tuple[str, str]:
    """The git object id and the sha256 of a file."""
    state = path.stat()
    key = (path, state.st_size, state.st_mtime_ns)
    if key not in _digests:
        git, content = hashlib.sha1(b"blob %d\0" % state.st_size, usedforsecurity=False), hashlib.sha256()
        with path.open("rb") as handle:
            while block := handle.read(_BLOCK):
                git.update(block)
                content.update(block)
        _digests[key] = git.hexdigest(), content.hexdigest()
    return _digests[key]


def _entry(path: Path, name: str) -> dict[str, Any]:
    """The file as the tree lists it."""
    git, content = _digest(path)
    size = path.stat().st_size
    entry: dict[str, Any] = {"type": "file", "path": name, "size": size, "oid": git}
    return entry | ({"lfs": {"oid": content, "size": size, "pointerSize": 130}} if name.endswith(LARGE) else {})


@contextmanager
def hub_server(hub: HubServer) -> Iterator[str]:
    """Serve ``hub`` on a free port; yields its address, which is ``hub.url`` too."""

    class Handler(JSONHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            headers = {name.lower(): text for name, text in self.headers.items()}
            hub.requests.append(Request(self.command, self.path, headers))
            fault = hub.take(self.path, cuts=False)
            if fault is not None:
                wait = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
                self.refuse(fault.status, "", "on demand", wait)
                return
            address = urllib.parse.urlsplit(self.path)
            path = urllib.parse.unquote(address.path).strip("/")
            if path.startswith("storage/"):
                self.stored(path)
            elif found := re.fullmatch(r"api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
                kind, name, what, rest = found.groups()
                self.api(name if kind == "models" else f"datasets/{name}", what or "revision", rest or "main")
            elif found := re.fullmatch(r"((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self.resolve(*found.groups())
            else:
                self.raw_file(path)

        def refuse(self, status: int, code: str, message: str, more: Mapping[str, str] | None = None) -> None:
            """An error as the Hub sends it: its code and text are in the headers."""
            headers = {"X-Error-Code": code, "X-Error-Message": message} | dict(more or {})
            self.send(status, {"error": message}, headers={name: text for name, text in headers.items() if text})

        def find(self, name: str, revision: str) -> tuple[str, Path] | None:
            """Commit and folder of a repository, or ``None`` after an error was sent."""
            repository = hub.repositories.get(name)
            if repository is None:
                self.refuse(401, "RepoNotFound", "Repository not found")
                return None
            commit = repository.commit_of(revision)
            if commit is None:
                self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
                return None
            return commit, repository.commits[commit]

        def api(self, name: str, what: str, revision: str) -> None:
            found = self.find(name, revision)
            if found is None:
                return
            commit, folder = found
            files = _files(folder)
            if what == "revision":
                siblings = [{"rfilename": name} for name, _ in files]
                about = {"id": name.removeprefix("datasets/"), "sha": commit, "siblings": siblings, "private": False}
                self.send(200, about | {"tags": [], "gated": "auto" if hub.repositories[name].gated else False})
                return
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            start = int(query.pop("cursor", "0"))
            end = start + hub.page_files
            more = {}
            if end < len(files):
                following = urllib.parse.urlencode(query | {"cursor": str(end)})
                more["Link"] = f'<{hub.url}{urllib.parse.urlsplit(self.path).path}?{following}>; rel="next"'
            self.send(200, [_entry(path, name) for name, path in files[start:end]], headers=more)

        def resolve(self, name: str, revision: str, file: str) -> None:
            found = self.find(name, revision)
            if found is None:
                return
            commit, folder = found
            given = self.headers.get("Authorization")
            if hub.repositories[name].gated and given != f"Bearer {hub.token}":
                self.refuse(403 if given else 401, "GatedRepo", f"Access to model {name} is restricted")
                return
            path = folder / file
            if not path.is_file():
                self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
                return
            git, content = _digest(path)
            headers = {"X-Repo-Commit": commit, "ETag": f'"{git}"'}
            if file.endswith(LARGE):
                storage = hub.url.replace("127.0.0.1", "localhost")  # another host: no token may reach it
                where = urllib.parse.quote(f"/storage/{name}/{commit}/{file}")
                headers |= {"Location": f"{storage}{where}", "X-Linked-ETag": f'"{content}"'}
                self.answer(302, headers | {"X-Linked-Size": str(path.stat().st_size)})
            else:
                self.transfer(path, headers)

        def stored(self, path: str) -> None:
            """A large file at its storage host."""
            found = re.fullmatch(r"storage/((?:datasets/)?[^/]+/[^/]+)/([^/]+)/(.+)", path)
            assert found is not None, path
            if self.headers.get("Authorization"):
                self.refuse(400, "", "the token was sent to the storage host")
                return
            name, commit, file = found.groups()
            file_path = hub.repositories[name].commits[commit] / file
            self.transfer(file_path, {"ETag": f'"{_digest(file_path)[1]}"'})

        def raw_file(self, path: str) -> None:
            for prefix, folder in hub.raw.items():
                file = folder / path.removeprefix(f"{prefix}/")
                if path.startswith(f"{prefix}/") and file.is_file():
                    self.transfer(file, {"ETag": f'"{_digest(file)[0]}"'})
                    return
            self.refuse(404, "", "not found")

        def transfer(self, path: Path, headers: dict[str, str]) -> None:
            """Send a file, from the byte that the Range header asks for, up to the next cut."""
            size, start, status = path.stat().st_size, 0, 200
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if asked and self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]:
                start, status = int(asked[1]), 206
                headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
            if status == 206 and start >= size:
                self.refuse(416, "", "no such range", {"Content-Range": f"bytes */{size}"})
                return
            self.answer(status, headers | {"Accept-Ranges": "bytes"}, size - start)
            if self.command == "HEAD":
                return
            fault = hub.take(self.path, cuts=True)
            left = size - start if fault is None else min(fault.after, size - start)
            self.close_connection = fault is not None
            with path.open("rb") as handle:
                handle.seek(start)
                while left and (block := handle.read(min(_BLOCK, left))):
                    self.wfile.write(block)
                    left -= len(block)

        def answer(self, status: int, headers: Mapping[str, str], length: int = 0) -> None:
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def send(self, status: int, value: Any, cut: int = 0, headers: Mapping[str, str] | None = None) -> None:
            if self.command == "HEAD":
                self.answer(status, headers or {})
            else:
                super().send(status, value, cut, headers)

    with serving(Handler) as url:
        hub.url = url
        yield url
