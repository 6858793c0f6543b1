"""The tamperings of ``test_tampering``, by what they change. Each says what an error must name."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from flows import storage
from pathfinder.lineage.history import read_lock, read_records
from pathfinder.lineage.published import FOLDER, SEEN, SENT
from pathfinder.provenance.hashing import digest_path
from pathfinder.provenance.ledger import LEDGER, RECORDS
from pathfinder.provenance.record import SIGNED
from tests.support.miniature import dvc

Tampering = Callable[[Path], str]
"""Changes a project and returns what an error must say."""
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
STORE = "storage"
FILES = (
    *("models/full/weights.txt", "models/plain/weights.txt", "metrics/train/full.json", "metrics/train/plain.json"),
    *("artifacts/raw/corpus/one.txt", "artifacts/raw/corpus/b/two.txt", "artifacts/raw/manifest.json"),
    *("data/corpus/one.txt", "data/corpus/b-side.txt", "pathfinder/mixing/mix.py", "stages/train.py"),
    *("pathfinder/core/io.py", "infra/locks/cpu.lock"),
)
OUTS = ("models/full", "models/plain", "metrics/train/full.json", "artifacts/raw")
STAGES = ("download", "train@full", "train@plain")


def rewrite(path: Path, text: str) -> None:
    """Replace a file that may be read-only."""
    path.unlink()
    path.write_text(text, encoding="utf-8")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, (path, old)
    rewrite(path, text.replace(old, new))


def edit_lock(project: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    edit(lock["stages"])
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))


def entry(stages: dict[str, Any], stage: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(e for k in ("deps", "outs") for e in stages[stage].get(k, ()) if e["path"] == path)
    return found


def claim_now(project: Path, *paths: str) -> None:
    """Make dvc.lock and data.dvc agree with the files, as someone who covers tracks would."""

    def edit(stages: dict[str, Any]) -> None:
        for body in stages.values():
            for claim in [*body["deps"], *body["outs"]]:
                if not paths or claim["path"] in paths:
                    digest = digest_path(project / claim["path"])
                    claim |= {"md5": digest.md5, "size": digest.size}
                    claim |= {"nfiles": len(digest.files)} if digest.is_folder else {}

    edit_lock(project, edit)


def objects(project: Path, path: str) -> tuple[str, str]:
    """The md5 of an out, and of its first file."""
    md5 = next(stage.outs[path] for stage in read_lock(project).values() if path in stage.outs)
    files = digest_path(project / path).files
    return md5, next(iter(files.values())).md5 if files else md5


def stored(project: Path, store: str, md5: str) -> Path:
    return project / store / "files/md5" / md5[:2] / md5[2:]


def record_of(project: Path, stage: str) -> Path:
    return read_records(project, stage)[0].path


def forge(project: Path, stage: str, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """Replace the newest record of a stage by an edited one that has the right name for its content."""
    path = record_of(project, stage)
    content = json.loads(path.read_text())
    edit(content)
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    path.unlink()
    path = path.with_name(f"{hashlib.sha256(text.encode()).hexdigest()}.json")
    path.write_text(text)
    return path


def on_file(name: str, harm: Callable[[Path], object]) -> Tampering:
    def tamper(project: Path) -> str:
        harm(project / name)
        return f"{name}: "

    return tamper


def flip(path: Path) -> None:
    """Change one byte and keep size and times."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def link(path: Path) -> None:
    """Move the file or folder away and put a symbolic link to it in its place."""
    away = Path(tempfile.mkdtemp(dir=path.parents[path.parts[::-1].index("project")])) / "away"
    path.rename(away)
    path.symlink_to(away)


def workspace() -> Iterator[tuple[str, Tampering]]:
    for name in FILES:
        yield f"flip {name}", on_file(name, flip)
    for name in FILES[:8]:
        yield f"delete {name}", on_file(name, Path.unlink)
    for name in ("models/full/weights.txt", "artifacts/raw/corpus/one.txt", "metrics/train/plain.json"):
        yield f"truncate {name}", on_file(name, truncate)
    for folder in ("models/full", "artifacts/raw/corpus/b", "data/corpus", "pathfinder/core", "pathfinder/mixing"):
        yield f"add a file to {folder}", on_file(f"{folder}/extra.py", lambda path: path.write_text("x = 1\n"))
    for name in ("models/full/weights.txt", "models/full", "models", "data/corpus/one.txt", "pathfinder/mixing/mix.py"):
        yield f"link {name}", on_file(name, link)

    def swap(project: Path) -> str:
        one, other = project / "models/full/weights.txt", project / "models/plain/weights.txt"
        texts = one.read_text(), other.read_text()
        one.write_text(texts[1])
        other.write_text(texts[0])
        return "models/full/weights.txt: md5 is"

    yield "swap two models", swap


