"""The keys that an audit trusts: files of public keys, and a signed list that says when each of its keys is valid.

The list is a DSSE envelope, ``keys.json`` in the folder of trusted keys. A root key signs the list: the key that the
auditor names with ``--root-key`` or, without that option, any trusted key that is not in the list.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field, model_validator

from evidence.audit.findings import Finding
from evidence.audit.workspace import Workspace
from evidence.record.signing import (
    KEY_FILE,
    TRUSTED,
    Envelope,
    key_file,
    key_id,
    model_key_file,
    opened_as,
    own_key,
    own_model_key,
    public_pem,
    read_pem,
    read_public_keys,
    sign,
)
from evidence.settings import FILE, VENDOR, Count, Form, parsed, validated
from ground.io import DataError, sha256_of, write_bytes, write_json
from ground.show import counted

LIST = TRUSTED / "keys.json"
LIST_TYPE = f"application/vnd.{VENDOR}.keys+json"
Time = Annotated[AwareDatetime, Field(strict=False)]


class Revoked(Form):
    """The time from which a key no longer counts, and the reason."""

    at: Time
    reason: Annotated[str, Field(min_length=1)]


class Listed(Form):
    """A public key (PEM) in the list: its holder, and the period in which it may sign."""

    name: str
    pem: str
    start: Annotated[Time, Field(alias="from")]
    until: Time | None = None
    revoked: Revoked | None = None

    def problem(self, time: datetime) -> str:
        """The reason why a signature of that time does not count; empty if it counts."""
        if time < self.start:
            return f"is not valid before {self.start.isoformat()}"
        if self.until and time >= self.until:
            return f"was valid until {self.until.isoformat()}"
        return self.loss(time)

    def loss(self, time: datetime | None = None) -> str:
        """The time and reason of the key's revocation; empty if it is not revoked, or was not at ``time``."""
        if self.revoked is None or (time and time < self.revoked.at):
            return ""
        return f"is revoked since {self.revoked.at.isoformat()} ({self.revoked.reason})"


class KeyList(Form):
    """The signed list: each version has the next number, from 1. A key has one entry."""

    number: Count
    keys: list[Listed]

    @model_validator(mode="after")
    def _has_each_key_once(self) -> Self:
        first: dict[str, Listed] = {}
        for each in self.keys:
            if (other := first.setdefault(key_id(each.pem.encode()), each)) is not each:
                raise ValueError(f"{other.name} and {each.name} are the same key; change its one entry")
        return self


class RefusedKeyError(DataError):
    """A key of the list was not valid when it signed; ``why`` does not name the signed document."""

    def __init__(self, where: str, name: str, time: str, problem: str) -> None:
        super().__init__(f"{where}: key {name} signed it at {time:.40}, but {problem}")
        self.why = f"key {name} signed it, but {problem}"


class Keys(dict[str, bytes]):
    """Trusted public keys: PEM by name; ``listed`` are the keys of the list, which say when they are valid."""

    def __init__(self, pems: Mapping[str, bytes], listed: Iterable[Listed] = ()) -> None:
        self.listed = {key_id(each.pem.encode()): each for each in listed}
        super().__init__({**pems, **{key: each.pem.encode() for key, each in self.listed.items()}})
        self._refused: dict[tuple[str, str], dict[str, str]] = {}

    def refuse(self, signers: Iterable[str], time: str, where: str) -> None:
        """Raise ``RefusedKeyError`` if a key was not valid at the time that a signed document states."""
        for key in (self.listed[each] for each in signers if each in self.listed):
            moment = moment_of(time)
            if problem := key.problem(moment) if moment else "the time cannot be read":
                self._refused.setdefault((key.name, problem), {})[where] = time
                raise RefusedKeyError(where, key.name, time, problem)

    def refused(self) -> Iterator[Finding]:
        """One finding for each key with which ``refuse`` found records (STAGE/NAME) signed."""
        for (name, problem), records in self._refused.items():
            first = next(iter(sorted(records.values())))
            runs = f"{counted(len(records), 'run')}, the first at {first:.40}"
            stages = dict.fromkeys(where.partition("/")[0] for where in records)
            yield Finding(LIST.as_posix(), f"key {name} signed {runs}, but {problem}", stages=tuple(stages))

    def revoked(self, signers: Iterable[str], time: datetime | None = None) -> str:
        """The signer that is revoked, at ``time`` or at all, and the reason; empty if there is none."""
        return self._first(signers, lambda each: each.loss(time))

    def require_valid(self, signers: Iterable[str], where: str, remedy: str) -> None:
        """Raise ``DataError`` if a key that signed a document without a time is not valid now."""
        if problem := self._first(signers, lambda each: each.problem(datetime.now(UTC))):
            raise DataError(f"{where}: {problem}, and it signed this; {remedy}")

    def invalid_since(self, signers: Iterable[str], time: datetime) -> str:
        """The signer that was not valid at ``time`` or later, and the reason; empty if all were valid."""
        return self._first(signers, lambda each: each.problem(max(time, each.start)))

    def _first(self, signers: Iterable[str], why: Callable[[Listed], str]) -> str:
        found = ((self.listed[key].name, why(self.listed[key])) for key in signers if key in self.listed)
        return next((f"key {name} {problem}" for name, problem in found if problem), "")


