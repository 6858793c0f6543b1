"""``bundle`` writes one file, and examples/verify_bundle.py names everything that is wrong with a hostile one."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evidence.audit.trust import LIST_TYPE, change_list
from evidence.record.ledger import RECORDS
from evidence.record.reading import PUBLISHED
from evidence.record.signing import KEY_FILE, own_key, public_pem, sign
from evidence.remote.publication import publication
from evidence.verbs.bundle import BUNDLE_TYPE, LARGEST, bundle
from ground.io import DataError
from tests.evidence import small as project
from tests.support.miniature import ROOT

SCRIPT = ROOT / "examples/verify_bundle.py"
MODEL = f"{project.MODEL}/weights.txt"
Files = dict[str, bytes]


def verified(file: Path, *options: object) -> tuple[int, list[str]]:
    """The exit status and the lines of the script, in a Python that sees nothing of this project."""
    command = [sys.executable, "-I", str(SCRIPT), str(file), *map(str, options)]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def files_of(content: bytes) -> Files:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def packed(*entries: tuple[str | tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in entries:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def key_to(folder: Path) -> Path:
    (folder / "runner.pem").write_bytes(public_pem(own_key().public_key()))
    return folder / "runner.pem"


@pytest.fixture
def key(small: Path) -> Path:
    """The public key of the runner."""
    return key_to(small.parent)


@pytest.fixture
def files(small: Path, key: Path) -> Files:
    """The files of a sound bundle of the small project."""
    content, _ = bundle(small, [MODEL, f"{project.RAW}/manifest.json#/corpus/kind"])
    return files_of(content)


def judged(small: Path, files: Files, *options: object) -> tuple[int, list[str]]:
    (small.parent / "b.tar.xz").write_bytes(packed(*files.items()))
    return verified(small.parent / "b.tar.xz", "--key", small.parent / "runner.pem", *options)


def signed_again(files: Files) -> Files:
    """The files with an index that fits them, signed by this user's key."""
    index = json.loads(base64.b64decode(json.loads(files["index.dsse"])["payload"]))
    others = {name: content for name, content in files.items() if name != "index.dsse"}
    index["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in others.items()}
    return others | {"index.dsse": json.dumps(sign(json.dumps(index).encode(), BUNDLE_TYPE)).encode()}


def test_the_script_is_short_and_needs_only_python_and_cryptography() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"cryptography"}


def test_a_sound_bundle_leads_from_the_figure_to_the_upstream_file(small: Path, files: Files) -> None:
    status, lines = judged(small, files, "--here", small)
    assert (status, lines[-1]) == (0, "SOUND: 2 stages are signed; commit None")
    digest = hashlib.sha256(files[f"files/{MODEL}"]).hexdigest()
    assert lines[0] == f'{MODEL} is "{digest}"; behind it are train, download and the files'
    source = hashlib.sha256(b"one\n").hexdigest()
    assert lines[1] == f"  {source}  {project.DATA}/corpus/one.txt (its bytes are here)"
    assert lines[2].startswith(f'{project.RAW}/manifest.json#/corpus/kind is "shipped"; behind it are download ')
    assert bundle(small)[0] == bundle(small)[0]


def test_a_figure_is_found_however_its_file_is_named_and_whatever_its_key_is(small: Path, key: Path) -> None:
    (small / project.RAW / "m.json").write_text('{"val/a~1": [7]}')
    project.write_locks(small)
    project.add_record(small, "download")
    content = files_of(bundle(small, [f"./{project.RAW}//m.json#/val~1a~01/0"])[0])
    assert judged(small, content)[1][0].startswith(f"{project.RAW}/m.json#/val~1a~01/0 is 7; ")


def test_a_folder_that_differs_from_the_records_is_altered(small: Path, files: Files) -> None:
    (small / project.DATA / "corpus/one.txt").write_text("two\n")
    assert judged(small, files)[0] == 0
    status, lines = judged(small, files, "--here", small)
    assert (status, lines[-1].partition(": ")[0]) == (1, "ALTERED")
    assert "data/corpus/one.txt" in lines[-1]


