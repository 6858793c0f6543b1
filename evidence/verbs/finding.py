"""``find``: where bytes occur: in outs and inputs of every commit, in records, in stores and in git.

With ``KEY=VALUE`` it finds the runs whose record has this fact: a package, a host, a user, a parameter, a signing key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from evidence.audit.records import signers_of
from evidence.audit.trust import Keys, trusted_keys
from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.pipeline import leaves
from evidence.dvc.stores import object_file, read_listing, stores
from evidence.record.environment import git
from evidence.record.ledger import RECORDS, SIGNED
from evidence.record.reading import Record, known_records
from evidence.record.signing import keys_named
from evidence.verbs.targets import read_at
from ground.hashing import digest_path
from ground.io import DataError

_PREFIX = re.compile(r"[0-9a-f]{6,64}(\.dir)?")
_FACT = re.compile(r"([A-Za-z0-9_.-]+)=(.*)", re.DOTALL)
Place = dict[str, str | None]
Row = tuple[Place, tuple[str, ...]]
"""A place, and the digests that it names."""


def _place(kind: str, where: str, stage: str | None, role: str, path: str) -> Place:
    """A place that names the bytes: ``kind`` is record, lock, store or git; ``role`` is output, input, code …"""
    return {"kind": kind, "where": where, "stage": stage, "role": role, "path": path}


def find(text: str, root: Path) -> dict[str, Any]:
    """The digests that were looked for and every place that names them.

    ``text`` is a file or folder anywhere, or the beginning of an md5 or a sha256 (at least 6 digits), or a fact,
    ``KEY=VALUE``. Raises ``DataError`` if it is none of them.
    """
    path = Path(text)
    if path.exists():
        digest = digest_path(path)
        wanted = {digest.md5, digest.sha256}
        tracked = list(_in_git(path, root)) if path.is_file() else []
    elif _PREFIX.fullmatch(text):
        wanted, tracked = {text}, []
    elif fact := _FACT.fullmatch(text):
        return {"digests": [], "places": list(_with_fact(fact[1], fact[2], root))}
    else:
        raise DataError(
            f"{text}: no such file, not the beginning of a digest (at least 6 of 0-9 and a-f), and not KEY=VALUE"
        )
    stages = history.read_lock(root)
    rows = [row for record in _records(root, wanted) for row in _of_record(record)]
    wanted |= {digest for _, digests in _matching(rows, wanted) for digest in digests if len(digests) > 1}  # of a file
    now = {stage.file for stage in stages.values()}
    rows += [*_of_stages(stages.values(), "now"), *_of_commits(root, now, wanted), *_of_stores(root, stages, wanted)]
    places = [place for place, _ in _matching(rows, wanted)]
    return {"digests": sorted(wanted), "places": [*places, *tracked]}


def _records(root: Path, texts: Iterable[str] = ()) -> Iterator[Record]:
    """The known records of the stages in the lock and of other stages with a record, by stage, newest first."""
    recorded = {path.name for path in (root / RECORDS).glob("*") if path.is_dir()}
    for name in sorted(recorded | {name for name, stage in history.read_lock(root).items() if stage.cmd}):
        yield from known_records(root, name, texts)


def _with_fact(key: str, value: str, root: Path) -> Iterator[dict[str, Any]]:
    """The runs with a fact: the dotted name ends with ``key``, and the text matches ``value``, in which * is any text.

    ``package=NAME==VERSION`` is about an installed package; ``key=ID`` about a key that signed, whose beginning is
    enough. Raises ``DataError`` if no record has such a key.
    """
    if key == "package":
        name, _, version = value.partition("==")
        key, value = f"packages.{re.sub(r'[-_.]+', '-', name).lower()}", version or "*"
    pattern = ".*".join(map(re.escape, (f"{value}*" if key == "key" else value).split("*")))
    keys, known = trusted_keys(root), set()
    for record in (record for record in _records(root) if record.is_intact):
        for name, text in (*_facts(record.content), *_signatures(record, keys)):
            known.add(name)
            if f".{name}".endswith(f".{key}") and re.fullmatch(pattern, text, re.DOTALL):
                place = _place("record", record.digest[:16], record.path.parent.name, name, text)
                yield {**place, "started": record.content["times"]["start"]}
    if not any(f".{name}".endswith(f".{key}") for name in known) and not key.startswith("packages."):
        raise DataError(f"{key}=: no record has this key; try package, host, user, key, commit, start or train.seed")


def _facts(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every value in a record that is not a digest of a file, with its dotted name."""
    files = ("inputs", "outputs", "rooms", "code")
    for name, value in leaves({key: content[key] for key in content if key not in files}):
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _signatures(record: Record, keys: Keys) -> Iterator[tuple[str, str]]:
    """The keys that a statement about a record names, and whether they are trusted and its signature is valid."""
    if (path := record.path.with_suffix(SIGNED)).is_file():
        named, valid = list[str](), list[str]()
        with suppress(DataError):  # ``check`` names what is wrong with it
            named = keys_named(path.read_bytes(), path.name)
            valid = signers_of(record, keys)
        yield from (("signed.key" if key in valid else "untrusted.signed.key", key) for key in named)


