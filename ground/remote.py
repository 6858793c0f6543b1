"""Object stores: a local folder, or one of ``KINDS``.

The client takes its credentials from the usual ``AWS_*`` variables and never writes them. DVC transfers the artefacts;
this module transfers source files and small manifests.

The client is boto3. obstore was tried: its TLS library refuses a self-signed server certificate even if
``AWS_CA_BUNDLE`` trusts it. Its listings fail at a key with an empty segment (``a//b``), and they show a console's
empty folder object ``log/`` as an object ``log``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from ground.io import DataError, TransientError, atomic_file, exclusive_file
from ground.settings import require_address, require_certificate

_TRANSIENT_CODES = {"SlowDown", "RequestTimeout", "Throttling"}  # and every 5xx but 501
_NOT_IMPLEMENTED = 501
_SKEWED = "RequestTimeTooSkewed"
_answered: set[str] = set()
"""Addresses of servers that have answered this process."""
_EXISTS_CODES = {"PreconditionFailed", "ConditionalRequestConflict", "412"}
_MD5 = re.compile(r"[0-9a-f]{32}")
_CHUNK = 1 << 20
READ_S = 60.0
READERS = 16
"""Objects that are read at the same time."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of store that speaks the S3 protocol; the scheme of an address names it.

    ``variable`` is the environment variable with the server's address, and ``server`` is the default address if there
    is one: empty for AWS, which has a server for each region. ``client`` adds settings of ``botocore.config.Config``.
    ``credentials`` says what to check if the store refuses a request.
    """

    variable: str
    server: str | None = None
    client: Mapping[str, Any] = field(default_factory=dict)
    credentials: str = "the AWS_* credentials"

    def endpoint(self, given: str = "") -> str:
        """The server's address: from the environment, else ``given``, else ``server``; raises ``DataError`` if none."""
        if (found := self.set_endpoint() or given or self.server) is None:
            raise DataError(f"{self.variable} is not set; set it to the address of the store's server")
        return found

    def set_endpoint(self) -> str:
        """The server's address from the environment, or nothing."""
        return os.environ.get(self.variable, "").strip()


KINDS = {
    "s3": Kind("PATHFINDER_S3_ENDPOINT", ""),
}
"""The kinds of stores on other machines by scheme."""
ENDPOINT = KINDS["s3"].variable


def refuse_password(address: str) -> None:
    """Raise ``DataError`` for an address with a password, which logs and DVC's settings would store."""
    scheme, separator, rest = address.partition("://")
    if separator and re.match(r"[^/]*:.*@", rest):  # an AWS key may have slashes
        shown = f"{scheme}://{rest.rpartition('@')[2]}"
        raise DataError(f"{shown}: an address must not name a password or a key; remove it and set the AWS_* variables")


def kind_of(address: str) -> Kind | None:
    """The kind of the store at an address; ``None`` for a folder and for an unknown scheme, which DVC may know."""
    scheme, separator, _ = address.partition("://")
    return KINDS.get(scheme) if separator else None


def to_dvc(address: str) -> dict[str, str]:
    """The settings of DVC's remote at an address: DVC reaches every one of ``KINDS`` as S3."""
    kind = kind_of(address)
    if kind is None:
        return {"url": address}
    server = kind.endpoint()
    return {"url": f"s3://{address.partition('://')[2]}"} | ({"endpointurl": server} if server else {})


def from_dvc(url: str, endpoint: str) -> str:
    """The address of a remote with these settings in DVC's configuration: the inverse of ``to_dvc``."""
    scheme, _, rest = url.partition("://")
    known = {kind.set_endpoint() or kind.server: name for name, kind in reversed(KINDS.items()) if scheme == "s3"}
    return f"{known.get(endpoint, scheme)}://{rest}" if rest else url


@dataclass(frozen=True, slots=True)
class Listed:
    """One object in a store's listing: its key and its size in bytes.

    ``md5`` is the server's entity tag if that is an md5, else empty; the tag of an object uploaded in parts is not.
    ``stamp`` changes when the object is written again; ``modified`` is the time of the last write in seconds since
    1970.
    """

    key: str
    size: int
    md5: str
    stamp: str
    modified: float


