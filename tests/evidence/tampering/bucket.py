"""Tamperings in a bucket. Each says what an error must name, and how the remote is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evidence.dvc.history import read_lock
from evidence.dvc.stores import object_key
from evidence.record.reading import read_records
from evidence.remote.reading import Remote
from ground.remote import Store
from tests.evidence.tampering.edits import OUTS, objects

LOG = "pathfinder/log/{:08d}.json"


@dataclass
class Bucket:
    """A bucket that remembers what a tampering changed, so that the next test starts with the published bytes."""

    store: Store
    project: Path
    before: dict[str, bytes | None] = field(default_factory=dict)

    def put(self, key: str, content: bytes) -> None:
        self._remember(key)
        self.store.put(key, content)

    def delete(self, key: str) -> None:
        self._remember(key)
        self.store.delete(key)

    def edit(self, key: str, old: bytes, new: bytes) -> None:
        content = self.store.read(key)
        assert old in content, (key, old)
        self.put(key, content.replace(old, new))

    def restore(self) -> None:
        for key, content in self.before.items():
            if content is None:
                self.store.delete(key)
            else:
                self.store.put(key, content)
        self.before.clear()

    def one(self, prefix: str, ending: str = "") -> str:
        """The first key with this beginning and ending."""
        return next(key for key in self.store.keys(prefix) if key.endswith(ending))

    def object(self, path: str, part: int = 0) -> str:
        """The key of the object of an out (0) or of its first file (1)."""
        return object_key(objects(self.project, path)[part])

    def manifest(self, number: int) -> str:
        entry = json.loads(self.store.read(LOG.format(number)))
        return f"pathfinder/manifests/{entry['manifest']}.json"

    def run(self, stage: str) -> str:
        """The run-cache entry of the run in dvc.lock."""
        md5 = read_lock(self.project)[stage].outs["models/full"].encode()
        return next(key for key in self.store.keys("runs/") if md5 in self.store.read(key))

    def _remember(self, key: str) -> None:
        exists = key in self.store.keys(key)
        self.before.setdefault(key, self.store.read(key) if exists else None)


@dataclass(frozen=True)
class Far:
    """One tampering; ``fetched``: what the remote published was copied here before it."""

    name: str
    tamper: Callable[[Bucket], str]
    remote: Remote = "quick"
    fetched: bool = True


def flipped(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


def stored() -> Iterator[Far]:
    """Objects of outs: missing, cut, with different bytes, exchanged."""
    for path in OUTS:

        def delete(bucket: Bucket, path: str = path) -> str:
            bucket.delete(bucket.object(path))
            return f"{bucket.object(path)}: is missing; it belongs to {path}, which the newest entry of the log names"

        yield Far(f"delete {path}", delete)

        def other(bucket: Bucket, path: str = path) -> str:
            key = bucket.object(path)
            bucket.put(key, flipped(bucket.store.read(key)))
            return f"{key}: md5 is"

        yield Far(f"flip {path}", other)
    for path in ("models/full", "models/plain", "artifacts/raw"):

        def delete_file(bucket: Bucket, path: str = path) -> str:
            bucket.delete(bucket.object(path, 1))
            return f"{bucket.object(path, 1)}: is missing; it belongs to {path}/"

        yield Far(f"delete a file of {path}", delete_file)

        def truncate(bucket: Bucket, path: str = path) -> str:
            key = bucket.object(path, 1)
            bucket.put(key, bucket.store.read(key)[:-1])
            return f"{key}: has "

        yield Far(f"truncate a file of {path}", truncate)

        def other_file(bucket: Bucket, path: str = path) -> str:
            key = bucket.object(path, 1)
            bucket.put(key, flipped(bucket.store.read(key)))
            return f"{key}: md5 is"

        yield Far(f"flip a file of {path}", other_file)
        yield Far(f"flip a file of {path}, every byte read", other_file, "full")

    def listing(bucket: Bucket) -> str:
        """The folder's listing names the weights of the other model."""
        one, other = (objects(bucket.project, path) for path in ("models/full", "models/plain"))
        bucket.edit(object_key(one[0]), one[1].encode(), other[1].encode())
        return f"{object_key(one[0])}: md5 is"

    yield Far("edit a listing", listing)

    def empty(bucket: Bucket) -> str:
        bucket.put(bucket.object("artifacts/raw"), b"[]")
        return f"{bucket.object('artifacts/raw')}: md5 is"

    yield Far("empty a listing", empty)
    for part, what in ((0, "listings"), (1, "weights")):

        def exchange(bucket: Bucket, part: int = part) -> str:
            one, other = (bucket.object(path, part) for path in ("models/full", "models/plain"))
            contents = bucket.store.read(one), bucket.store.read(other)
            bucket.put(one, contents[1])
            bucket.put(other, contents[0])
            return f"{one}: "

        yield Far(f"exchange two {what}", exchange)

    def earlier(bucket: Bucket) -> str:
        """An object that only the first entry of the log names."""
        old = read_records(bucket.project, "train@full")[-1].content["outputs"]["models/full"]["files"]["weights.txt"]
        bucket.put(object_key(old["md5"]), b"x" * old["size"])
        return f"{object_key(old['md5'])}: md5 is"

    yield Far("flip a file of an earlier run", earlier)


