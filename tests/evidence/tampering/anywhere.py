"""Tamperings with any recorded and published project, from its own lock: every out, input, parameter and record."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from evidence.dvc.history import Locked, read_lock
from evidence.dvc.stores import FOLDER
from evidence.record.ledger import LEDGER, SIGNED
from evidence.record.signing import KEY_FILE, sign
from evidence.record.statement import PAYLOAD_TYPE
from evidence.remote.published import SENT
from evidence.settings import FILE
from ground.hashing import digest_path
from tests.evidence.tampering.claims import in_lock
from tests.evidence.tampering.edits import (
    STORE,
    Tampering,
    edit_lock,
    flip,
    forge,
    on_file,
    record_of,
    rewrite,
    truncate,
)
from tests.evidence.tampering.outs import in_store
from tests.evidence.tampering.records import forge_result

Named = Iterator[tuple[str, Tampering]]


def tamperings(project: Path) -> Named:
    """Every tampering that applies to the project, with its name."""
    stages = {name: stage for name, stage in read_lock(project).items() if stage.cmd}
    for name, stage in stages.items():
        yield from _files(project, stage)
        yield from _claims(name, stage)
        yield from _records(name)
        read = {path for other in stages.values() for path in other.deps}
        for out in (out for out in stage.outs if out not in read):
            yield f"{name}: forge {out} without a key", partial(forge_result, stage=name, out=out)
    yield from _stores(project, stages)
    yield from _log()
    yield from _state(project)
    yield "the history of git written anew", another_history


def _files(project: Path, stage: Locked) -> Named:
    """Bytes of what a stage read and made."""
    for path in (*stage.deps, *stage.outs):
        names = [f"{path}/{name}" for name in digest_path(project / path).files] or [path]
        yield f"{stage.name}: flip {names[0]}", on_file(names[0], flip)
        yield f"{stage.name}: truncate {names[-1]}", on_file(names[-1], truncate)
        yield f"{stage.name}: delete {names[-1]}", on_file(names[-1], Path.unlink)


def _claims(name: str, stage: Locked) -> Named:
    """What the lock, the parameters and dvc.yaml state about a stage."""
    for path, md5 in (stage.deps | stage.outs).items():
        other = "1" * 32 + (".dir" if md5.endswith(".dir") else "")
        yield f"{name}: md5 of {path} in the lock", in_lock(name, path, "md5", other, f"dvc.lock: {path}: md5 is 1111")
        yield f"{name}: size of {path} in the lock", in_lock(name, path, "size", 7, f"dvc.lock: {path}: size is 7")
    for path in stage.outs:
        yield f"{name}: isexec of {path} in the lock", in_lock(name, path, "isexec", True, f"dvc.lock: {path}: isexec")
        yield (
            f"{name}: hash of {path} in the lock",
            in_lock(name, path, "hash", "sha256", "hash: Input should be 'md5'"),
        )

    def with_file(project: Path, file: str, old: str, new: str, expected: str) -> str:
        text = (project / file).read_text()
        assert old in text, (file, old)
        (project / file).write_text(text.replace(old, new, 1))
        return expected

    for key, value in stage.params.items():
        yield f"{name}: {key} in the lock", partial(set_param, stage=name, key=key)
        old = f"{key.rpartition('.')[2]}: {value}"
        yield (
            f"{name}: {key} edited",
            partial(with_file, file="params.yaml", old=old, new=f"{old}1", expected=f"params.yaml: {key} is"),
        )
    last = stage.cmd.split()[-1]
    yield (
        f"{name}: another command in the lock",
        partial(
            with_lock, edit=lambda stages: stages[name].update(cmd="true"), expected=f"dvc.lock: {name} ran 'true'"
        ),
    )
    yield (
        f"{name}: another command in dvc.yaml",
        partial(with_file, file="dvc.yaml", old=stage.cmd, new=f"{stage.cmd} {last}", expected=f"dvc.lock: {name} ran"),
    )
    yield (
        f"{name}: removed from the lock",
        partial(
            with_lock, edit=lambda stages: stages.pop(name), expected="dvc.lock: lacks stages that dvc.yaml defines"
        ),
    )


def _records(name: str) -> Named:
    """The record of a stage, its signed statement, and the ledger."""

    def harmed(project: Path, ending: str, harm: Callable[[Path], object], expected: str) -> str:
        path = record_of(project, name).with_suffix(ending)
        path.chmod(0o644)
        harm(path)
        return f"{path.relative_to(project)}: {expected}"

    yield f"{name}: edit the record", partial(harmed, ending=".json", harm=flip, expected="")
    yield f"{name}: delete the record", partial(harmed, ending=".json", harm=Path.unlink, expected="was deleted")
    yield f"{name}: delete the statement", partial(harmed, ending=SIGNED, harm=Path.unlink, expected="was deleted")
    yield f"{name}: edit the statement", partial(harmed, ending=SIGNED, harm=flip, expected="was edited")

    def forged(project: Path) -> str:
        path = forge(project, name, lambda content: content["times"].update(seconds=0.5))
        return f"{path.relative_to(project)}: was not written by a run here"

    yield f"{name}: forge a record", forged

    def other_key(project: Path) -> str:
        """The statement is signed again, by a key that nobody trusts."""
        path = record_of(project, name).with_suffix(SIGNED)
        payload = json.loads(path.read_text())
        own = os.environ[KEY_FILE]
        os.environ[KEY_FILE] = str(project / "other.pem")
        try:
            rewrite(path, json.dumps(sign(base64.b64decode(payload["payload"]), PAYLOAD_TYPE)))
        finally:
            os.environ[KEY_FILE] = own
        return f"{path.relative_to(project)}: was edited"

    yield f"{name}: sign with a different key", other_key


def _stores(project: Path, stages: dict[str, Locked]) -> Named:
    """Objects and cached runs in DVC's cache and in the remote."""
    for path in dict.fromkeys(path for stage in stages.values() for path in stage.outs):
        for store, where in ((".dvc/cache", ".dvc/cache/"), (STORE, f"{STORE}/")):
            yield f"flip {path} in {store}", in_store(store, path, 0, flip, where)
            yield f"truncate a file of {path} in {store}", in_store(store, path, 1, truncate, where)
        yield f"delete {path} in the remote", in_store(STORE, path, 0, Path.unlink, f"{STORE}/")
    for store in (".dvc/cache", STORE):
        yield f"poison the run cache in {store}", partial(poison, store=store)