def _matching(rows: Iterable[Row], wanted: set[str]) -> list[Row]:
    """The rows with a digest that begins with one of the wanted texts."""
    starts = tuple(wanted)
    return [row for row in rows if any(digest.startswith(starts) for digest in row[1])]


def _of_record(record: Record) -> Iterator[Row]:
    """The record itself, and every file and folder that it names."""
    name, stage = record.digest[:16], record.path.parent.name
    yield _place("record", name, stage, "the record itself", record.path.name), (record.digest,)
    for kind in ("outputs", "inputs", "rooms", "code"):
        for path, entry in record.content.get(kind, {}).items():
            files = {f"{path}/{inner}": file for inner, file in (entry.get("files") or {}).items()}
            for each, file in {path: entry, **files}.items():
                yield _place("record", name, stage, kind.removesuffix("s"), each), (file["md5"], file["sha256"])


def _of_stages(stages: Iterable[Locked], where: str) -> Iterator[Row]:
    for stage in stages:
        for role, files in (("output", stage.outs), ("input", stage.deps)):
            yield from ((_place("lock", where, stage.name, role, path), (md5,)) for path, md5 in files.items())


def _of_commits(root: Path, now: Iterable[str], wanted: set[str]) -> Iterator[Row]:
    """The outs and inputs in the locks and ``.dvc`` files of every commit that differ from the current files, ``now``.

    Equal files are read once; a file that is not valid is left out.
    """
    walk = ("--no-literal-pathspecs", "log", "--all", "--root", "--full-history", "-c")
    form = ("--name-only", "--relative", "-z", "--format=%x01%H")
    log = git(*walk, *form, "--", *map(str, history.LOCK_FILES), "*.dvc", root=root) or ""
    seen = {(name, (root / name).read_bytes()) for name in now}
    for commit, *names in (part.split("\0") for part in log.split("\1")[1:]):
        for name, content in read_at(root, commit, filter(None, (name.strip("\n") for name in names))).items():
            if (name, content) not in seen and any(one.removesuffix(".dir").encode() in content for one in wanted):
                seen.add((name, content))
                with suppress(DataError):
                    stages = history.stages_in(content.decode(errors="replace"), name)
                    yield from _of_stages(stages.values(), commit[:12])


def _of_stores(root: Path, stages: Mapping[str, Locked], wanted: set[str]) -> Iterator[Row]:
    """Objects of the cache and of remotes on this machine, and the folders of the current lock that contain them."""
    starts = {start: one for one in sorted(wanted) if len(start := one.removesuffix(".dir")) <= 32}
    outs = {md5: path for stage in stages.values() for path, md5 in stage.outs.items()}
    for store in stores(root):
        if store.folder is None:
            continue
        for start, one in starts.items():
            for file in sorted(object_file(store.folder, start).parent.glob(f"{start[2:]}*")):
                yield _place("store", store.name, None, "object", f"{file.parent.name}{file.name}"), (one,)
        for md5, out in outs.items():
            file = object_file(store.folder, md5)
            for name, inner in (read_listing(file) if md5.endswith(".dir") and file.is_file() else {}).items():
                yield _place("store", store.name, None, "file of a folder", f"{out}/{name}"), (inner,)


def _in_git(path: Path, root: Path) -> Iterator[Place]:
    """The newest commit that added or removed a file with these bytes."""
    digest = git("hash-object", "--", str(path.resolve()), root=root)
    if digest is None or git("cat-file", "-e", digest.strip(), root=root) is None:
        return
    found = git("log", "--all", "-1", "--format=%H", "--name-only", f"--find-object={digest.strip()}", root=root) or ""
    commit, *names = found.split("\n\n", 1)
    top = (git("rev-parse", "--show-cdup", root=root) or "").strip("\n")
    for name in "".join(names).splitlines():
        yield _place("git", commit[:12], None, "tracked file", os.path.relpath(root / top / name, root))
