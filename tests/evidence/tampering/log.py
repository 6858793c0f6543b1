"""Tamperings with what runs published to a remote folder: the log, its signatures, and what its entries name."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from evidence.dvc.stores import FOLDER
from evidence.remote.published import SEEN, SENT
from flows.local import storage
from tests.evidence.tampering.edits import STORE, Tampering, flip, objects, replace, rewrite


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
        ("edit", lambda path: replace(path, '"schema":4', '"schema":4 '), ": sha256 is"),
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

    def another_key(project: Path) -> str:
        one, *others = sorted((project / folder / "keys").glob("*.pem"))
        assert others
        one.write_bytes(others[0].read_bytes())
        return f"{one.relative_to(project)}: is not the public key in its name"

    yield "replace a public key in the remote", another_key

    def exchanged(project: Path) -> str:
        one, other = sorted((project / folder / "signatures").glob("*.dsse"))
        rewrite(one, other.read_text())
        return f"{one.relative_to(project)}: does not sign the entry in its name"

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