def _log() -> Named:
    """What the remote says was published."""
    entry = Path(STORE, FOLDER, "log/00000001.json")

    def harmed(project: Path, pattern: str, harm: Callable[[Path], object], expected: str) -> str:
        path = sorted((project / STORE / FOLDER).glob(pattern))[0]
        path.chmod(0o644)
        harm(path)
        return expected

    for pattern, deleted, edited in (
        ("log/*.json", "does not hold the run that this machine published last", f"{entry}: "),
        ("manifests/*.json", "names manifest", "it was edited"),
        ("records/*/*.json", "names record", "it was edited"),
        ("records/*/*.dsse", "was edited or deleted", "was edited or deleted"),
        ("signatures/*.dsse", "its signature by key", "signatures/"),
        ("locks/*.lock", "is missing or was edited", "is missing or was edited"),
    ):
        yield f"delete {pattern} in the remote", partial(harmed, pattern=pattern, harm=Path.unlink, expected=deleted)
        yield f"edit {pattern} in the remote", partial(harmed, pattern=pattern, harm=flip, expected=edited)

    def other_public_key(project: Path) -> str:
        one, *others = sorted((project / STORE / FOLDER / "keys").glob("*.pem"))
        rewrite(one, others[0].read_text())
        return "is not the public key in its name"

    yield "swap a public key in the remote", other_public_key


def _state(project: Path) -> Named:
    """What this machine remembers, and the settings of the project."""
    for path, harm in ((SENT, flip), (LEDGER, flip), (LEDGER, Path.unlink), (FILE, truncate)):
        if (project / path).exists():
            yield f"{harm.__name__} {path}", partial(in_state, path=path, harm=harm)


def in_state(project: Path, path: Path, harm: Callable[[Path], object]) -> str:
    harm(project / path)
    return path.as_posix()


def with_lock(project: Path, edit: Callable[[dict[str, Any]], object], expected: str) -> str:
    edit_lock(project, edit)
    return expected


def set_param(project: Path, stage: str, key: str) -> str:
    def edit(stages: dict[str, Any]) -> None:
        (values,) = stages[stage]["params"].values()
        values[key] = "other"

    return with_lock(project, edit, f"dvc.lock: {key} is")


def poison(project: Path, store: str) -> str:
    """A cached run would restore bytes that the recorded run did not make."""
    for path in (path for path in sorted((project / store / "runs").rglob("*")) if path.is_file()):
        content = yaml.safe_load(path.read_text())
        content["outs"][0]["md5"] = "1" * 32
        rewrite(path, yaml.safe_dump(content))
        return f"{path.relative_to(project)}: would restore {content['outs'][0]['path']}"
    raise AssertionError(f"{store} has no cached run")


def another_history(project: Path) -> str:
    """No branch has the commit of the runs any more."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(project)]
    (branch,) = (project / ".git/refs/heads").iterdir()
    subprocess.run([*git, "checkout", "-q", "--orphan", "new"], check=True)
    subprocess.run([*git, "commit", "-qm", "one commit"], check=True)
    branch.unlink()
    return "no branch or tag has commit"