class _FolderStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.absolute().as_uri()

    def keys(self, prefix: str = "") -> list[str]:
        return [found.key for found in self.listed(prefix)]

    def listed(self, prefix: str = "") -> list[Listed]:
        below = self.folder / prefix.rpartition("/")[0]
        named = []
        for path in below.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # a writer may have renamed it
                if path.is_file() and path.suffix != ".part":
                    named.append((path.relative_to(self.folder).as_posix(), path.stat()))
        found = [
            Listed(
                key,
                state.st_size,
                "",
                f"{state.st_mtime_ns}-{state.st_ctime_ns}-{state.st_ino}",
                max(state.st_mtime, state.st_ctime),
            )
            for key, state in named
            if key.startswith(prefix)
        ]
        return sorted(found, key=lambda item: item.key)

    def read(self, key: str) -> bytes:
        return self._existing(key).read_bytes()

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._existing(key).open("rb") as handle:
            while chunk := handle.read(_CHUNK):
                yield chunk

    def fetch(self, key: str, path: Path) -> None:
        with atomic_file(path) as temporary:
            shutil.copyfile(self._existing(key), temporary)

    def put(self, key: str, content: bytes) -> None:
        with atomic_file(self._path(key)) as temporary:
            temporary.write_bytes(content)

    def create(self, key: str, content: bytes) -> bool:
        try:
            with exclusive_file(self._path(key)) as temporary:
                temporary.write_bytes(content)
        except FileExistsError:
            return False
        return True

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def sweep(self, prefix: str, before: float) -> None:
        for path in (self.folder / prefix).rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path.stat().st_mtime < before:
                    path.unlink()

    def _path(self, key: str) -> Path:
        if Path(key).is_absolute() or ".." in Path(key).parts:
            raise DataError(f"{key!r}: leaves {self.url}; keys are relative paths without `..`")
        return self.folder / key

    def _existing(self, key: str) -> Path:
        path = self._path(key)
        if not path.is_file():
            raise DataError(f"{self.url}/{key}: no such file")
        return path


