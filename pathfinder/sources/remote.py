"""Object stores (``s3://bucket/prefix`` or a local folder), and a log of manifests that several runs may extend.

``PATHFINDER_S3_ENDPOINT`` names an S3-compatible server other than AWS. Credentials come from the usual ``AWS_*``
variables and are never written. DVC transfers the artefacts; this module transfers source files and small manifests.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pathfinder.core.io import DataError, TransientError, atomic_file, write_bytes

ENDPOINT = "PATHFINDER_S3_ENDPOINT"
_COMMIT_ATTEMPTS = 20
_TRANSIENT_CODES = frozenset(
    {"SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "InternalError", "ServiceUnavailable", "Throttling"}
)
_SERVER_ERROR = 500
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of a store's log: its number from 1, and the manifest's sha256.

    ``exclusive`` is False if the store cannot create objects exclusively, so that a simultaneous writer could overwrite
    the entry.
    """

    number: int
    manifest: str
    exclusive: bool


class Store(Protocol):
    """A flat space of objects; keys are relative POSIX paths."""

    url: str

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that start with ``prefix``, sorted."""

    def read(self, key: str) -> bytes:
        """The bytes of an object; raises ``DataError`` if it does not exist."""

    def fetch(self, key: str, path: Path) -> None:
        """Copy an object to ``path``, atomically; raises ``DataError`` if it does not exist."""

    def put(self, key: str, content: bytes) -> None:
        """Write an object, replacing an earlier one."""

    def create(self, key: str, content: bytes) -> bool:
        """Write a new object; False, without writing, if it exists already."""

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""


def open_store(url: str) -> Store:
    """The store at ``s3://bucket[/prefix]``, ``file:///folder`` or a folder name; raises ``DataError`` for others."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        return _FolderStore(Path(rest if separator else url))
    if scheme == "s3" and rest.strip("/"):
        bucket, _, prefix = rest.partition("/")
        return _S3Store(bucket, prefix.strip("/"))
    raise DataError(f"{url}: unknown kind of store; expected s3://bucket/prefix or file:///folder")


class _FolderStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.absolute().as_uri()

    def keys(self, prefix: str = "") -> list[str]:
        files = (path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".part")
        keys = sorted(path.relative_to(self.folder).as_posix() for path in files)
        return [key for key in keys if key.startswith(prefix)]

    def read(self, key: str) -> bytes:
        with self._known(key) as path:
            return path.read_bytes()

    def fetch(self, key: str, path: Path) -> None:
        with self._known(key) as source, atomic_file(path) as temporary:
            shutil.copyfile(source, temporary)

    def put(self, key: str, content: bytes) -> None:
        write_bytes(self._path(key), content)

    def create(self, key: str, content: bytes) -> bool:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        try:
            temporary.write_bytes(content)
            os.link(temporary, path)  # only one writer can create the link
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if Path(key).is_absolute() or ".." in Path(key).parts:
            raise DataError(f"{key!r}: leaves {self.url}; keys are relative paths without `..`")
        return self.folder / key

    @contextlib.contextmanager
    def _known(self, key: str) -> Iterator[Path]:
        try:
            yield self._path(key)
        except FileNotFoundError as error:
            raise DataError(f"{self.url}/{key}: no such file") from error


class _S3Store:
    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket, self.prefix = bucket, f"{prefix}/" if prefix else ""
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._client = _client()

    def keys(self, prefix: str = "") -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix + prefix)
        keys = self._do("", lambda: [str(item["Key"]) for page in pages for item in page.get("Contents", [])])
        # consoles create empty objects for folders
        return sorted(key[len(self.prefix) :] for key in keys if not key.endswith("/"))

    def read(self, key: str) -> bytes:
        return self._do(key, lambda: bytes(self._client.get_object(**self._at(key))["Body"].read()))

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
                if error.response["Error"]["Code"] in {"PreconditionFailed", "ConditionalRequestConflict", "412"}:
                    return False
                raise
            return True

        return self._do(key, put)

    def delete(self, key: str) -> None:
        self._do(key, lambda: self._client.delete_object(**self._at(key)))

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.prefix + key}

    def _do(self, key: str, action: Callable[[], T]) -> T:
        """Run one call; raises ``TransientError`` for a failure that a retry may solve, ``DataError`` for others."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

        where = f"{self.url}/{key}" if key else self.url
        try:
            return action()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            if status >= _SERVER_ERROR or code in _TRANSIENT_CODES:
                raise TransientError(f"{where}: the store answered {code or status} ({error})") from error
            raise DataError(f"{where}: {error}. Check the name, {ENDPOINT} and the AWS_* credentials") from error
        except (ConnectionError, HTTPClientError, Boto3Error) as error:
            raise TransientError(f"{where}: no answer from the store ({error})") from error
        except BotoCoreError as error:
            raise DataError(f"{where}: {error}. Check {ENDPOINT} and the AWS_* credentials") from error


def _client() -> Any:
    import boto3
    from botocore.config import Config

    endpoint = os.environ.get(ENDPOINT) or None
    config = Config(
        retries={"mode": "standard"},  # three attempts; AWS_MAX_ATTEMPTS changes that
        connect_timeout=10,
        read_timeout=60,
        s3={"addressing_style": "path" if endpoint else "auto"},
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return boto3.session.Session().client("s3", endpoint_url=endpoint, region_name=region, config=config)


def creates_exclusively(store: Store, rounds: int = 4, writers: int = 6) -> bool:
    """Let ``writers`` create the same key at once, ``rounds`` times: True if exactly one succeeds in every round.

    Some servers accept ``If-None-Match`` but ignore it, or let several writers succeed. Only a race reveals that.
    """
    with ThreadPoolExecutor(writers) as pool:
        for _ in range(rounds):
            key = f"probe/{uuid.uuid4().hex}"
            try:
                wins = list(pool.map(lambda number, key=key: store.create(key, b"%d" % number), range(writers)))
            finally:
                store.delete(key)
            if sum(wins) != 1:
                return False
    return True


def commit_manifest(store: Store, manifest: Any, exclusive: bool | None = None) -> Commit:
    """Store ``manifest`` under its sha256 and append it to the store's log, unless it is the newest entry already.

    ``manifests/<sha256>.json`` holds the content; ``log/<number>.json`` names it and the previous entry.
    ``exclusive`` says whether the store creates objects exclusively; None finds out with ``creates_exclusively``. Such
    a store serialises the writers. In another store the entry is read back, to notice a simultaneous writer. Raises
    ``TransientError`` if other writers keep coming first.
    """
    content = _canonical(manifest)
    digest = hashlib.sha256(content).hexdigest()
    store.put(f"manifests/{digest}.json", content)
    exclusive = creates_exclusively(store) if exclusive is None else exclusive
    for _ in range(_COMMIT_ATTEMPTS):
        entries = store.keys("log/")
        before = store.read(entries[-1]) if entries else b""
        number = int(Path(entries[-1]).stem) if entries else 0
        if before and json.loads(before)["manifest"] == digest:
            return Commit(number, digest, exclusive)
        previous = hashlib.sha256(before).hexdigest() if before else None
        entry = _canonical({"number": number + 1, "manifest": digest, "previous": previous})
        key = f"log/{number + 1:08d}.json"
        if store.create(key, entry) and store.read(key) == entry:
            return Commit(number + 1, digest, exclusive)
    raise TransientError(f"{store.url}: {_COMMIT_ATTEMPTS} other writers came first; run the same command again")


def _canonical(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode()
