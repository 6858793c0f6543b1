"""The history according to dvc.lock and the ``.dvc`` files. ``check`` verifies it.

Data may be shipped in git, and the lock of an earlier pipeline states how the same bytes were made. The ``.dvc`` file
of such data is read as a stage whose dependencies are the outs of that pipeline, each with the digest of its copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field

from evidence.dvc.pipeline import PIPELINES, Stage, params_of
from evidence.dvc.stores import listing_of, object_stores
from evidence.settings import SETTINGS, Count, Form, Md5, validated
from ground.hashing import digest_listing, digest_path
from ground.io import DataError
from ground.settings import parse_yaml, read_yaml
from ground.text import meant, printable

MAIN_LOCK = "dvc.lock"
_PARAMS = {file.with_name("params.yaml").as_posix() for file in PIPELINES}
LOCK_FILES = tuple(file.with_name(MAIN_LOCK) for file in PIPELINES)
"""The dvc.lock of each pipeline."""
SHIPPED, SHIPPED_POINTER = SETTINGS.shipped.data, f"{SETTINGS.shipped.data}.dvc"
EARLIER, SHIPPED_LEVEL = SETTINGS.shipped.made, SETTINGS.shipped.level
"""The folder of the outs of the earlier pipeline, and the part that the shipped data comes from."""
COLLECTED = SETTINGS.shipped.copied
"""The original of the shipped data: an out of the earlier pipeline, or the folder of its outs."""
_RUNS: dict[bytes, Locked] = {}
_MOST_RUNS = 1000
STAGE = re.compile(r"^(?=  \S)", re.MULTILINE)
"""The beginning of the stages in the text of a lock."""
_PLAIN = re.compile(r"(    [^&*!%\"'|>\[{#\n]*(''|\[\]|\{\})?\n)*")
"""A stage's entry in a lock without quotations, anchors and tags: DVC writes the run's entry so, less indented."""


@cache
def _usual(path: str) -> str:
    """A path in its shortest form, for example without a slash at its end. The stages of a lock repeat paths."""
    return Path(path).as_posix()


class PathClaim(Form):
    """The statement of a lock entry or a ``.dvc`` file about one path; DVC before 3.0 wrote no ``hash``."""

    path: Annotated[str, AfterValidator(_usual)]
    md5: Md5 | None = None
    hash: Literal["md5"] | None = None
    size: Count | None = None
    nfiles: Count | None = None
    isexec: bool | None = None
    remote: str | None = None
    desc: str | None = None
    type: str | None = None
    labels: Any = None
    meta: Any = None
    push: bool | None = None
    cache: bool | None = None


class LockEntry(Form):
    """One stage of a dvc.lock."""

    cmd: str | list[str]
    deps: list[PathClaim] = Field(default_factory=list)
    params: dict[str, dict[str, Any]] = Field(default_factory=dict)
    outs: list[PathClaim] = Field(default_factory=list)


class LockFile(Form):
    """A dvc.lock."""

    schema_: Annotated[Literal["2.0"], Field(alias="schema")]
    stages: dict[str, LockEntry] | None = None


class Pointer(Form):
    """A ``.dvc`` file."""

    outs: list[PathClaim]
    deps: Any = None
    md5: Md5 | None = None
    desc: str | None = None
    meta: Any = None
    wdir: str | None = None
    frozen: bool | None = None


@dataclass(frozen=True, slots=True)
class Locked:
    """One stage of a dvc.lock: md5 by path, parameter values by key. A ``.dvc`` file is a stage without a command.

    ``claims`` are the statements about each path, and ``flags`` the statements that DVC acts on although no record has
    them.
    """

    name: str
    cmd: str
    deps: dict[str, str]
    outs: dict[str, str]
    params: dict[str, Any] = field(default_factory=dict)
    file: str = MAIN_LOCK
    claims: dict[str, PathClaim] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    def about(self, path: str) -> PathClaim:
        """The statement about a path, or an empty statement."""
        return self.claims.get(path) or PathClaim(path=path)


def read_lock(root: Path) -> dict[str, Locked]:
    """The stages of the dvc.lock of every pipeline and of the ``.dvc`` files of ``root``, by name.

    Raises ``DataError`` if the main dvc.lock does not exist, a file is not valid YAML or has a different form, or two
    files have a stage with the same name, because only one would be checked.
    """
    if not (root / MAIN_LOCK).exists():
        raise DataError(
            f"{root / MAIN_LOCK}: no such file; change to the project's folder or, if no stage has run, "
            f"{SETTINGS.remedies.run}"
        )
    parts = [read_stages(root / lock, lock.as_posix()) for lock in LOCK_FILES if (root / lock).exists()]
    stages: dict[str, Locked] = {}
    for stage in (*chain(*(part.values() for part in parts)), *(read_pointer(root, path) for path in pointers(root))):
        if (other := stages.setdefault(stage.name, stage)) is not stage:
            raise DataError(f"{stage.file}: has {stage.name}, as has {other.file}; restore the file with git")
    if shipped := stages.get(SHIPPED_POINTER):
        stages[SHIPPED_POINTER] = replace(shipped, deps=_origins(root, shipped, stages))
    return stages


def read_stages(path: Path, name: str) -> dict[str, Locked]:
    """The stages of one dvc.lock, which messages call ``name``; raises ``DataError`` if its form is wrong."""
    stages = _stages(read_yaml(path), name)
    parts = [block.partition(":\n") for block in STAGE.split(path.read_text(encoding="utf-8"))[1:]]
    if [head.strip() for head, _, _ in parts] == list(stages):
        for (_, _, entry), stage in zip(parts, stages.values(), strict=True):
            if _PLAIN.fullmatch(entry):
                _remember(dedent(entry).encode(), stage)
    return stages


def stages_in(text: str, name: str) -> dict[str, Locked]:
    """The stages in the text of a dvc.lock or a ``.dvc`` file ``name``; raises ``DataError`` if it is not valid."""
    try:
        content = parse_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{name}: not valid YAML ({printable(' '.join(str(error).split()))}); restore it") from error
    return {name: _pointed(content, name)} if name.endswith(".dvc") else _stages(content, name)


def _stages(content: Any, name: str) -> dict[str, Locked]:
    stages = validated(LockFile, content, name).stages or {}
    if empty := next((stage for stage, entry in stages.items() if not "".join(entry.cmd)), None):
        # it would count as a ``.dvc`` file
        raise DataError(f"{name}: {empty}: has no command; restore the file with git")
    return {stage: locked_stage(stage, entry, name) for stage, entry in stages.items()}


def read_run(file: Path, name: str) -> Locked:
    """The run in a run-cache entry, which messages call ``name``; raises ``DataError`` if its form is wrong.

    The stores of a project and its lock have mostly equal entries: each content is parsed once.
    """
    content = file.read_bytes()
    if (run := _RUNS.get(content)) is None:
        run = locked_stage("", validated(LockEntry, read_yaml(file), name), name)
        _remember(content, run)
    return run


def _remember(content: bytes, run: Locked) -> None:
    _RUNS[content] = run
    if len(_RUNS) > _MOST_RUNS:
        _RUNS.pop(next(iter(_RUNS)), None)


def read_pointer(root: Path, path: Path) -> Locked:
    """A ``.dvc`` file as a stage without a command; raises ``DataError`` if its form is wrong."""
    return _pointed(read_yaml(path), path.relative_to(root).as_posix())


def _pointed(content: Any, name: str) -> Locked:
    pointer = validated(Pointer, content, name)
    if name == SHIPPED_POINTER and pointer.deps is not None:
        raise DataError(f"{name}: deps: Extra inputs are not permitted; restore the file with git")
    base = Path(name).parent / (pointer.wdir or "")
    claims = [claim.model_copy(update={"path": os.path.normpath(base / claim.path)}) for claim in pointer.outs]
    stage = locked_stage(name, LockEntry(cmd="", outs=claims), name)
    return replace(stage, flags=(*stage.flags, "`frozen: true`")) if pointer.frozen else stage


def pointers(root: Path) -> Iterator[Path]:
    """The ``.dvc`` files of the project, wherever they are; hidden folders are not searched."""
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith(".") and name != "__pycache__")
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".dvc"))


def _origins(root: Path, shipped: Locked, stages: dict[str, Locked]) -> dict[str, str]:
    """Earlier out -> md5 of its shipped copy; empty if no store on this machine has the listing of the copy."""
    outs = [out for stage in stages.values() for out in stage.outs if f"{out}/".startswith(f"{COLLECTED}/")]
    files = listing_of(list(object_stores(root)), shipped.outs.get(SHIPPED, ""))
    copies = {f"{COLLECTED}/{path}": md5 for path, md5 in files.items()}
    return {out: digest_listing(copies, out) for out in outs} if files else {}


def next_run(root: Path, stage: Stage) -> Locked:
    """A stage of dvc.yaml as the lock would state it after a run with the inputs in ``root``, with "" as md5 of outs.

    Raises ``FileNotFoundError`` if an input does not exist, and ``DataError`` as ``params_of`` does.
    """
    deps = {path: digest_path(root / path).md5 for path in stage.deps}
    return Locked(stage.name, stage.cmd, deps, dict.fromkeys(stage.all_outs, ""), params_of(root, stage))


def producers(stages: dict[str, Locked], path: str) -> list[Locked]:
    """The stages with an out that is ``path``, contains it or is below it."""
    return [stage for stage in stages.values() if any(overlap(out, path) for out in stage.outs)]


def other_makers(stage: Locked, stages: dict[str, Locked]) -> Iterator[tuple[str, Locked]]:
    """Each input of ``stage`` that another stage made with different bytes, and that stage."""
    for path, md5 in stage.deps.items():
        yield from ((path, maker) for maker in stages.values() if maker.outs.get(path, md5) != md5)


def ancestors(stages: dict[str, Locked], path: str) -> dict[str, Locked]:
    """Every stage that ``path`` depends on; raises ``DataError`` if no stage makes it."""
    makers = producers(stages, path)
    if not makers:
        known = [out for stage in stages.values() for out in stage.outs]
        raise DataError(
            f"{path}: not an output in dvc.lock; {meant(path, known)}`{SETTINGS.command} list outs` names all"
        )
    return behind(stages, [stage.name for stage in makers])


def behind(stages: dict[str, Locked], names: Iterable[str]) -> dict[str, Locked]:
    """The named stages and every stage that they depend on."""
    found = reached(names, lambda name: (maker.name for dep in stages[name].deps for maker in producers(stages, dep)))
    return {name: stage for name, stage in stages.items() if name in found}


def reached(names: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """The names, and every name that ``following`` gives for one of them."""
    found, waiting = set[str](), list(names)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += following(name)
    return found


def as_shipped(path: str) -> str:
    """The part of the shipped data that is a copy of an out of the earlier pipeline."""
    return path.replace(COLLECTED, SHIPPED, 1)


def overlap(one: str, other: str) -> bool:
    """True if the paths are equal or one contains the other."""
    return one == other or other.startswith(f"{one}/") or one.startswith(f"{other}/")


def locked_stage(name: str, entry: LockEntry, file: str) -> Locked:
    """A lock entry of ``file`` as a stage; raises ``DataError`` if it names a path twice or other parameters."""
    if len(entry.params) > 1 or entry.params.keys() - _PARAMS:
        raise DataError(f"{file}: {name}: params of {', '.join(entry.params)}; only one params.yaml is read")
    params = next(iter(entry.params.values()), {})
    for kind, claims in (("deps", entry.deps), ("outs", entry.outs)):
        paths = [claim.path for claim in claims]
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            raise DataError(f"{file}: {name}: {kind} names {twice} twice; restore the file")
    deps, outs = ({claim.path: claim.md5 or "" for claim in part} for part in (entry.deps, entry.outs))
    claims = [*entry.deps, *entry.outs]
    cmd = entry.cmd if isinstance(entry.cmd, str) else "\n".join(entry.cmd)
    flags = [f"no `hash: md5` for {claim.path}" for claim in claims if claim.md5 and not claim.hash]
    flags += [f"`push: false` for {claim.path}" for claim in claims if claim.push is False]
    return Locked(name, cmd, deps, outs, params, file, {claim.path: claim for claim in claims}, tuple(flags))
