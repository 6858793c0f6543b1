"""Tamperings with the evidence in the project: records, the ledger, signed statements and journals."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import py_compile
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evidence.dvc.stores import FOLDER
from evidence.record.ledger import LEDGER, RECORDS, SIGNED
from evidence.record.signing import TRUSTED, public_pem, sign
from evidence.record.statement import PAYLOAD_TYPE
from evidence.remote.published import SEEN, SENT
from ground.hashing import digest_path
from ground.io import sha256_file
from tests.evidence.tampering.edits import (
    STAGES,
    STORE,
    Tampering,
    claim_now,
    edit_ledger,
    flip,
    forge,
    link,
    on_file,
    record_of,
    replace,
    rewrite,
    truncate,
)
from tests.support.miniature import dvc


def pipes() -> Iterator[tuple[str, Tampering]]:
    """A pipe in place of a file, which would let a reader wait for ever."""
    places: dict[str, Callable[[Path], Path]] = {
        "a record": lambda project: record_of(project, "train@full"),
        "a trusted key": lambda project: project / TRUSTED / "planted.pem",
        "an entry of the log": lambda project: next((project / STORE).glob("*/log/*.json")),
        "the lock": lambda project: project / "dvc.lock",
    }
    for what, place in places.items():

        def planted(project: Path, place: Callable[[Path], Path] = place) -> str:
            path = place(project)
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            os.mkfifo(path)
            return f"{path.relative_to(project)}: a pipe, a socket or a device, which nothing here makes; delete it"

        yield f"a pipe in place of {what}", planted


def links() -> Iterator[tuple[str, Tampering]]:
    """A link in place of evidence, whose target someone could change later."""
    places: dict[str, Callable[[Path], Path]] = {
        "a record": lambda project: record_of(project, "train@full"),
        "the records of a stage": lambda project: record_of(project, "train@full").parent,
        "the ledger": lambda project: project / LEDGER,
        "the memory of publications": lambda project: project / SENT,
        "an entry of the log": lambda project: next((project / STORE).glob("*/log/*.json")),
        "the log": lambda project: project / STORE / FOLDER / "log",
    }
    for what, place in places.items():

        def planted(project: Path, place: Callable[[Path], Path] = place) -> str:
            path = place(project)
            link(path)
            return f"{path.relative_to(project)}: is a symbolic link to "

        yield f"a link in place of {what}", planted


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


def cut_both(project: Path) -> str:
    """The end of the chain has no successor that names it; what the machine published does."""
    lines = (project / LEDGER).read_text().splitlines(keepends=True)
    last = json.loads(lines[-1])
    for path in (project / RECORDS / last["stage"]).glob(f"{last['record']}.*"):
        path.unlink()
    (project / LEDGER).write_text("".join(lines[:-1]))
    return f"{LEDGER}: does not name record {last['record'][:12]} of {last['stage']}, which this machine published"


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
        return f"{LEDGER}: is missing, but records of its time exist"

    yield "delete the ledger", delete

    def begin_anew(project: Path) -> str:
        """A forged record enters the ledger that the next run begins."""
        path = forge(project, "train@full", lambda content: content["environment"].update(cpu="another"))
        (project / LEDGER).unlink()
        dvc(project, "repro", "-f", "-q", "-s", "train@plain")
        return f"{path.relative_to(project)}: was not written by a run here"

    yield "delete the ledger, forge a record and run a stage", begin_anew

    def delete_both(project: Path) -> str:
        path = record_of(project, "train@full")
        path.unlink()
        lines = (project / LEDGER).read_text().splitlines(keepends=True)
        (project / LEDGER).write_text("".join(line for line in lines if path.stem not in line))
        return "the chain is broken"

    yield "delete a record and its line in the ledger", delete_both

    for what, place, keeps_memory in (
        ("an older record", 1, True),
        ("an older record, and what this machine remembers", 1, False),
        ("the first record, and what this machine remembers", 0, False),
    ):

        def chained_anew(project: Path, place: int = place, keeps_memory: bool = keeps_memory) -> str:
            """No run in the lock made it, so nothing else names the record."""
            (entry,) = json.loads(f"[{(project / LEDGER).read_text().splitlines()[place]}]")
            for path in (project / RECORDS / entry["stage"]).glob(f"{entry['record']}.*"):
                path.unlink()
            edit_ledger(project, lambda entries: entries.pop(place))
            for file in () if keeps_memory else (SENT, SEEN):
                (project / file).unlink()
            return f"{LEDGER}:{place + 1}: does not follow the line that the record's statement names"

        yield f"remove {what}, and chain the ledger anew", chained_anew

    yield "cut the ledger and the record that its last line names", cut_both

    def remove(project: Path) -> str:
        shutil.rmtree(project / RECORDS)
        return "which this machine published: the ledger was cut"

    yield "remove the ledger and every record", remove


def forge_result(project: Path, stage: str, out: str) -> str:
    """Put a result that no run made everywhere without a key: the out, the lock, an unsigned record, the ledger.

    Everything that knows better goes: the remote, the run cache, and the memory of this machine.
    """
    flip(next(path for path in sorted([project / out, *(project / out).rglob("*")]) if path.is_file()))
    claim_now(project, out)
    old = record_of(project, stage)
    old.with_suffix(SIGNED).unlink()
    made = digest_path(project / out).as_json()
    new = forge(project, stage, lambda content: content["outputs"].update({out: made}))
    edit_ledger(
        project,
        lambda entries: [
            entry.update(record=new.stem, statement=None) for entry in entries if entry["record"] == old.stem
        ],
    )
    for place in (STORE, ".dvc/cache/runs"):
        shutil.rmtree(project / place)
    for file in (SENT, SEEN):
        (project / file).unlink()
    return f"{RECORDS}: the record is not signed by a trusted key, unlike others ({stage})"


def signed_again(project: Path, stage: str, edit: Callable[[bytes], bytes]) -> Path:
    """Sign an edited statement about the newest record of a stage, and let the ledger name it."""
    path = record_of(project, stage).with_suffix(SIGNED)
    payload = base64.b64decode(json.loads(path.read_text())["payload"])
    rewrite(path, json.dumps(sign(edit(payload) + b" ", PAYLOAD_TYPE)))
    statement = sha256_file(path)
    edit_ledger(project, lambda lines: [e.update(statement=statement) for e in lines if e["record"] == path.stem])
    return path


def statements() -> Iterator[tuple[str, Tampering]]:
    yield "forge a result without a key", partial(forge_result, stage="train@full", out="metrics/train/full.json")

    def about_others(project: Path) -> str:
        """A trusted key signs digests that the record does not have."""
        path = signed_again(project, "train@full", lambda text: text.replace(b'"models/full/', b'"models/best/'))
        return f"{path.parent.name}/{path.name}: does not say what its record says"

    yield "sign a statement that differs from its record", about_others

    def twice(project: Path) -> str:
        """The statement says the same in different bytes, and the ledger names it, but the log does not."""
        path = signed_again(project, json.loads((project / LEDGER).read_text().splitlines()[-1])["stage"], bytes.strip)
        return f"{LEDGER}: names a different signed statement of record {path.stem[:12]} from the manifest"

    yield "sign a statement twice", twice
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

    def planted(project: Path, git: str) -> str:
        """With a key of their own that the project trusts, anyone could sign forged records."""
        path = project / TRUSTED / "planted.pem"
        path.parent.mkdir()
        path.write_bytes(public_pem(Ed25519PrivateKey.generate().public_key()))
        (project / ".git/info/exclude").write_text(git)
        return f"{TRUSTED}/planted.pem: is a trusted key that git does not hold"

    yield "plant a trusted key", partial(planted, git="")
    yield "plant a trusted key that git ignores", partial(planted, git="*.pem\n")

    def other_content(project: Path) -> str:
        path = record_of(project, "train@full").with_suffix(SIGNED)
        envelope = json.loads(path.read_text())
        payload = base64.b64decode(envelope["payload"]).replace(b"stages.train", b"stages.trial")
        rewrite(path, json.dumps(envelope | {"payload": base64.b64encode(payload).decode()}))
        return "the signature is wrong: the content was edited after it was signed (train@full)"

    yield "edit the content of a signed statement", other_content


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

    def bytecode(project: Path) -> str:
        """Python runs a compiled module if its source has the same time and size as then."""
        source = project / "pathfinder/mixing/mix.py"
        text, times = source.read_text(), source.stat()
        for version in (text.replace("{variant}", "{  rate }"), text):
            source.write_text(version)
            os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
            if version != text:
                py_compile.compile(str(source))
        dvc(project, "repro", "-f", "-q", "-s", "train@full")
        return "mix.cpython-311.pyc): the run loaded this module, which is neither in the code of the stage"

    yield "a compiled module that is not of its source", bytecode