def in_store(store: str, path: str, part: int, harm: Callable[[Path], object], name: str) -> Tampering:
    """Harm the object of an out (0) or of its first file (1)."""

    def tamper(project: Path) -> str:
        file = stored(project, store, objects(project, path)[part])
        file.chmod(0o644)
        harm(file)
        return f"{name}files/md5/{file.parent.name}/{file.name}: "

    return tamper


def caches() -> Iterator[tuple[str, Tampering]]:
    for store, name in ((".dvc/cache", ".dvc/cache/"), (STORE, f"{STORE}/")):
        for path in OUTS:
            yield f"flip {path} in {store}", in_store(store, path, 0, flip, name)
        for path in ("models/full", "models/plain", "artifacts/raw"):
            yield f"truncate a file of {path} in {store}", in_store(store, path, 1, truncate, name)
        yield f"empty a listing in {store}", in_store(store, "models/full", 0, lambda f: f.write_text("[]"), name)
    for path in OUTS:
        yield f"delete {path} in the remote", in_store(STORE, path, 0, Path.unlink, f"{STORE}/")
    for path in ("models/full", "artifacts/raw"):
        yield f"delete a file of {path} in the remote", in_store(STORE, path, 1, Path.unlink, f"{STORE}/")
    for store in (".dvc/cache", STORE):
        yield f"poison the run cache in {store}", partial(poison, store=store)
        yield f"break the run cache in {store}", partial(break_run, store=store)


def run_of(project: Path, store: str, stage: str) -> Path:
    """The run-cache entry of the run in dvc.lock."""
    md5 = read_lock(project)[stage].outs["models/full"]
    return next(p for p in sorted((project / store / "runs").rglob("*")) if p.is_file() and md5 in p.read_text())


def poison(project: Path, store: str) -> str:
    path = run_of(project, store, "train@full")
    replace(path, objects(project, "models/full")[0], objects(project, "models/plain")[0])
    return f"{path.relative_to(project)}: would restore another models/full"


def break_run(project: Path, store: str) -> str:
    path = run_of(project, store, "train@full")
    rewrite(path, path.read_text() + "cmd: python -m stages.train other\n")
    return f"{path.relative_to(project)}: not valid YAML (duplicate key 'cmd'"


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
    ("no parameter in the lock", lambda s: s["train@plain"].pop("params"), "train is nothing in dvc.lock"),
    ("a dep less in the lock", lambda s: s["train@full"]["deps"].pop(0), "train@full: deps differ from dvc.yaml"),
    ("an out less in the lock", lambda s: s["train@full"]["outs"].pop(0), "train@full: outs differ from dvc.yaml"),
    ("a dep twice in the lock", lambda s: s["download"]["deps"].append(s["download"]["deps"][0]), "names data twice"),
    ("a stage more in the lock", lambda s: s.update(other=s["download"]), "has stage other, which dvc.yaml"),
    ("two stages exchanged in the lock", lambda s: s.update({"train@full": s["train@plain"]}), "train@full ran"),
]


def together() -> Iterator[tuple[str, Tampering]]:
    """Several places that agree with one another, against the record."""
    for key, old, new in (("rate", "0.25", "0.01"), ("note", "x", "other")):

        def parameters(project: Path, key: str = key, old: str = old, new: str = new) -> str:
            replace(project / "params.yaml", f"{key}: {old}", f"{key}: {new}")
            replace(project / "dvc.lock", f"{key}: {old}", f"{key}: {new}")
            return f"params.yaml: train.{key} is {new} here and in dvc.lock, the record of the run has {old}"

        yield f"params.yaml and the lock: {key}", parameters
    for name in ("pathfinder/mixing/mix.py", "stages/train.py", "pathfinder/core/io.py", "infra/locks/cpu.lock"):

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


