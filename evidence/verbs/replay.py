"""``replay``: execute a stage again from its recorded inputs and compare what it makes.

The stage runs in a temporary worktree of git at the recorded commit, with the recorded parameters, on inputs that come
from the stores of this machine. The worktree is removed afterwards, and no file of the project changes. It has no
journals, so a stage computes the answers in them again. The interpreter and the packages are this environment's.

An out is identical, within tolerance, or different: floating-point numbers in JSON and JSON Lines files, and tensors in
safetensors files, may differ by ``TOLERANCE``. Everything else must be equal.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.audit.claims import NONE
from evidence.dvc import history
from evidence.dvc.pipeline import MAIN, read_pipelines, value_at
from evidence.dvc.stores import listing_of
from evidence.record.environment import FLOW_RUN, IMAGE, git, installed_packages
from evidence.record.reading import Record
from evidence.record.record import RECORDING
from evidence.settings import SETTINGS
from evidence.verbs.targets import Files
from evidence.verbs.views import record_named
from ground.hashing import digest_path
from ground.io import DataError
from ground.settings import dump_yaml, read_yaml
from ground.show import counted

_STANDARD_ERROR = 2
EXIT = {"identical": 0, "within tolerance": 1, "different": 2}
NOT_POSSIBLE = 3
_VARIABLES_OF_RUNS = (FLOW_RUN, IMAGE)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome: a verdict per out, and the packages that differ from the recorded run."""

    stage: str
    record: str
    commit: str
    seconds: float
    outs: dict[str, Verdict]
    packages: dict[str, list[str | None]]

    @property
    def verdict(self) -> str:
        """``identical``, ``within tolerance`` or ``different``."""
        return max((verdict.word for verdict in self.outs.values()), key=EXIT.__getitem__, default="identical")

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "stage": self.stage,
            "record": self.record,
            "commit": self.commit,
            "verdict": self.verdict,
            "tolerance": TOLERANCE,
            "seconds": {"then": self.seconds},
            "outs": {path: {"verdict": verdict.word, "why": verdict.why} for path, verdict in self.outs.items()},
            "packages that differ": self.packages,
        }

    def lines(self) -> Iterator[str]:
        """The outcome as lines of text."""
        yield f"{self.stage}, record {self.record[:12]}, commit {self.commit[:12]}: {self.verdict}"
        for path, verdict in self.outs.items():
            yield f"  {verdict.word:17} {path}{f'  ({verdict.why})' if verdict.why else ''}"
        for name, (then, now) in self.packages.items():
            yield f"  package {name}: {then or 'not installed'} then, {now or 'not installed'} now"
        yield f"tolerance: numbers may differ by a relative {TOLERANCE:g}"


def replay(name: str, root: Path, revision: str | None = None, say: Callable[[str], None] = print) -> Replayed:
    """Execute a stage (or the run of a record, named by its digest) again and compare its outs with the record's.

    ``revision`` names the lock whose run is repeated. ``say`` prints the progress. Raises ``DataError`` if this
    machine has no record of the run, the run's code was not committed, no store has an input, or the stage fails.
    """
    record = record_named(name, root) or _recorded(name, root, revision)
    commit = record.content["git"]["commit"]
    if commit is None or git("cat-file", "-e", f"{commit}^{{commit}}", root=root) is None:
        raise DataError(f"{name}: its commit {commit} is not in this repository; fetch it with git")
    root = root.resolve()
    with _ended_by_signals(), _worktree(root, commit) as folder:
        _check_code(record, folder)
        _set_params(record, folder)
        say(f"inputs of {record.content['stage']} from the stores of this machine")
        _place_inputs(record, root, folder)
        say(f"$ {record.content['cmd']}   (took {record.content['times']['seconds']} s then)")
        _run(record, folder)
        outs = {path: compared(folder / path, entry, Files(root)) for path, entry in record.content["outputs"].items()}
    then, now = record.content["environment"].get("packages", {}), installed_packages()
    packages = {key: [then.get(key), now.get(key)] for key in sorted(then) if then.get(key) != now.get(key)}
    content = record.content
    return Replayed(content["stage"], record.digest, commit, content["times"]["seconds"], outs, packages)