def test_a_file_that_is_not_as_recorded_is_not_bundled(small: Path) -> None:
    (small / MODEL).write_text("0.6\n")
    with pytest.raises(DataError, match=r"weights.txt: differs from its record; `pathfinder lineage check "):
        bundle(small, [MODEL])
    with pytest.raises(DataError, match=r"params.yaml: no recorded stage made or read this file"):
        bundle(small, ["params.yaml"])
    with pytest.raises(DataError, match=r"data: is a folder; name a file in it, such as data/corpus"):
        bundle(small, [project.DATA])


def test_a_stage_without_a_record_is_unsigned(small: Path, key: Path) -> None:
    for file in (small / RECORDS / "train").iterdir():
        file.unlink()
    content, index = bundle(small, [f"{project.RAW}/manifest.json"])
    assert index["stages"]["train"] is None
    status, lines = judged(small, files_of(content))
    assert (status, lines[-1]) == (3, "UNSIGNED: no given key signed train")


def test_the_logs_of_two_remotes_whose_folders_share_a_name_both_travel(small: Path, key: Path) -> None:
    with (small / ".dvc/config").open("a") as config:
        config.write("['remote \"other\"']\n    url = ../elsewhere/storage\n")
    for folder, text in (("storage", "{}"), ("elsewhere/storage", "[]")):
        entry = (small / folder / PUBLISHED).parent / "log/00000001.json"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(text)
    logs = sorted(content for name, content in files_of(bundle(small)[0]).items() if name.startswith("log/"))
    assert logs == [b"[]", b"{}"]


def test_the_records_behind_shipped_data_travel(small: Path, key: Path) -> None:
    shutil.copytree(small / project.DATA / "corpus", small / project.PRETRAINED)
    record = project.add_record(small, "world")
    manifest, evidence = publication(small)
    assert manifest["records"]["world"] == record.stem
    assert f"records/world/{record.stem}.dsse" in evidence
    assert project.PRETRAINED not in manifest["outs"]
    content, index = bundle(small, [MODEL])
    assert index["stages"].keys() == {"download", "train", "world"}
    (small.parent / "b.tar.xz").write_bytes(content)
    assert verified(small.parent / "b.tar.xz", "--key", key)[1][-1] == "SOUND: 3 stages are signed; commit None"


def name_of(files: Files, stage: str, ending: str) -> str:
    return next(name for name in files if name.startswith(f"records/{stage}/") and name.endswith(ending))


def edit_figure(files: Files) -> None:
    files[f"files/{MODEL}"] = b"0.9\n"


def drop_statement(files: Files) -> None:
    del files[name_of(files, "train", ".dsse")]


def swap_records(files: Files) -> None:
    one, other = (name_of(files, stage, ".json") for stage in ("train", "download"))
    files[one], files[other] = files[other], files[one]


def swap_statements(files: Files) -> None:
    one, other = (name_of(files, stage, ".dsse") for stage in ("train", "download"))
    files[one], files[other] = files[other], files[one]


def edit_record(files: Files) -> None:
    name = name_of(files, "train", ".json")
    files[name] = files[name].replace(b'"seconds": 1.0', b'"seconds": 2.0')


def edit_lock(files: Files) -> None:
    files["dvc.lock"] = re.sub(rb"md5: [0-9a-f]{32}\.dir", b"md5: " + b"1" * 32 + b".dir", files["dvc.lock"])


def cut_ledger(files: Files) -> None:
    files["ledger.jsonl"] = b"".join(files["ledger.jsonl"].splitlines(keepends=True)[1:])


def add_file(files: Files) -> None:
    files["files/results.json"] = b'{"accuracy": 1.0}'


def edit_statement(files: Files) -> None:
    name = name_of(files, "train", ".dsse")
    envelope = json.loads(files[name])
    payload = base64.b64decode(envelope["payload"]).replace(b"stages.train", b"stages.trial")
    files[name] = json.dumps(envelope | {"payload": base64.b64encode(payload).decode()}).encode()


HARMS: list[Callable[[Files], None]] = [
    *(edit_figure, drop_statement, swap_records, swap_statements, edit_record, edit_lock, cut_ledger, add_file),
    edit_statement,
]


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_an_edited_bundle_is_altered(small: Path, files: Files, harm: Callable[[Files], None]) -> None:
    harm(files)
    status, lines = judged(small, files)
    assert (status, len(lines), lines[0].partition(": ")[0]) == (1, 1, "ALTERED")


