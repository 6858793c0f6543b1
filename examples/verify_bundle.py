"""Verify a bundle of evidence, from its figures to the upstream files, with Python and `cryptography` alone.

    python verify_bundle.py BUNDLE --key RUNNER.pem     # or a root's key, from where the runner has no access

The last line is the verdict, with the exit status of `check`: SOUND 0, ALTERED 1, UNREADABLE 2, UNSIGNED 3.
"""

import argparse
import base64
import json
import lzma
import tarfile
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature as Altered
from cryptography.hazmat.primitives import serialization as form


def unpacked(path, limit=1 << 26):
    """The content of each file in the bundle (tar, xz) by name; nothing is written to the disk."""
    if not path.is_file():
        raise ValueError("no such regular file")
    with lzma.open(path) as file:
        content, files, place = file.read(limit), {}, 0
    while any(head := content[place : place + 512]):
        member, place = tarfile.TarInfo.frombuf(head, "utf-8", "strict"), place + 512
        is_one = member.type == b"0" and not {"", ".", ".."} & {*member.name.replace("\\", "/").split("/")}
        if not is_one or member.name in files or not 0 <= member.size <= len(content) - place:
            raise ValueError(f"{member.name!r:.80} is cut off, occurs twice, or is no regular file below the bundle")
        files[member.name] = content[place : place + member.size]
        place += member.size + -member.size % 512
    return files


def opened(name, files, keys, kind, time=""):
    """The content of a DSSE envelope, empty without one, and whether one of the keys signed it as one of this kind."""
    envelope = json.loads(files.get(name, b'{"payload": "e30=", "payloadType": "", "signatures": []}'))
    payload, has = base64.b64decode(envelope["payload"], validate=True), envelope["payloadType"].encode()
    message, named = b"DSSEv1 %d %b %d %b" % (len(has), has, len(payload), payload), envelope["signatures"]
    signed = [(each["sig"], *keys[each["keyid"]]) for each in named if each["keyid"] in keys]
    for signature, key, entry in signed:
        try:
            key.verify(base64.b64decode(signature), message)
        except Altered:
            raise Altered(f"{name}: was edited after it was signed") from None
        limits = (time, entry["from"], entry.get("until"), (entry.get("revoked") or {}).get("at")) if entry else ()
        now, start, *ends = [datetime.fromisoformat(each) for each in limits if each] or (1, 0)
        if now < start or any(now >= end for end in ends):
            raise Altered(f"{name}: key {entry['name']} signed it, but was not valid at {time}")
    return json.loads(payload), bool(signed) and has.decode().endswith(kind)


def leaves(*parts):
    """The digests of each file in parts of a record, by path."""
    entries = [(path, entry.get("files") or {"": entry}) for part in parts for path, entry in part.items()]
    return {f"{path}/{name}".rstrip("/"): file for path, files in entries for name, file in files.items()}


def is_projection(statement, record, digest):
    """True if a statement says what its record says, apart from the names of the program that wrote it."""
    made, used = leaves(record["outputs"]), leaves(*(record[part] for part in ("inputs", "rooms", "code")))
    used |= {name: use["before"] for name, use in record.get("journals", {}).items() if use["before"]}
    made, used = ([(name, {"sha256": f["sha256"]}) for name, f in part.items()] for part in (made, used))
    used += [("commit", {"gitCommit": commit}) for commit in [record["git"]["commit"]] if commit]
    build, run = (statement["predicate"][part] for part in ("buildDefinition", "runDetails"))
    start, end = (record["times"][key].replace("+00:00", "Z") for key in ("start", "end"))
    lists = [(statement["subject"], made), (build["resolvedDependencies"], used)]
    return (
        all(sorted(str((f["name"], f["digest"])) for f in stated) == sorted(map(str, known)) for stated, known in lists)
        and build["externalParameters"] == {key: record[key] for key in ("stage", "cmd", "params")}
        and build["internalParameters"] == {key: record[key] for key in ("environment", "actor")}
        and run["metadata"] == {"invocationId": digest, "startedOn": start, "finishedOn": end}
    )