def _recorded(name: str, root: Path, revision: str | None) -> Record:
    """The record of the run in the lock."""
    files = Files(root, revision)
    if name not in files.stages:
        raise DataError(f"{name}: no such stage in {history.MAIN_LOCK}; `{SETTINGS.command} list` lists them")
    if (found := files.made(files.stages[name])) is None:
        message = f"no record of the run in {history.MAIN_LOCK}; `{SETTINGS.command} list records` lists its records"
        raise DataError(f"{name}: this machine has {message}")
    return found


@contextmanager
def _worktree(root: Path, commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        folder = Path(name).resolve() / "worktree"
        quiet = ("-c", f"core.hooksPath={os.devnull}")
        if git(*quiet, "worktree", "add", "--detach", "--quiet", str(folder), commit, root=root) is None:
            raise DataError(f"{commit[:12]}: git could not make a worktree of it; see `git worktree list`")
        try:
            yield folder / (git("rev-parse", "--show-prefix", root=root) or "").rstrip("\n")
        finally:
            git("worktree", "remove", "--force", str(folder), root=root)


def _check_code(record: Record, folder: Path) -> None:
    """Raise ``DataError`` unless the commit has the code that ran and the stage's command: only that can run again."""
    for kind in ("rooms", "code"):
        for path, entry in record.content[kind].items():
            place = folder / path
            if not place.exists() or digest_path(place).sha256 != entry["sha256"]:
                raise DataError(f"{path}: the run's code differed from its commit; only committed code can be replayed")
    stage = read_pipelines(folder).get(record.content["stage"])
    if stage is not None and stage.cmd != record.content["cmd"]:
        raise DataError(f"{MAIN}: the commit gives {stage.name} a different command from the run")


def _set_params(record: Record, folder: Path) -> None:
    """Write the recorded values into the worktree's parameters, if they differ from the commit's."""
    stage = read_pipelines(folder).get(record.content["stage"])
    file = folder / (stage.params_file if stage else "params.yaml")
    if not record.content["params"]:
        return
    content = read_yaml(file)
    different = {key: value for key, value in record.content["params"].items() if value_at(content, key, NONE) != value}
    for key, value in different.items():
        *above, last = key.split(".")
        place = content
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    if different:
        file.write_text(dump_yaml(content), encoding="utf-8")


def _place_inputs(record: Record, root: Path, folder: Path) -> None:
    files = Files(root)
    for path, entry in record.content["inputs"].items():
        target = folder / path
        in_commit = target.exists()
        if in_commit and digest_path(target).sha256 == entry["sha256"]:
            continue
        if entry["md5"].endswith(".dir"):
            target.mkdir(parents=True, exist_ok=True)  # also if it is empty
        if (listed := entry.get("files")) is None:
            wanted = files.files_of(path, entry["md5"])
        else:
            wanted = {f"{path}/{name}": file["md5"] for name, file in listed.items()}
        for name, md5 in wanted.items():
            if not (folder / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(files.stored(name, md5), folder / name)
        if in_commit and digest_path(target).sha256 != entry["sha256"]:
            raise DataError(f"{path}: its bytes in the commit differ from the bytes that the run read")


def _run(record: Record, folder: Path) -> None:
    """Run the command with the recorded variables; its output goes to standard error."""
    cmd = str(record.content["cmd"])
    if not cmd.startswith("python -m "):
        raise DataError(f"{cmd!r}: replay runs modules and recorded commands only")
    recorded: Mapping[str, str] = record.content["environment"].get("variables", {})
    kept = os.environ | {RECORDING: cmd}  # so that the replay signs no record
    kept |= {n: v for n, v in recorded.items() if not v.startswith("sha256 ") and n not in _VARIABLES_OF_RUNS}
    for path in record.content["outputs"]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, *shlex.split(cmd)[1:]]
    # A separate session, so that everything that the stage started ends with it if the replay is interrupted.
    process = subprocess.Popen(words, cwd=folder, env=kept, stdout=_STANDARD_ERROR, start_new_session=True)
    try:
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if status:
        raise DataError(f"{cmd}: ended with exit status {status}; its messages are above")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM raise ``SystemExit``, so that the worktree is removed."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


TOLERANCE = 1e-4
"""The largest difference, relative to the larger of two numbers, or to the largest value of a tensor."""
_ABSOLUTE = 1e-8
"""Numbers in JSON that differ by at most this much count as equal, however small they are."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``identical``, ``within tolerance`` or ``different``, and a description of the difference."""

    word: str
    why: str = ""


def compared(path: Path, entry: Mapping[str, Any], files: Files) -> Verdict:
    """Compare a file or folder with its entry in a record; the recorded bytes are read from the stores of ``files``."""
    if not path.exists():
        return Verdict("different", "was not made")
    found = digest_path(path)
    if found.md5 == entry["md5"]:
        return Verdict("identical")
    if not found.is_folder:
        return _file(path, str(entry["md5"]), files)
    listed = {name: inner["md5"] for name, inner in (entry.get("files") or {}).items()}
    listed = listed or listing_of(files.stores, str(entry["md5"]))
    if listed.keys() != found.files.keys():
        return Verdict("different", f"other files: {', '.join(sorted(listed.keys() ^ found.files.keys()))}")
    verdicts = {name: _file(path / name, md5, files) for name, md5 in listed.items() if found.files[name].md5 != md5}
    worst = "different" if any(v.word == "different" for v in verdicts.values()) else "within tolerance"
    return Verdict(worst, "; ".join(f"{name}: {verdict.why}" for name, verdict in verdicts.items()))


def _file(path: Path, md5: str, files: Files) -> Verdict:
    old = files.object(md5)
    if old is None:
        return Verdict("different", "different bytes; no store of this machine has the recorded ones")
    if path.suffix == ".safetensors":
        return _tensors(path, old)
    try:
        if path.suffix == ".json":
            return _gaps(_differences(json.loads(old.read_bytes()), json.loads(path.read_bytes()), ""))
        if path.suffix == ".jsonl":
            left, right = (list(map(json.loads, file.read_bytes().splitlines())) for file in (old, path))
            return _gaps(_differences(left, right, ""))
    except ValueError:
        pass
    return Verdict("different", "different bytes")


def _gaps(found: Iterator[tuple[str, float]]) -> Verdict:
    gaps = list(found)
    place, gap = max(gaps, key=lambda one: one[1], default=("", 0.0))
    if gap > TOLERANCE:
        return Verdict(
            "different", f"{place or 'the whole file'}{'' if math.isinf(gap) else f' by a relative {gap:.2g}'}"
        )
    numbers = f"{counted(len(gaps), 'number')} differ, by at most a relative {gap:.2g}"
    return Verdict("within tolerance", numbers if gaps else "the same values, written differently")


def _differences(old: Any, new: Any, place: str) -> Iterator[tuple[str, float]]:
    """The places where two JSON values differ, with the relative gap of numbers; infinite for anything else."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from _differences(old[key], new[key], f"{place}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, two) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, two, f"{place}/{number}")
    elif type(old) is type(new) is float:
        if old != new:
            yield place, 0.0 if abs(old - new) <= _ABSOLUTE else _finite(abs(old - new) / max(abs(old), abs(new)))
    elif old != new or type(old) is not type(new):
        yield place, math.inf


def _tensors(path: Path, old: Path) -> Verdict:
    """Compare the tensors of two safetensors files, in float64."""
    import torch
    from safetensors.torch import load_file

    left, right = load_file(old), load_file(path)
    if _forms(left) != _forms(right):
        return Verdict("different", "other tensors")
    gap = 0.0
    for name, tensor in left.items():
        one, two = tensor.to(torch.float64), right[name].to(torch.float64)
        if not torch.equal(one, two):
            gap = max(gap, _finite(float((one - two).abs().max() / one.abs().max().clamp(min=_ABSOLUTE))))
    word = "within tolerance" if gap <= TOLERANCE else "different"
    return Verdict(word, f"tensors by at most {gap:.2g} of their largest value")


def _forms(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def _finite(gap: float) -> float:
    """The gap; infinite if one of the numbers is not finite."""
    return math.inf if math.isnan(gap) else gap