class _S3Store:
    def __init__(self, url: str, kind: Kind, endpoint: str, read_s: float) -> None:
        import boto3
        import botocore.session
        from botocore.config import Config

        self.url, self.kind, endpoint = url.rstrip("/"), kind, kind.endpoint(endpoint)
        if endpoint:
            require_address(endpoint, f"correct {kind.variable}, as in https://s3.example.org")
        self.bucket, _, prefix = self.url.partition("://")[2].partition("/")
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        style = {"addressing_style": "path" if endpoint else "auto"}
        # the mode "standard" makes three attempts; AWS_MAX_ATTEMPTS changes that
        config = Config(
            retries={"mode": "standard"},
            connect_timeout=10,
            read_timeout=read_s,
            s3=style,
            max_pool_connections=READERS,
        ).merge(Config(**kind.client))
        # A server may be slow with a large object, but not with its first answer to a process.
        first = config.merge(
            Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=5, read_timeout=6)
        )
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        shared = botocore.session.get_session()
        shared.register_component("data_loader", _descriptions())
        session = boto3.session.Session(botocore_session=shared)
        client = partial(session.client, "s3", endpoint_url=endpoint or None, region_name=region)
        self._client: Any = client(config=config)
        self._first = partial(client, config=first)

    def keys(self, prefix: str = "") -> list[str]:
        return [found.key for found in self.listed(prefix)]

    def listed(self, prefix: str = "") -> list[Listed]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix + prefix)
        items = self._do("", lambda: [item for page in pages for item in page.get("Contents", [])])
        found = [
            Listed(
                str(item["Key"])[len(self.prefix) :],
                int(item["Size"]),
                tag if _MD5.fullmatch(tag := str(item.get("ETag", "")).strip('"')) else "",
                f"{item.get('ETag')} {item.get('LastModified')}",
                item["LastModified"].timestamp(),
            )
            for item in items
        ]
        # consoles create empty objects for folders
        return sorted((item for item in found if not item.key.endswith("/")), key=lambda item: item.key)

    def read(self, key: str) -> bytes:
        return self._do(key, lambda: bytes(self._client.get_object(**self._at(key))["Body"].read()))

    def chunks(self, key: str) -> Iterator[bytes]:
        body = self._do(key, lambda: self._client.get_object(**self._at(key))["Body"])
        with contextlib.closing(body):
            while chunk := self._do(key, lambda: bytes(body.read(_CHUNK))):
                yield chunk

    def fetch(self, key: str, path: Path) -> None:
        with atomic_file(path) as temporary:
            self._do(key, lambda: self._client.download_file(self.bucket, self.prefix + key, str(temporary)))

    def put(self, key: str, content: bytes) -> None:
        self._do(key, lambda: self._client.put_object(Body=content, **self._at(key)))

    def create(self, key: str, content: bytes) -> bool:
        from botocore.exceptions import ClientError

        def put() -> bool:
            try:
                self._client.put_object(Body=content, IfNoneMatch="*", **self._at(key))
            except ClientError as error:
                if error.response["Error"]["Code"] in _EXISTS_CODES:
                    return False
                raise
            return True

        return self._do(key, put)

    def delete(self, key: str) -> None:
        self._do(key, lambda: self._client.delete_object(**self._at(key)))

    def sweep(self, prefix: str, before: float) -> None:
        for found in self.listed(prefix):
            if found.modified < before:
                self.delete(found.key)

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.prefix + key}

    def _do(self, key: str, action: Callable[[], T]) -> T:
        """Run one call; raises ``TransientError`` for a failure that a retry may solve, ``DataError`` for any other."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            ConnectionError,
            HTTPClientError,
            IncompleteReadError,
        )

        where = f"{self.url}/{key}".rstrip("/")
        try:
            self._require_answer()
            return action()
        except (ConnectionError, HTTPClientError, IncompleteReadError, Boto3Error) as error:
            require_certificate(error, where, "AWS_CA_BUNDLE")
            raise TransientError(
                f"{where}: no answer from the store ({error}); check {self.kind.variable}, the network and the "
                "server, then run the command again"
            ) from error
        except (ClientError, BotoCoreError) as error:
            response = getattr(error, "response", {})
            code = response.get("Error", {}).get("Code")
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if code == _SKEWED:
                raise TransientError(
                    f"{where}: the clocks of the store and of this machine differ too much ({error}); set both by NTP "
                    "(`timedatectl set-ntp true`); `make doctor` measures the difference"
                ) from error
            if status == _NOT_IMPLEMENTED:
                raise DataError(f"{where}: {error}. Use a store that has conditional writes (If-None-Match)") from error
            if code in _TRANSIENT_CODES or status >= 500:
                raise TransientError(f"{where}: the store cannot answer now ({error})") from error
            remedy = f"Check the name, {self.kind.variable} and {self.kind.credentials}"
            raise DataError(f"{where}: {error}. {remedy}") from error

    def _require_answer(self) -> None:
        """Ask the server once per process, with short timeouts, in case it accepts connections and then stalls."""
        from botocore.exceptions import ClientError

        if (address := self._client.meta.endpoint_url) not in _answered:
            with contextlib.suppress(ClientError):  # a refusal is an answer
                self._first().head_bucket(Bucket=self.bucket)
            _answered.add(address)


@cache
def _descriptions() -> Any:
    """The service descriptions. Reading them takes longer than a listing, so all clients of a process share them."""
    from botocore.loaders import create_loader

    return create_loader()


Store = _FolderStore | _S3Store
"""A flat space of objects with relative POSIX paths as keys.

``keys`` and ``listed`` name, sorted, the objects whose key begins with a prefix. ``read``, ``chunks`` (pieces of at
most 1 MiB) and ``fetch`` (a copy to a path, atomic) raise ``DataError`` if the object does not exist. ``put`` replaces
an object; ``create`` returns False, without writing, if it exists. ``delete`` accepts a missing object. ``sweep``
deletes the objects below a folder, and the leftovers of killed writers, that were written before a time (in seconds
since 1970).
"""


def open_store(url: str, endpoint: str = "", read_s: float = READ_S) -> Store:
    """The store at ``s3://bucket[/prefix]``, ``file:///folder`` or a folder name; raises ``DataError`` for any other.

    ``endpoint`` is the server if the environment names none. ``read_s`` is the read timeout in seconds.
    """
    refuse_password(url)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        folder = Path(rest if separator else url)
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{url}: not a folder; name a folder, which may be new, or a bucket")
        return _FolderStore(folder)
    if (kind := kind_of(url)) is None or not rest.strip("/"):
        known = ", ".join(f"{name}://bucket/prefix" for name in KINDS)
        raise DataError(f"{url}: unknown kind of store; expected {known} or file:///folder")
    return _S3Store(url, kind, endpoint, read_s)