def evidence(files, keys):
    """The index, the record of each stage, and the names of what no given key signed."""
    name, (index, _) = "keys/keys.json", opened("index.dsse", files, {}, "")
    pems = {each["pem"].encode(): each for each in opened(name, files, {}, "")[0].get("keys", ())}
    listed = {sha256(pem).hexdigest(): (form.load_pem_public_key(pem), each) for pem, each in pems.items()}
    roots, keys = {each: key for each, key in keys.items() if each not in listed}, {**keys, **listed}
    unsigned = [] if name not in files or opened(name, files, roots, ".keys+json")[1] else [name]
    unsigned += [] if opened("index.dsse", files, keys, ".bundle+json", index.get("time"))[1] else ["the bundle"]
    records, heads, previous, locks = {}, {}, None, [n for n in files if n.endswith("dvc.lock") and n[:6] != "files/"]
    for name in sorted({*files, *index["files"]} - {"index.dsse"}):
        if name not in files or sha256(files[name]).hexdigest() != index["files"].get(name):
            raise Altered(f"{name}: was edited, added or removed after the bundle was written")
    for stage, digest in index["stages"].items():
        name = f"records/{stage}/{digest}"
        if is_signed := f"{name}.json" in files:
            record, found = json.loads(files[f"{name}.json"]), sha256(files[f"{name}.json"]).hexdigest()
            statement, is_signed = opened(f"{name}.dsse", files, keys, "in-toto+json", record["times"]["end"])
            lost = [o for o in record["outputs"].values() if not any(o["md5"].encode() in files[n] for n in locks)]
            if found != digest or lost or (statement and not is_projection(statement, record, digest)):
                raise Altered(f"{name}: statement, record and dvc.lock do not say the same")
            others = statement and statement["predicate"]["runDetails"]["byproducts"]
            ledger = [each["digest"]["sha256"] for each in others if each["name"] == "ledger"]
            records[stage], heads[digest] = record, [] if f"{name}.received.dsse" in files else ledger
        unsigned += [] if is_signed else [stage]
    for line in files.get("ledger.jsonl", b"").splitlines(keepends=True):
        entry, before = json.loads(line), previous or sha256(b"").hexdigest()
        if entry["previous"] != previous or (heads.get(entry["record"]) or [before]) != [before]:
            raise Altered(f"ledger.jsonl: line {entry['number']} does not follow the line before it")
        previous = sha256(line).hexdigest()
    return index, records, unsigned


def ways(index, records, files, folders):
    """Lines with each figure, the stages behind it, and the upstream files; every copy of a file is compared."""
    known, made = {}, {name: stage for stage, record in records.items() for name in leaves(record["outputs"])}
    for name, file in [pair for r in records.values() for pair in leaves(r["outputs"], r["inputs"]).items()]:
        places = [f / p for f in folders for p in (name, f"files/md5/{file['md5'][:2]}/{file['md5'][2:]}")]
        copies = [p.read_bytes() for p in places if p.is_file()] + [files[n] for n in [f"files/{name}"] if n in files]
        known.setdefault(name, (file["sha256"], bool(copies)))
        if {file["sha256"], *(sha256(copy).hexdigest() for copy in copies)} != {known[name][0]}:
            raise Altered(f"{name}: two stages, or the record and a copy, have different bytes")
    for name in (name for name in files if name.startswith("files/") and name[6:] not in known):
        raise Altered(f"{name}: no record names this file")
    for target, origins in index["figures"].items():
        path, _, pointer = target.partition("#")
        value = json.loads(files[f"files/{path}"]) if pointer else known[path][0]
        for part in (each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]):
            value = value[int(part) if isinstance(value, list) else part]
        stages = list(dict.fromkeys(made[name] for name in origins or [path] if name in made))
        for each in stages:
            stages += dict.fromkeys(made[n] for n in leaves(records[each]["inputs"]) if made.get(n, each) not in stages)
        sources = sorted({name for stage in stages for name in leaves(records[stage]["inputs"]) if name not in made})
        yield f"{target} is {json.dumps(value)}; behind it are {', '.join(stages)} and the files"
        yield from (f"  {known[name][0]}  {name}{' (its bytes are here)' * known[name][1]}" for name in sources)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--key", type=Path, action="append", default=[], help="a public key: the runner's, or a root's")
    parser.add_argument("--here", type=Path, action="append", default=[], help="a folder with files or DVC objects")
    given, lines = parser.parse_args(), []
    try:
        keys = {sha256(pem).hexdigest(): (form.load_pem_public_key(pem), {}) for pem in map(Path.read_bytes, given.key)}
        files = unpacked(given.bundle)
        index, records, unsigned = evidence(files, keys)
        lines = list(ways(index, records, files, given.here))
        text = f"SOUND: {len(records)} stages are signed; commit {index['commit']}"
        text = f"UNSIGNED: no given key signed {', '.join(unsigned[:5])}" if unsigned else text
    except Exception as error:
        text = f"ALTERED: {error}" if isinstance(error, Altered) else f"UNREADABLE: {given.bundle}: {error!r}"
    print("\n".join("".join(c if c.isprintable() else "?" for c in line) for line in [*lines, text]))
    raise SystemExit(["SOUND", "ALTERED", "UNREADABLE", "UNSIGNED"].index(text.partition(":")[0]))