def records() -> Iterator[tuple[str, Tampering]]:
    for stage in STAGES:

        def delete(project: Path, stage: str = stage) -> str:
            path = record_of(project, stage)
            path.unlink()
            return f"{path.relative_to(project)}: was deleted; the ledger names this record"

        yield f"delete the record of {stage}", delete
    for name, edit in RECORD_EDITS:

        def replaced(project: Path, edit: Callable[[dict[str, Any]], Any] = edit) -> str:
            path = forge(project, "train@full", edit)
            return f"{path.relative_to(project)}: was not written by a run here"

        yield f"replace a record: {name}", replaced

        def edited(project: Path, edit: Callable[[dict[str, Any]], Any] = edit) -> str:
            path = record_of(project, "train@full")
            content = json.loads(path.read_text())
            edit(content)
            rewrite(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
            return f"{path.relative_to(project)}: sha256 is"

        yield f"edit a record: {name}", edited
    for name, text in (("empty", ""), ("broken", "{"), ("another thing", '{"a": 1}'), ("a list", "[]")):

        def broken(project: Path, text: str = text) -> str:
            path = record_of(project, "train@full")
            rewrite(path, text)
            return f"{path.relative_to(project)}: sha256 is"

        yield f"a record that is {name}", broken

    def without_form(project: Path) -> str:
        path = forge(project, "train@full", lambda content: content.update(outputs={"models/full": {"md5": 7}}))
        return f"{path.relative_to(project)}: outputs.models/full.md5: Input should be a valid string"

    yield "a record of another form", without_form

    def twice(project: Path) -> str:
        path = record_of(project, "train@full")
        text = path.read_text().replace("{\n", '{\n "cmd": "x",\n', 1)
        path.unlink()
        path = path.with_name(f"{hashlib.sha256(text.encode()).hexdigest()}.json")
        path.write_text(text)
        return f"{path.relative_to(project)}: not valid JSON (duplicate key 'cmd')"

    yield "a key twice in a record", twice

    def moved(project: Path) -> str:
        path = record_of(project, "train@full")
        path.rename(project / RECORDS / "train@plain" / path.name)
        return f"{RECORDS}/train@plain/{path.name}: is a record of train@full; it was moved here"

    yield "move a record", moved

    def all_of_them(project: Path) -> str:
        for path in (project / RECORDS).glob("*/*.json"):
            path.unlink()
        return "was deleted; the ledger names this record"

    yield "delete every record", all_of_them


RECORD_EDITS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("parameter", lambda content: content["params"]["train"].update(rate=0.7)),
    ("output", lambda content: content["outputs"]["models/full"].update(md5="2" * 32 + ".dir")),
    ("input", lambda content: content["inputs"]["artifacts/raw/corpus"].update(sha256="2" * 64)),
    ("code", lambda content: content["code"].pop("stages/train.py")),
    ("environment", lambda content: content["environment"].update(cpu="another")),
    ("time", lambda content: content["times"].update(seconds=1.0)),
    ("commit", lambda content: content["git"].update(commit="0" * 40)),
]


def on_lines(file: Path, edit: Callable[[list[str]], list[str]], expected: str) -> Tampering:
    def tamper(project: Path) -> str:
        path = project / file
        rewrite(path, "".join(edit(path.read_text().splitlines(keepends=True))))
        return expected

    return tamper


def ledger() -> Iterator[tuple[str, Tampering]]:
    chain = f"{LEDGER}:"
    yield "cut the ledger", on_lines(LEDGER, lambda lines: lines[:-1], "the ledger does not name it")
    yield "cut the start of the ledger", on_lines(LEDGER, lambda lines: lines[1:], f"{chain}1: the chain is broken")
    yield "cut the middle of the ledger", on_lines(LEDGER, lambda lines: [lines[0], *lines[2:]], f"{chain}2: the chain")
    yield "reorder the ledger", on_lines(LEDGER, lambda lines: lines[::-1], f"{chain}1: the chain is broken")
    yield "repeat a line of the ledger", on_lines(LEDGER, lambda lines: [*lines, lines[-1]], "the chain is broken")
    swapped: Callable[[list[str]], list[str]] = lambda lines: [lines[0].replace("download", "other"), *lines[1:]]  # noqa: E731
    yield "edit the ledger", on_lines(LEDGER, swapped, f"{chain}2: the chain is broken")
    yield "a line that is no entry in the ledger", on_lines(LEDGER, lambda lines: ["x\n", *lines], "not valid JSON")

    def delete(project: Path) -> str:
        (project / LEDGER).unlink()
        return f"{LEDGER}: is missing although records of its time are here"

    yield "delete the ledger", delete

    def delete_both(project: Path) -> str:
        path = record_of(project, "train@full")
        path.unlink()
        lines = (project / LEDGER).read_text().splitlines(keepends=True)
        (project / LEDGER).write_text("".join(line for line in lines if path.stem not in line))
        return "the chain is broken"

    yield "delete a record and its line in the ledger", delete_both


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