@pytest.mark.parametrize("harm", [h for h in HARMS if h is not drop_statement], ids=lambda harm: harm.__name__)
def test_whoever_has_the_key_cannot_make_the_parts_agree_by_an_index(
    small: Path, files: Files, harm: Callable[[Files], None]
) -> None:
    harm(files)
    status, lines = judged(small, signed_again(files))
    assert (status, len(lines), lines[0].partition(": ")[0]) == (1, 1, "ALTERED")


def test_a_dropped_statement_in_an_index_that_fits_is_unsigned(small: Path, files: Files) -> None:
    drop_statement(files)
    status, lines = judged(small, signed_again(files))
    assert (status, lines[-1]) == (3, "UNSIGNED: no given key signed train")


def test_another_key_is_unsigned(small: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no key of the runner can only sign with a key of their own."""
    monkeypatch.setenv(KEY_FILE, str(small.parent / "other.pem"))
    edit_figure(files)
    status, lines = judged(small, signed_again(files) | {f"files/{MODEL}": b"0.5\n"})
    assert (status, lines[-1].partition(": ")[0]) == (1, "ALTERED")
    status, lines = verified(small.parent / "b.tar.xz")
    assert (status, lines[-1].partition(": ")[0]) == (1, "ALTERED")
    files[f"files/{MODEL}"] = b"0.5\n"
    status, lines = judged(small, signed_again(files))
    assert (status, lines[-1]) == (3, "UNSIGNED: no given key signed the bundle")


@pytest.fixture
def with_list(small: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Files]:
    """Makes the runner's bundle with a list of a root, in which the runner's key has these limits."""

    def make(**changes: object) -> Files:
        with monkeypatch.context() as patch:
            patch.setenv(KEY_FILE, str(small.parent / "root/signing.pem"))
            (small.parent / "root.pem").write_bytes(public_pem(own_key().public_key()))
            change_list(small, "runner", key, {"from": datetime(2025, 1, 1, tzinfo=UTC), **changes})
        return files_of(bundle(small, [MODEL])[0])

    return make


def by_root(small: Path, files: Files) -> tuple[int, str]:
    (small.parent / "b.tar.xz").write_bytes(packed(*files.items()))
    status, lines = verified(small.parent / "b.tar.xz", "--key", small.parent / "root.pem")
    return status, lines[-1]


def test_a_bundle_carries_the_list_of_keys(small: Path, with_list: Callable[..., Files]) -> None:
    files = with_list(until=datetime(2026, 1, 2, tzinfo=UTC))
    assert by_root(small, files) == (0, "SOUND: 2 stages are signed; commit None")
    assert judged(small, files)[1][-1:] == ["UNSIGNED: no given key signed keys/keys.json"], "the runner is no root"
    del files["keys/keys.json"]
    assert by_root(small, signed_again(files))[0] == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"from": datetime(2026, 1, 2, tzinfo=UTC)},
        {"until": datetime(2026, 1, 1, tzinfo=UTC)},
        {"revoked": {"at": datetime(2025, 12, 31, tzinfo=UTC), "reason": "lost laptop"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_key_that_was_not_valid_alters_a_bundle(
    small: Path, with_list: Callable[..., Files], changes: dict[str, object]
) -> None:
    status, line = by_root(small, with_list(**changes))
    assert (status, line) == (1, f"ALTERED: index.dsse: key runner signed it, but was not valid at {project.START}")


def test_a_listed_key_cannot_sign_the_list_of_a_bundle(small: Path, with_list: Callable[..., Files]) -> None:
    files = with_list()
    payload = base64.b64decode(json.loads(files["keys/keys.json"])["payload"])
    files["keys/keys.json"] = json.dumps(sign(payload, LIST_TYPE)).encode()
    status, lines = judged(small, signed_again(files))
    assert (status, lines[-1]) == (3, "UNSIGNED: no given key signed keys/keys.json")


def sized(name: str, size: int) -> bytes:
    """An archive whose only member has no content but claims to have ``size`` bytes."""
    member = tarfile.TarInfo(name)
    member.size = size
    return lzma.compress(member.tobuf(tarfile.GNU_FORMAT))


def kind(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def negative(name: str) -> bytes:
    head = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    head[124:135] = b"-0000001000"
    return lzma.compress(bytes(head))


def deep() -> bytes:
    return packed(("index.dsse", b"[" * 200_000))


def envelope(payload: Any) -> bytes:
    text = base64.b64encode(json.dumps(payload).encode())
    return packed(("index.dsse", b'{"payload": "%b", "payloadType": "x.bundle+json", "signatures": []}' % text))


UNREADABLE: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no archive": lambda: b"PK\3\4 a zip",
    "path above": lambda: packed(("../index.dsse", b"{}")),
    "path above in Windows": lambda: packed(("..\\index.dsse", b"{}")),
    "absolute path": lambda: packed(("/tmp/index.dsse", b"{}")),  # noqa: S108
    "no name": lambda: packed(("", b"{}")),
    "twice": lambda: packed(("index.dsse", b"{}"), ("index.dsse", b"{}")),
    "link": lambda: packed((kind("index.dsse", tarfile.SYMTYPE, "/etc/passwd"), b"")),
    "device": lambda: packed((kind("index.dsse", tarfile.CHRTYPE), b"")),
    "folder": lambda: packed((kind("records", tarfile.DIRTYPE), b"")),
    "claims a terabyte": lambda: sized("index.dsse", 1 << 40),
    "claims 32 GiB": lambda: sized("index.dsse", (1 << 33) - 1),
    "negative size": lambda: negative("index.dsse"),
    "unpacks to more than fits": lambda: packed(("index.dsse", bytes(LARGEST + 1))),
    "zeros": lambda: lzma.compress(bytes(LARGEST * 2)),
    "nested deeply": deep,
    "no index": lambda: packed(("dvc.lock", b"")),
    "a list for an index": lambda: envelope([]),
    "an index without parts": lambda: envelope({}),
    "stages of a wrong form": lambda: envelope({"files": {}, "stages": [1], "figures": {}}),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_no_bundle_ends_with_one_line(tmp_path: Path, small: Path, case: str) -> None:
    (tmp_path / "b.tar.xz").write_bytes(UNREADABLE[case]())
    status, lines = verified(tmp_path / "b.tar.xz", "--key", key_to(tmp_path))
    assert (status, len(lines), lines[0].partition(": ")[0]) == (2, 1, "UNREADABLE")


def test_a_bundle_that_was_cut_off_is_unreadable(small: Path, key: Path) -> None:
    content, _ = bundle(small)
    for size in range(0, len(content), len(content) // 12 + 1):
        (small.parent / "b.tar.xz").write_bytes(content[:size])
        assert verified(small.parent / "b.tar.xz", "--key", key)[0] == 2


def test_what_is_no_file_is_unreadable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path, tmp_path / "pipe", tmp_path / "none"):
        status, (line,) = verified(name)
        assert (status, line.partition(": ")[0]) == (2, "UNREADABLE")


SHIPPED = ROOT / "docs/evidence"


def test_the_readme_states_the_figures_of_the_shipped_bundle() -> None:
    bundle_file = SHIPPED / "quickstart.tar.xz"
    if not bundle_file.exists():
        pytest.skip("docs/evidence/quickstart.tar.xz is written with a recorded run")
    assert bundle_file.stat().st_size < 1_000_000
    status, lines = verified(bundle_file, "--key", SHIPPED / "runner.pem", "--here", ROOT / "infra/world")
    assert (status, lines[-1].partition(": ")[0]) == (0, "SOUND")
    assert any("  data/processbench/gsm8k.json (its bytes are here)" in line for line in lines)
    rows = json.loads(files_of(bundle_file.read_bytes())["files/reports/tables.json"])["results"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    figures = [row["processbench"] for row in rows if isinstance(row["processbench"], dict)]
    assert len(figures) > 4
    shown = [f"{each['value']:.1f} [{each['low']:.1f}, {each['high']:.1f}]" for each in figures]
    assert [each for each in shown if each not in text] == []
