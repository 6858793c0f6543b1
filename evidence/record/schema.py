"""The form of a lineage record, which the recorder writes and the audit accepts.

Schema 1 had no ``schema`` key, schema 2 neither ``processes`` nor the entries used. Unknown keys are refused, so that
nothing enters a record unread.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from evidence.settings import Count, Form, Md5, Sha256

SCHEMA = 3


class FileEntry(Form):
    """The digests and bytes of one file."""

    md5: Md5
    sha256: Sha256
    size: Count


class PathEntry(FileEntry):
    """The digests and bytes of a file or, with its ``files``, of a folder."""

    files: dict[str, FileEntry] | None = None


class Commit(Form):
    """The commit that was checked out, and the paths that differed from it."""

    commit: str | None
    dirty: bool | None
    changed: list[str] | None


class Tree(Form):
    """The whole tree when the stage started: its commit, and sha256 by path of the files that differed from it."""

    commit: str | None
    tree: str | None
    changed: dict[str, Sha256 | None] | None
    more: Count | None


class Actor(Form):
    """The user who ran the stage, and the place."""

    user: str
    host: str | None
    container: str | None
    image: str | None
    flow_run: str | None


class JournalState(Form):
    """The size of a journal and the digest of that many bytes."""

    size: Count
    sha256: Sha256


class JournalEntries(Form):
    """The entries of a journal that a run used: their number, their bytes as ranges (start, end), and their sha256."""

    entries: Count
    sha256: Sha256
    ranges: list[list[Count]]


class JournalUse(Form):
    """A journal before and after the run, ``None`` if it did not exist, and the entries used (since schema 3)."""

    before: JournalState | None
    after: JournalState | None
    used: JournalEntries | None = None


class Times(Form):
    """When the stage ran (ISO 8601, UTC), for how long, and its peak memory."""

    start: str
    end: str
    seconds: float
    peak_rss_bytes: Count


class StageRecord(Form):
    """One run of one stage."""

    schema_: Annotated[int, Field(alias="schema", ge=1, le=SCHEMA)] = 1
    stage: str
    cmd: str
    inputs: dict[str, PathEntry]
    rooms: dict[str, PathEntry]
    code: dict[str, PathEntry]
    params: dict[str, Any]
    outputs: dict[str, PathEntry]
    git: Commit
    times: Times
    environment: dict[str, Any]
    notes: dict[str, Any] = Field(default_factory=dict)
    tree: Tree | None = None
    actor: Actor | None = None
    journals: dict[str, JournalUse] = Field(default_factory=dict)
    unlisted_modules: dict[str, Sha256] = Field(default_factory=dict)
    unlocked_packages: dict[str, list[str | None]] = Field(default_factory=dict)
    processes: dict[str, Count] = Field(default_factory=dict)