def published() -> Iterator[tuple[str, Tampering]]:
    log = Path(STORE, "pathfinder/log")
    first, last = log / "00000001.json", log / "00000002.json"
    for name, path, old, new, expected in (
        ("edit an entry of the log", first, '"number":1', '"number":9', f"{first}: the chain is broken"),
        ("edit an earlier entry of the log", first, '"previous":null', '"previous": null', f"{last}: the chain is"),
        ("break an entry of the log", last, "{", "", f"{last}: not valid JSON"),
        ("a key twice in the log", last, "{", '{"number":2,', f"{last}: not valid JSON (duplicate key 'number')"),
    ):

        def edit(project: Path, path: Path = path, old: str = old, new: str = new, expected: str = expected) -> str:
            replace(project / path, old, new)
            return expected

        yield name, edit

    def cut(project: Path) -> str:
        (project / last).unlink()
        return f"{log}: does not hold the run that this machine published last"

    yield "cut the log", cut

    def cut_with_manifest(project: Path) -> str:
        digest = json.loads((project / last).read_text())["manifest"]
        (project / log.parent / "manifests" / f"{digest}.json").unlink()
        return cut(project)

    yield "cut the log and its manifest", cut_with_manifest

    def without_start(project: Path) -> str:
        (project / first).unlink()
        return f"{last}: the chain is broken"

    yield "cut the start of the log", without_start

    def reorder(project: Path) -> str:
        texts = (project / first).read_text(), (project / last).read_text()
        (project / first).write_text(texts[1])
        (project / last).write_text(texts[0])
        return f"{first}: the chain is broken"

    yield "reorder the log", reorder

    def remove(project: Path) -> str:
        shutil.rmtree(project / STORE / "pathfinder")
        return f"{log}: does not hold the run that this machine published last"

    yield "remove the log and all manifests", remove
    for name, harm, expected in (
        ("edit", lambda path: replace(path, '"schema":3', '"schema":3 '), ": sha256 is"),
        ("delete", Path.unlink, f"{last}: names manifest"),
    ):

        def manifest(project: Path, harm: Callable[[Path], object] = harm, expected: str = expected) -> str:
            digest = json.loads((project / last).read_text())["manifest"]
            harm(project / log.parent / "manifests" / f"{digest}.json")
            return expected

        yield f"{name} a manifest", manifest

    def lying(project: Path) -> str:
        """The newest manifest, and the entry that names it, agree with one another but not with dvc.lock."""
        entry_of = json.loads((project / last).read_text())
        old = project / log.parent / "manifests" / f"{entry_of['manifest']}.json"
        md5 = objects(project, "models/full")[0]
        text = old.read_text().replace(md5, objects(project, "models/plain")[0])
        entry_of["manifest"] = hashlib.sha256(text.encode()).hexdigest()
        old.unlink()
        old.with_name(f"{entry_of['manifest']}.json").write_text(text)
        rewrite(project / last, json.dumps(entry_of, sort_keys=True, separators=(",", ":")) + "\n")
        return f"{log}: the newest manifest differs from the dvc.lock that it names: models/full"

    yield "a manifest of other outs", lying