def moment_of(text: Any) -> datetime | None:
    """The time in a text, in UTC if it names no zone; ``None`` if the text is not a time."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time.replace(tzinfo=time.tzinfo or UTC)


def trusted_keys(root: Path, files: Iterable[Path] = (), roots: Iterable[Path] = ()) -> Keys:
    """The keys in ``TRUSTED``, this user's own keys, and the keys in ``files`` and in the signed list.

    With ``roots``, only the keys in ``files`` and in the list count, and one of ``roots`` must have signed the list.
    Raises ``DataError`` if a file cannot be read or is not a public key, or if no root signed the list.
    """
    given, named = _read(files), _read(roots)
    known = given if named else {**read_public_keys(root / TRUSTED), **_own(), **given}
    if not named and not (root / LIST).exists():
        return Keys(known)
    return Keys(known, read_list(root, named or known).keys)


def shared_keys(root: Path) -> Keys:
    """The keys that everyone with the project trusts; raises ``DataError`` as ``trusted_keys`` does."""
    known = read_public_keys(root / TRUSTED)
    return Keys(known, read_list(root, known).keys if (root / LIST).exists() else ())


def read_list(root: Path, roots: Mapping[str, bytes]) -> KeyList:
    """The list of keys; raises ``DataError`` if there is none, or none of ``roots`` signed it."""
    where = LIST.as_posix()
    try:
        content = (root / LIST).read_bytes()
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror}); a root key signs a list of keys there") from error
    remedy = "no root key signed this list; name the signer's public key with --root-key"
    payload, signers = opened_as(LIST_TYPE, content, roots, where, remedy)
    found = parsed(KeyList, payload, where)
    if set(signers) & {key_id(each.pem.encode()) for each in found.keys}:
        raise DataError(f"{where}: a key of this list signed it; sign it with a key that it does not list")
    return found


def version_of(root: Path) -> tuple[int, str] | None:
    """The unverified number and the sha256 of the list; ``None`` without a list."""
    if not (root / LIST).exists():
        return None
    content, where = (root / LIST).read_bytes(), LIST.as_posix()
    payload = base64.b64decode(parsed(Envelope, content, where).payload)
    return parsed(KeyList, payload, where).number, sha256_of(content)


def change_list(root: Path, name: str, pem: Path | None, changes: Mapping[str, Any]) -> KeyList:
    """Add a key to the list, or change one, and sign the list with this user's key, whose public half it puts there.

    ``changes`` are keys of ``Listed`` by alias. Raises ``DataError`` if no root signed the list or it would be unsound.
    """
    own = public_pem(own_key().public_key())
    roots = {**read_public_keys(root / TRUSTED), key_id(own): own}
    before = read_list(root, roots) if (root / LIST).exists() else KeyList(number=0, keys=[])
    entries = {each.name: each.model_dump(by_alias=True) for each in before.keys}
    entry = entries.get(name, {"name": name, "from": datetime.now(UTC).replace(microsecond=0)})
    if pem is not None:
        entry["pem"] = _public_key(pem).decode()
    elif name not in entries:
        raise DataError(f"{LIST}: has no key {name!r}; add it with --pem FILE; it has {', '.join(entries) or 'none'}")
    entries[name] = entry | {key: value for key, value in changes.items() if value is not None}
    after = validated(KeyList, {"number": before.number + 1, "keys": [*entries.values()]}, LIST.as_posix())
    if key_id(own) in {key_id(each.pem.encode()) for each in after.keys}:
        raise DataError(f"{LIST}: would list the key that signs it; name the root key in {KEY_FILE}")
    if key_id(own) not in read_public_keys(root / TRUSTED):
        write_bytes(root / TRUSTED / f"root-{key_id(own)[:12]}.pem", own)
    write_json(root / LIST, sign(after.model_dump_json(by_alias=True).encode(), LIST_TYPE))
    return after


def _own() -> dict[str, bytes]:
    pems = [public_pem(own_key().public_key())] if key_file().exists() else []
    pems += [public_pem(own_model_key().public_key())] if model_key_file().exists() else []
    return {key_id(pem): pem for pem in pems}


def _read(files: Iterable[Path]) -> dict[str, bytes]:
    return {key_id(pem): pem for pem in map(_public_key, files)}


def _public_key(file: Path) -> bytes:
    """The public key in a file as the owner of the key writes it: the sha256 of this text names the key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form

    try:
        key: Any = form.load_pem_public_key(file.read_bytes())
        return public_pem(key)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}); name a public key in PEM") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        message = "is not a public key in PEM; name a file that begins with BEGIN PUBLIC KEY"
        raise DataError(f"{file}: {message}") from error


def why_trusted(workspace: Workspace, keys: Keys, files: Iterable[Path] = ()) -> dict[str, str]:
    """The owner of each trusted key, and the file, list or commit that made the key trusted."""
    found = {key_id(_public_key(file)): f"{file.stem} (--key {file})" for file in files}
    for key, each in keys.listed.items():
        found[key] = f"{each.name} ({LIST.as_posix()}, since {each.start.isoformat()})"
    for path, name in _trusted_files(workspace):
        found.setdefault(key_id(read_pem(path)), f"{path.stem} ({name} {workspace.since(name)})")
    return {key: found.get(key, "this user's own key") for key in keys}


def _trusted_files(workspace: Workspace) -> Iterator[tuple[Path, str]]:
    """The files of trusted keys with their paths from the root; a folder elsewhere has its full path."""
    for path in sorted((workspace.root / TRUSTED).glob("*.pem")):
        yield path, (path.relative_to(workspace.root) if path.is_relative_to(workspace.root) else path).as_posix()


def planted_keys(workspace: Workspace) -> Iterator[Finding]:
    """The trusted keys and the settings that git does not hold: they decide what a check trusts and reads."""
    for where, what in ((FILE.as_posix(), "file"), (LIST.as_posix(), "list of keys")):
        if not workspace.is_committed(where):
            yield Finding(where, f"is not the {what} that git holds; commit it, or restore it from git")
    for _, name in _trusted_files(workspace):
        if not workspace.is_committed(name):
            yield Finding(name, "is a trusted key that git does not hold; commit it, or delete it")