def evidence() -> Iterator[Far]:
    """Records, signatures, the log and what it names, in a fresh clone and where they were copied before."""
    kinds = (
        ("pathfinder/records/train@full/", ".json", "names record", "edited"),
        ("pathfinder/records/train@full/", ".dsse", "was edited or deleted", "was edited or deleted"),
        ("pathfinder/manifests/", "", "names manifest", "it was edited"),
        ("pathfinder/signatures/", "", "its signature by key", "signatures/"),
        ("pathfinder/locks/", "", "is missing or was edited", "is missing or was edited"),
        ("pathfinder/patches/", "", "is missing or was edited", "is missing or was edited"),
    )
    for prefix, ending, deleted, edited in kinds:
        name = f"{prefix.split('/')[1]}{ending}"

        def delete(bucket: Bucket, prefix: str = prefix, ending: str = ending, expected: str = deleted) -> str:
            bucket.delete(bucket.one(prefix, ending))
            return expected

        def edit(bucket: Bucket, prefix: str = prefix, ending: str = ending, expected: str = edited) -> str:
            key = bucket.one(prefix, ending)
            bucket.put(key, flipped(bucket.store.read(key)))
            return expected

        def delete_copied(bucket: Bucket, prefix: str = prefix, ending: str = ending) -> str:
            key = bucket.one(prefix, ending)
            bucket.delete(key)
            return f"remote far {key}: is not the file that was fetched earlier: it was deleted"

        def edit_copied(bucket: Bucket, prefix: str = prefix, ending: str = ending) -> str:
            key = bucket.one(prefix, ending)
            bucket.put(key, flipped(bucket.store.read(key)))
            return f"remote far {key}: is not the file that was fetched earlier: it was edited"

        yield Far(f"delete {name}", delete, fetched=False)
        yield Far(f"edit {name}", edit, fetched=False)
        yield Far(f"delete {name}, copied before", delete_copied)
        yield Far(f"edit {name}, copied before", edit_copied)
    for word in ("edited", "deleted"):

        def model(bucket: Bucket, word: str = word) -> str:
            record = read_records(bucket.project, "train@full")[0]
            key = f"pathfinder/records/train@full/{record.digest}.sig"
            if word == "edited":
                bucket.put(key, flipped(bucket.store.read(key)))
            else:
                bucket.delete(key)
            return f"the signature of the model was {word}"

        yield Far(f"the signature of a model {word}", model, fetched=False)


def log() -> Iterator[Far]:
    first, last = LOG.format(1), LOG.format(2)

    def start(bucket: Bucket) -> str:
        bucket.delete(first)
        return "00000002.json: the chain is broken"

    yield Far("cut the start of the log", start, fetched=False)

    def edit(bucket: Bucket) -> str:
        bucket.edit(first, b'"number":1', b'"number":9')
        return "00000001.json: the chain is broken"

    yield Far("edit an entry", edit, fetched=False)

    def earlier(bucket: Bucket) -> str:
        bucket.edit(first, b'"previous":null', b'"previous": null')
        return "00000002.json: the chain is broken"

    yield Far("edit an earlier entry", earlier, fetched=False)

    def cut(bucket: Bucket) -> str:
        bucket.delete(last)
        return "no entry of the log names it; the log was cut"

    yield Far("cut the log", cut, fetched=False)

    def roll_back(bucket: Bucket) -> str:
        bucket.delete(bucket.manifest(2))
        bucket.delete(last)
        return f"remote far {last}: is not the file that was fetched earlier: the log was cut or edited"

    yield Far("roll the log back", roll_back)

    def forged(bucket: Bucket) -> str:
        """An entry that nobody signed names other weights."""
        one, other = (objects(bucket.project, path)[0].encode() for path in ("models/full", "models/plain"))
        manifest = json.loads(bucket.store.read(bucket.manifest(2)).replace(one, other))
        content = json.dumps(manifest | {"key": None}, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        previous = hashlib.sha256(bucket.store.read(last)).hexdigest()
        bucket.put(f"pathfinder/manifests/{digest}.json", content)
        entry = {"number": 3, "manifest": digest, "previous": previous}
        bucket.put(LOG.format(3), json.dumps(entry).encode())
        return "00000003.json: is not signed, although entries before it are"

    yield Far("append an entry without a signature", forged, fetched=False)

    def remove(bucket: Bucket) -> str:
        for key in bucket.store.keys("pathfinder/"):
            bucket.delete(key)
        return "is not the file that was fetched earlier"

    yield Far("remove the log and all records", remove)


def runs() -> Iterator[Far]:
    def poison(bucket: Bucket) -> str:
        one, other = (objects(bucket.project, path)[0].encode() for path in ("models/full", "models/plain"))
        bucket.edit(bucket.run("train@full"), one, other)
        return "would restore models/full, which the recorded run made differently"

    def broken(bucket: Bucket) -> str:
        key = bucket.run("train@full")
        bucket.put(key, bucket.store.read(key) + b"cmd: python -m stages.train other\n")
        return "not valid YAML (duplicate key 'cmd'"

    def planted(bucket: Bucket) -> str:
        """A second entry for the same inputs, under another name."""
        key = bucket.run("train@full")
        one, other = (objects(bucket.project, path)[0].encode() for path in ("models/full", "models/plain"))
        bucket.put(f"{key.rpartition('/')[0]}/{'f' * 64}", bucket.store.read(key).replace(one, other))
        return "would restore models/full, which the recorded run made differently"

    for fetched in (False, True):
        when = ", copied before" if fetched else ""
        yield Far(f"poison the run cache{when}", poison, fetched=fetched)
    yield Far("break the run cache", broken)
    yield Far("plant an entry in the run cache", planted, fetched=False)
