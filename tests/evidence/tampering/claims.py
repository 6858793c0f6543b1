"""Tamperings with claims: dvc.lock, dvc.yaml, parameters, code and ``.dvc`` files, one by one or together."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from ground.hashing import digest_path
from tests.evidence.tampering.edits import STAGES, Tampering, claim_now, edit_lock, entry, flip, replace
from tests.support.miniature import GIT


def in_lock(stage: str, path: str, key: str, value: Any, expected: str) -> Tampering:
    def tamper(project: Path) -> str:
        edit_lock(project, lambda stages: entry(stages, stage, path).update({key: value}))
        return expected

    return tamper


def locks() -> Iterator[tuple[str, Tampering]]:
    for stage, path in (
        *(("train@full", "models/full"), ("train@full", "metrics/train/full.json"), ("download", "artifacts/raw")),
        *(("train@plain", "models/plain"), ("download", "data"), ("train@full", "artifacts/raw/corpus")),
        *(("train@full", "pathfinder/mixing"), ("train@plain", "infra/locks"), ("download", "stages/download.py")),
    ):
        md5 = "1" * 32 + (".dir" if "." not in path else "")
        yield f"md5 of {path} in the lock", in_lock(stage, path, "md5", md5, f"dvc.lock: {path}: md5 is 1111")
    for stage, path, key in (("train@full", "models/full", "size"), ("download", "data", "nfiles")):
        yield f"{key} of {path} in the lock", in_lock(stage, path, key, 7, f"dvc.lock: {path}: {key} is 7")
    yield "an unknown key in the lock", in_lock("download", "data", "etag", "x", "dvc.lock: stages.download.deps")
    for path in ("models/full", "metrics/train/full.json"):
        yield (
            f"isexec of {path} in the lock",
            in_lock("train@full", path, "isexec", True, f"dvc.lock: {path}: isexec is true, but"),
        )
    yield (
        "another hash in the lock",
        in_lock("train@full", "models/full", "hash", "md5-dos2unix", "hash: Input should be 'md5'"),
    )
    yield "no digest in the lock", in_lock("train@full", "models/full", "md5", None, "dvc.lock: models/full: md5 is")
    for stage in STAGES:
        yield f"remove {stage} from the lock", partial(without_stage, stage=stage)
    for name, edit, expected in LOCK_EDITS:
        yield name, partial(with_lock, edit=edit, expected=expected)

    def duplicate(project: Path) -> str:
        path = project / "dvc.lock"
        path.write_text(path.read_text() + "  train@full:\n    cmd: python -m stages.train full\n")
        return "dvc.lock: not valid YAML (duplicate key 'train@full'"

    yield "a stage twice in the lock", duplicate

    def remove_and_swap(project: Path) -> str:
        (project / "models/full/weights.txt").write_text("better weights")
        return without_stage(project, "train@full")

    yield "remove a stage from the lock and swap its weights", remove_and_swap


def without_stage(project: Path, stage: str) -> str:
    edit_lock(project, lambda stages: stages.pop(stage))
    return "dvc.lock: lacks stages that dvc.yaml defines: they never ran, or were removed from it"


def with_lock(project: Path, edit: Callable[[dict[str, Any]], object], expected: str) -> str:
    edit_lock(project, edit)
    return expected


LOCK_EDITS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("no stage in the lock", lambda s: s.clear(), "(download, train@full, train@plain)"),
    ("a command in the lock", lambda s: s["train@full"].update(cmd="python -m stages.train x"), "train@full ran"),
    (
        "a parameter in the lock",
        lambda s: s["train@full"]["params"]["params.yaml"]["train"].update(rate=0.9),
        "rate is 0.9",
    ),
    (
        "parameters of another file in the lock",
        lambda s: s["train@full"].update(params={"other.yaml": s["train@full"]["params"]["params.yaml"]}),
        "dvc.lock: train@full: params of other.yaml; only one params.yaml is read",
    ),
    ("no parameter in the lock", lambda s: s["train@plain"].pop("params"), "train is nothing in dvc.lock"),
    ("a dep less in the lock", lambda s: s["train@full"]["deps"].pop(0), "train@full: deps differ from dvc.yaml"),
    ("an out less in the lock", lambda s: s["train@full"]["outs"].pop(0), "train@full: outs differ from dvc.yaml"),
    ("a dep twice in the lock", lambda s: s["download"]["deps"].append(s["download"]["deps"][0]), "names data twice"),
    ("a stage more in the lock", lambda s: s.update(other=s["download"]), "has stage other, which dvc.yaml"),
    ("two stages exchanged in the lock", lambda s: s.update({"train@full": s["train@plain"]}), "train@full ran"),
]


UNCOVERED = "is not the code that the run recorded"


def change(path: Path) -> None:
    path.write_text("import os\nSHIPPED = 'shipped'\n")


def code(name: str, harm: Callable[[Path], None], found: str, is_committed: bool = False) -> Tampering:
    """Harm a file of code; no dependency covers those that are ``UNCOVERED``."""

    def tamper(project: Path) -> str:
        harm(project / name)
        if is_committed:
            subprocess.run([*GIT, "commit", "-qam", "later"], cwd=project, check=True)
        since = f" ({'since commit ' if is_committed else 'in no commit)'}" if found == UNCOVERED else ""
        return f"{name}: {found}{since}"

    return tamper


def together() -> Iterator[tuple[str, Tampering]]:
    """Several places that agree with one another, against the record."""
    for key, old, new in (("rate", "0.25", "0.01"), ("note", "x", "other")):

        def parameters(project: Path, key: str = key, old: str = old, new: str = new) -> str:
            replace(project / "params.yaml", f"{key}: {old}", f"{key}: {new}")
            replace(project / "dvc.lock", f"{key}: {old}", f"{key}: {new}")
            return f"params.yaml: train.{key} is {new} here and in dvc.lock, the record of the run has {old}"

        yield f"params.yaml and the lock: {key}", parameters
    for name in (
        "pathfinder/mixing/mix.py",
        "stages/train.py",
        "stages/__init__.py",
        "ground/io.py",
        "infra/locks/cpu.lock",
    ):

        def source(project: Path, name: str = name) -> str:
            (project / name).write_text((project / name).read_text() + "# changed\n")
            claim_now(project)
            return f"{name}: md5 is"

        yield f"{name} and the lock", source
    for name in ("models/full/weights.txt", "metrics/train/full.json", "artifacts/raw/corpus/one.txt"):

        def output(project: Path, name: str = name) -> str:
            flip(project / name)
            claim_now(project)
            return f"{name}: md5 is"

        yield f"{name} and the lock", output

    for name, harm, found in (
        ("stages/__init__.py", change, "md5 is"),
        ("pathfinder/__init__.py", change, "md5 is"),
        ("stages/__init__.py", Path.unlink, "is missing"),
        ("infra/kinds.py", change, UNCOVERED),
        ("evidence/record/record.py", flip, UNCOVERED),
    ):
        what = f"{'delete' if harm is Path.unlink else 'change'} {name}"
        yield what, code(name, harm, found)
        if harm is not flip:
            yield f"{what} and commit", code(name, harm, found, is_committed=True)

    def one_consumer(project: Path) -> str:
        flip(project / "artifacts/raw/corpus/one.txt")
        claim_now(project, "artifacts/raw")
        return "artifacts/raw/corpus/one.txt: md5 is"

    yield "an out and its producer in the lock", one_consumer

    def dependency(project: Path) -> str:
        replace(project / "dvc.yaml", "pathfinder/mixing, ", "")
        edit_lock(
            project,
            lambda stages: [
                body["deps"].remove(entry(stages, name, "pathfinder/mixing"))
                for name, body in stages.items()
                if name != "download"
            ],
        )
        return "dvc.yaml: deps of train@full differ from its record: pathfinder/mixing"

    yield "a dep less in dvc.yaml and the lock", dependency

    def command(project: Path) -> str:
        replace(project / "dvc.yaml", "stages.train", "stages.trained")
        replace(project / "dvc.lock", "stages.train ", "stages.trained ")
        return "the record 'python -m stages.train full'"

    yield "the command in dvc.yaml and the lock", command

    def upstream(project: Path) -> str:
        flip(project / "data/corpus/one.txt")
        found = digest_path(project / "data")
        pointer = yaml.safe_load((project / "data.dvc").read_text())
        pointer["outs"][0] |= {"md5": found.md5, "size": found.size}
        (project / "data.dvc").write_text(yaml.safe_dump(pointer))
        claim_now(project, "data")
        return "data/corpus/one.txt: "

    yield "the data, its pointer and the lock", upstream


def pointers() -> Iterator[tuple[str, Tampering]]:
    pointer = Path("data.dvc")

    def delete(project: Path) -> str:
        (project / pointer).unlink()
        return "data: has no origin: no stage makes it, git does not track it, and data.dvc is missing"

    yield "delete data.dvc", delete
    for old, new, expected in (
        ("size: ", "size: 1", "data.dvc: data: size is 1"),
        ("- md5: ", "- md5: 0", "data.dvc: outs.0.md5: String should match pattern"),
        ("outs:\n", "outs:\n- path: other\n  md5: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "other: is missing"),
        ("outs:", "outs: []\nouts:", "data.dvc: not valid YAML (duplicate key 'outs'"),
        ("outs:", "wdir: elsewhere\nouts:", "elsewhere/data: is missing"),
        ("  path: ", "  isexec: true\n  path: ", "data.dvc: data: isexec is true, but the folder is not executable"),
        ("  hash: md5", "  hash: md5-dos2unix", "data.dvc: outs.0.hash: Input should be 'md5'"),
        ("outs:", "deps: []\nouts:", "data.dvc: deps: Extra inputs are not permitted"),
    ):

        def edit(project: Path, old: str = old, new: str = new, expected: str = expected) -> str:
            replace(project / pointer, old, new)
            return expected

        yield f"data.dvc: {new.splitlines()[0]}", edit

    def other_data(project: Path) -> str:
        text = (project / pointer).read_text()
        (project / pointer).write_text(re.sub(r"md5: [0-9a-f]{32}", "md5: " + "3" * 32, text))
        return "data"

    yield "another digest in data.dvc", other_data


def documents() -> Iterator[tuple[str, Tampering]]:
    for file, old, new, expected in (
        ("dvc.lock", "schema: '2.0'", "schema: '1.0'", "dvc.lock: schema: Input should be '2.0'"),
        (
            "dvc.yaml",
            "    cmd: python -m stages.d",
            "    wdir: models\n    cmd: python -m stages.d",
            "download: wdir must be",
        ),
        (
            "dvc.yaml",
            "params: [train]",
            "params: [other.yaml: [train]]",
            "params: expected keys of params.yaml, not other",
        ),
    ):

        def stated(project: Path, file: str = file, old: str = old, new: str = new, expected: str = expected) -> str:
            replace(project / file, old, new)
            return expected

        yield f"{new.partition(chr(10))[0].strip()} in {file}", stated
    for name, text, expected in (
        ("params.yaml", "train: {rate: 0.25, note: x}\n", "params.yaml: not valid YAML (duplicate key 'train'"),
        ("dvc.yaml", "stages: {}\n", "dvc.yaml: not valid YAML (duplicate key 'stages'"),
    ):

        def append(project: Path, name: str = name, text: str = text, expected: str = expected) -> str:
            (project / name).write_text((project / name).read_text() + text)
            return expected

        yield f"a key twice in {name}", append

    def parameters(project: Path) -> str:
        replace(project / "params.yaml", "0.25", "0.5")
        return "params.yaml: train.rate is 0.5, dvc.lock has 0.25"

    yield "another parameter", parameters

    def manifest(project: Path) -> str:
        path = project / "artifacts/raw/manifest.json"
        path.write_text(path.read_text().replace('"licence"', '"kind": "hub", "licence"', 1))
        return "artifacts/raw/manifest.json: "

    yield "a key twice in the manifest of sources", manifest

    def added_stage(project: Path) -> str:
        text = (project / "dvc.yaml").read_text()
        (project / "dvc.yaml").write_text(text + "  more:\n    cmd: python -m stages.more\n    outs: [more.txt]\n")
        return "dvc.lock: lacks stages that dvc.yaml defines: they never ran, or were removed from it (more)"

    yield "a stage more in dvc.yaml", added_stage

    def removed_stage(project: Path) -> str:
        replace(project / "dvc.yaml", "[full, plain]", "[full]")
        return "dvc.lock: has stage train@plain, which dvc.yaml does not define"

    yield "a stage less in dvc.yaml", removed_stage

    def moved_stage(project: Path) -> str:
        """The stages that made shipped data need no record."""
        flip(project / "models/full/weights.txt")
        claim_now(project, "models/full")
        replace(project / "dvc.yaml", "[full, plain]", "[plain]")
        folder, lock = project / "infra/pretraining", yaml.safe_load((project / "dvc.lock").read_text())
        moved = lock["stages"].pop("train@full")
        del moved["params"]
        named = {kind: [claim["path"] for claim in moved[kind]] for kind in ("deps", "outs")}
        folder.mkdir()
        body = {"wdir": "../..", "cmd": moved["cmd"], **named}
        (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"full": body}}))
        (folder / "dvc.lock").write_text(yaml.safe_dump(lock | {"stages": {"full": moved}}))
        (project / "dvc.lock").write_text(yaml.safe_dump(lock))
        return "infra/pretraining/dvc.yaml: full makes metrics/train/full.json, models/full outside of artifacts/pretr"

    yield "move a stage to the pipeline of the shipped data", moved_stage

    def no_stages(project: Path) -> str:
        (project / "dvc.yaml").write_text("stages: {}\n")
        (project / "dvc.lock").write_text("schema: '2.0'\n")
        return "dvc.yaml: defines no stage"

    yield "no stages at all", no_stages


NAMED: list[tuple[str, str, str, str]] = [
    ("dvc.yaml", "    cmd: python -m stages.d", "    frozen: true\n    cmd: python -m stages.d", "`frozen: true`"),
    ("dvc.yaml", "    cmd: python -m stages.d", "    always_changed: true\n    cmd: python -m stages.d", "`always_ch"),
    (
        "dvc.yaml",
        "outs: [artifacts/raw]",
        "outs: [artifacts/raw: {persist: true}]",
        "`persist: true` for artifacts/raw",
    ),
    ("dvc.yaml", "outs: [artifacts/raw]", "outs: [artifacts/raw: {push: false}]", "`push: false` for artifacts/raw"),
    ("dvc.yaml", "stages:\n", "vars: [other.yaml]\nstages:\n", "`vars`"),
    ("dvc.yaml", "    cmd: python -m stages.d", "    vars: [{a: 1}]\n    cmd: python -m stages.d", "`vars`"),
    (
        "dvc.lock",
        "    - path: models/full\n      hash: md5\n",
        "    - path: models/full\n",
        "no `hash: md5` for models/full",
    ),
    ("data.dvc", "outs:", "frozen: true\nouts:", "`frozen: true`"),
    ("data.dvc", "  path: ", "  push: false\n  path: ", "`push: false` for data"),
]
"""A file, a text in it and its replacement: a statement that DVC acts on, and that only a note can name."""
UNREAD: list[tuple[str, str, str]] = [
    ("dvc.yaml", "    cmd: python -m stages.d", "    desc: x\n    meta: {a: 1}\n    cmd: python -m stages.d"),
    ("data.dvc", "outs:", "meta: {a: 1}\ndesc: x\nouts:"),
    ("data.dvc", "  path: ", "  desc: x\n  meta: {a: 1}\n  labels: [a]\n  path: "),
]
"""The same for statements that DVC does not act on."""
