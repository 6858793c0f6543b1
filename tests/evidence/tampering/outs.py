"""Tamperings with bytes: files of the workspace, objects of the cache and of a remote folder, and cached runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from evidence.dvc.history import read_lock
from evidence.dvc.stores import object_file
from tests.evidence.tampering.edits import (
    OUTS,
    STORE,
    Tampering,
    flip,
    link,
    objects,
    on_file,
    replace,
    rewrite,
    truncate,
)

FILES = (
    *("models/full/weights.txt", "models/plain/weights.txt", "metrics/train/full.json", "metrics/train/plain.json"),
    *("artifacts/raw/corpus/one.txt", "artifacts/raw/corpus/b/two.txt", "artifacts/raw/manifest.json"),
    *("data/corpus/one.txt", "data/corpus/b-side.txt", "pathfinder/mixing/mix.py", "stages/train.py"),
    *("ground/io.py", "infra/locks/cpu.lock"),
)


def workspace() -> Iterator[tuple[str, Tampering]]:
    for name in FILES:
        yield f"flip {name}", on_file(name, flip)
    for name in FILES[:8]:
        yield f"delete {name}", on_file(name, Path.unlink)
    for name in ("models/full/weights.txt", "artifacts/raw/corpus/one.txt", "metrics/train/plain.json"):
        yield f"truncate {name}", on_file(name, truncate)
    for folder in ("models/full", "artifacts/raw/corpus/b", "data/corpus", "ground", "pathfinder/mixing"):
        yield f"add a file to {folder}", on_file(f"{folder}/extra.py", lambda path: path.write_text("x = 1\n"))
    for name in ("models/full/weights.txt", "models/full", "models", "data/corpus/one.txt", "pathfinder/mixing/mix.py"):
        yield f"link {name}", on_file(name, link)

    def beside(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"planted")

    for name in ("models/full/__pycache__", "data/corpus/__pycache__", "models/full/b/__pycache__"):
        yield f"add {name}", partial(added, name=name, make=lambda path: beside(path / "mix.cpython-311.pyc"))
    yield "add a pipe to a model", partial(added, name="models/full/pipe", make=os.mkfifo)
    for name in (".DS_Store", "Thumbs.db", ".weights.txt.swp", "weights.txt~", "#weights.txt#"):
        yield f"add {name} to a model", partial(added, name=f"models/full/{name}", make=beside)

    def swap(project: Path) -> str:
        one, other = project / "models/full/weights.txt", project / "models/plain/weights.txt"
        texts = one.read_text(), other.read_text()
        one.write_text(texts[1])
        other.write_text(texts[0])
        return "models/full/weights.txt: md5 is"

    yield "swap two models", swap

    def replaced(project: Path, name: str, make: Callable[[Path], object]) -> str:
        path = project / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)
        return f"{name}/train/full.json: is missing" if name == "metrics" else f"{name}: is "

    for name, kind, make in (
        ("metrics", "a file", Path.touch),
        ("metrics/train/full.json", "a pipe", os.mkfifo),
        ("models/full", "a link to itself", lambda path: path.symlink_to(path.name)),
    ):
        yield f"{kind} in place of {name}", partial(replaced, name=name, make=make)


def added(project: Path, name: str, make: Callable[[Path], object]) -> str:
    (project / name).parent.mkdir(exist_ok=True)
    make(project / name)
    return f"{name}: "


def in_store(store: str, path: str, part: int, harm: Callable[[Path], object], name: str) -> Tampering:
    """Harm the object of an out (0) or of its first file (1)."""

    def tamper(project: Path) -> str:
        file = object_file(project / store, objects(project, path)[part])
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
    return f"{path.relative_to(project)}: would restore models/full"


def break_run(project: Path, store: str) -> str:
    path = run_of(project, store, "train@full")
    rewrite(path, path.read_text() + "cmd: python -m stages.train other\n")
    return f"{path.relative_to(project)}: not valid YAML (duplicate key 'cmd'"