def signatures() -> Iterator[tuple[str, Tampering]]:
    for name, harm, word in (
        ("delete", Path.unlink, "deleted"),
        ("edit", lambda path: replace(path, '"sig": "', '"sig": "A'), "edited"),
    ):

        def local(project: Path, harm: Callable[[Path], object] = harm, word: str = word) -> str:
            path = record_of(project, "train@full").with_suffix(SIGNED)
            harm(path)
            return f"{path.relative_to(project)}: was {word}; the ledger names this signed statement"

        yield f"{name} a signed statement", local

    def other_statement(project: Path) -> str:
        path, other = (record_of(project, stage).with_suffix(SIGNED) for stage in ("train@full", "train@plain"))
        rewrite(path, other.read_text())
        return "is a statement about another record (train@full)"

    yield "exchange a signed statement", other_statement

    def other_content(project: Path) -> str:
        path = record_of(project, "train@full").with_suffix(SIGNED)
        envelope = json.loads(path.read_text())
        payload = base64.b64decode(envelope["payload"]).replace(b"stages.train", b"stages.trial")
        rewrite(path, json.dumps(envelope | {"payload": base64.b64encode(payload).decode()}))
        return "the signature is wrong: the content was edited after it was signed (train@full)"

    yield "edit the content of a signed statement", other_content
    folder = Path(STORE, FOLDER)
    for name, kind, harm, expected in (
        ("delete", "records/train@full/*.json", Path.unlink, "names record"),
        ("edit", "records/train@full/*.json", flip, "edited"),
        ("delete", "signatures/*.dsse", Path.unlink, "its signature by key"),
        ("break", "signatures/*.dsse", flip, "signatures/"),
        ("delete", "patches/*.patch", Path.unlink, "is missing or was edited; a manifest names it"),
        ("edit", "patches/*.patch", flip, "is missing or was edited; a manifest names it"),
    ):

        def remote(
            project: Path, kind: str = kind, harm: Callable[[Path], object] = harm, expected: str = expected
        ) -> str:
            for path in sorted((project / folder).glob(kind)):
                path.chmod(0o644)
                harm(path)
            return expected

        yield f"{name} {kind} of the remote", remote

    def exchanged(project: Path) -> str:
        one, other = sorted((project / folder / "signatures").glob("*.dsse"))
        rewrite(one, other.read_text())
        return f"{one.relative_to(project)}: signs another entry than the one in its name"

    yield "exchange two signatures of the log", exchanged

    def rolled_back(project: Path) -> str:
        """The newest entry, its manifest and this machine's memory of the last publication are taken back."""
        last = project / folder / "log/00000002.json"
        manifest = json.loads(last.read_text())["manifest"]
        before = json.loads((last.with_name("00000001.json")).read_text())["manifest"]
        lock = json.loads((project / folder / f"manifests/{before}.json").read_text())["dvc_lock"]
        last.unlink()
        (project / folder / f"manifests/{manifest}.json").unlink()
        rewrite(project / SENT, json.dumps({STORE: lock}))
        return "entry 2 is not the one that this machine has seen: the log was cut or written anew"

    yield "roll the log back", rolled_back

    def written_anew(project: Path) -> str:
        """Another log with proper digests takes the place of the published one."""
        shutil.rmtree(project / folder / "log")
        seen = (project / SEEN).read_text()
        storage.publish(project, STORE)
        rewrite(project / SEEN, seen)
        return "entry 2 is not the one that this machine has seen: the log was cut or written anew"

    yield "write the log anew", written_anew


def journals() -> Iterator[tuple[str, Tampering]]:
    journal = Path(".pathfinder/train/full-0.25.jsonl")
    expected = f"{journal}: its first "

    def rewrite_answers(project: Path) -> str:
        replace(project / journal, '"text": "full', '"text": "fuller')
        return expected

    yield "rewrite a journal", rewrite_answers

    def make_again(project: Path) -> str:
        """The answers are replaced, then the stage and the lock are made from them as if nothing had happened."""
        rewrite_answers(project)
        dvc(project, "repro", "-f", "-q", "-s", "train@full")
        assert (project / "models/full/weights.txt").read_text().startswith("fuller")
        return expected

    yield "rewrite a journal and run again", make_again
    yield "truncate a journal", on_file(journal.as_posix(), truncate)
    yield "empty a journal", on_file(journal.as_posix(), lambda path: path.write_text(""))

    def module(project: Path) -> str:
        """A module in the project's root takes the place of an installed one."""
        (project / "fractions.py").write_text("Fraction = int\n")
        dvc(project, "repro", "-f", "-q", "-s", "train@full")
        return "fractions (fractions.py): the run loaded this module, which is neither in the code of the stage"

    yield "a module instead of an installed one", module


def documents() -> Iterator[tuple[str, Tampering]]:
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


CAMPAIGN = [
    *workspace(),
    *caches(),
    *locks(),
    *together(),
    *records(),
    *ledger(),
    *pointers(),
    *published(),
    *signatures(),
    *journals(),
    *documents(),
]
