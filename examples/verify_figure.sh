#!/bin/sh
# Verify one figure of the quickstart without this project's code, down to a line of the upstream data.
#
# You need three things: a clone of the repository, the bucket, and the runner's public key from a place that the runner
# cannot change. The tools are git, cp or the AWS command line, sha256sum, openssl, jq and Python's standard library. The
# example follows the F1 score of one subset of ProcessBench. In the clone's folder, run
#
#   BUCKET=s3://bucket/prefix KEY=runner.pem sh examples/verify_figure.sh
#
# or the ten steps one after the other in one shell. A step that finds a difference ends the script.

## 1. Name what you have. BUCKET is a folder or an address such as s3://bucket/prefix. The AWS command line reads the AWS_*
# variables; AWS_ENDPOINT_URL names a server other than AWS.
BUCKET=${BUCKET:-s3://bucket/prefix}
KEY=${KEY:-runner.pem}
STAGE=processbench@full
FIGURE=metrics/processbench/full.json

## 2. Copy what the runs published, and define how to get one object and how to verify one signature. A signature covers
# DSSEv1, the type, and the payload with their lengths.
set -eu
work=$(mktemp -d)
case $BUCKET in
  s3://*) aws s3 cp --quiet --recursive "$BUCKET/pathfinder" "$work/evidence" ;;
  *) cp -r "$BUCKET/pathfinder" "$work/evidence" ;;
esac
get() {  # get KEY FILE
  mkdir -p "$(dirname "$2")"
  case $BUCKET in s3://*) aws s3 cp --quiet "$BUCKET/$1" "$2" ;; *) cp "$BUCKET/$1" "$2" ;; esac
}
verify() {  # verify ENVELOPE TYPE: writes the payload, which must have this type, to $work/payload
  python3 - "$1" "$work" "$2" <<'PYTHON'
import base64, json, pathlib, sys
envelope, work = json.load(open(sys.argv[1])), pathlib.Path(sys.argv[2])
kind, payload = f"application/vnd.{sys.argv[3]}+json".encode(), base64.b64decode(envelope["payload"])
(work / "payload").write_bytes(payload)
(work / "message").write_bytes(b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
(work / "signature").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
PYTHON
  openssl pkeyutl -verify -pubin -inkey "$KEY" -rawin -in "$work/message" -sigfile "$work/signature" >/dev/null
}
has_sha256() { echo "$2  $1" | sha256sum --check --quiet; }

## 3. Verify the log: each entry names the sha256 of the entry before it and of its manifest, and the newest entry is signed.
# The entry of a run of some stages names only these stages, so use the newest run of all stages.
previous=null
for entry in "$work"/evidence/log/*.json; do
  test "$(jq -r .previous "$entry")" = "$previous"
  previous=$(sha256sum "$entry" | cut -d' ' -f1)
  named=$work/evidence/manifests/$(jq -r .manifest "$entry").json
  has_sha256 "$named" "$(jq -r .manifest "$entry")"
  if ! jq --exit-status .partial "$named" >/dev/null; then manifest=$named; fi
done
verify "$work/evidence/signatures/$previous.dsse" pathfinder-prm.log-entry
cmp "$work/payload" "$entry"
echo "the newest of $(jq .number "$entry") entries is signed"

## 4. Restore the code of the run: its commit, and the uncommitted changes that the entry names. The result must hold the
# dvc.lock that the entry names.
git worktree add --quiet --detach "$work/tree" "$(jq -r .commit "$manifest")"
patch=$(jq -r '.patch // empty' "$manifest")
if [ -n "$patch" ]; then
  has_sha256 "$work/evidence/patches/$patch.patch" "$patch"
  git -C "$work/tree" apply --binary "$work/evidence/patches/$patch.patch"
fi
has_sha256 "$work/tree/dvc.lock" "$(jq -r .dvc_lock "$manifest")"
echo "the code is that of commit $(jq -r .commit "$manifest")"

## 5. Verify the record and the signed statement of every stage.
mkdir "$work/statements"
for stage in $(jq -r '.records | keys[]' "$manifest"); do
  record=$(jq -r --arg stage "$stage" '.records[$stage]' "$manifest")
  has_sha256 "$work/evidence/records/$stage/$record.json" "$record"
  verify "$work/evidence/records/$stage/$record.dsse" in-toto
  test "$(jq -r '.predicate.runDetails.byproducts[] | select(.name == "record").digest.sha256' "$work/payload")" = "$record"
  cp "$work/payload" "$work/statements/$stage.json"
done
echo "$(ls "$work/statements" | wc -l) statements are signed"

## 6. Get the files of the chain. The record gives the md5, which is the object's name in the bucket, and the signed
# statement gives the sha256.
fetch() {  # fetch STAGE FILE: FILE as STAGE made it
  md5=$(jq -r --arg file "$2" '.outputs | to_entries[] | .key as $out
    | (.value.files // {} | to_entries[] | {file: "\($out)/\(.key)", md5: .value.md5}), {file: $out, md5: .value.md5}
    | select(.file == $file).md5' "$work/evidence/records/$1/$(jq -r --arg stage "$1" '.records[$stage]' "$manifest").json")
  get "files/md5/$(echo "$md5" | cut -c1-2)/$(echo "$md5" | cut -c3-)" "$work/files/$2"
  has_sha256 "$work/files/$2" "$(jq -r --arg file "$2" '.subject[] | select(.name == $file).digest.sha256' "$work/statements/$1.json")"
}
PREDICTIONS=artifacts/predictions/processbench/full.jsonl
UPSTREAM=artifacts/raw/processbench/gsm8k.json
fetch "$STAGE" "$FIGURE"
fetch "$STAGE" "$PREDICTIONS"
fetch download "$UPSTREAM"
fetch download artifacts/raw/manifest.json

## 7. Follow every input upwards, from the stage of the figure to the sources. Each must be an output of another signed
# statement with the same sha256, a file of the commit, or a source that the manifest of sources names.
python3 - "$work" "$STAGE" <<'PYTHON'
import hashlib, json, pathlib, sys
work, waiting, seen, counts, open_ends = pathlib.Path(sys.argv[1]), [sys.argv[2]], set(), {}, []
statements = {path.stem: json.loads(path.read_text()) for path in (work / "statements").iterdir()}
made = {(s["name"], s["digest"]["sha256"]): stage for stage, each in statements.items() for s in each["subject"]}
sources = json.loads((work / "files/artifacts/raw/manifest.json").read_text())
upstream = {(f"{source['location']}/{name}", file["sha256"]) for source in sources.values() for name, file in source["files"].items()}
while waiting:
    if (stage := waiting.pop()) in seen:
        continue
    seen.add(stage)
    for dep in statements[stage]["predicate"]["buildDefinition"]["resolvedDependencies"]:
        name, sha256 = dep["name"], dep["digest"].get("sha256")
        in_tree = work / "tree" / name
        if sha256 is None:
            kind = "commit"
        elif (name, sha256) in made:
            kind = "output of a signed stage"
            waiting.append(made[name, sha256])
        elif in_tree.is_file() and hashlib.sha256(in_tree.read_bytes()).hexdigest() == sha256:
            kind = "file of the commit"
        elif (name, sha256) in upstream:
            kind = "source"
        else:
            kind = "journal of answers" if name.startswith(".pathfinder/") else "other"
            open_ends += [] if kind != "other" or name.startswith("data/") else [name]
        counts[kind] = counts.get(kind, 0) + 1
print(f"{len(seen)} stages:", ", ".join(f"{number} x {kind}" for kind, number in sorted(counts.items())))
sys.exit(f"without an origin: {open_ends}" if open_ends else 0)
PYTHON

## 8. Compute the figure again from the predictions: F1 is the harmonic mean of the accuracies on wrong and on right solutions.
python3 - "$work/files/$FIGURE" "$work/files/$PREDICTIONS" <<'PYTHON'
import json, math, sys
stated = json.load(open(sys.argv[1]))["subsets"]["gsm8k"]["f1"]
rows = [row for row in map(json.loads, open(sys.argv[2])) if row["subset"] == "gsm8k"]
groups = [[row for row in rows if (row["label"] == -1) == is_right] for is_right in (False, True)]
wrong, right = (100 * sum(row["prediction"] == row["label"] for row in group) / len(group) for group in groups)
f1 = 2 * wrong * right / (wrong + right)
assert math.isclose(f1, stated), (f1, stated)
print(f"F1 on gsm8k is {f1:.1f}, as stated")
PYTHON

## 9. Go down to the line: one item of the predictions, its lines in the upstream file, and where that file comes from.
item=$(jq -r 'select(.subset == "gsm8k" and .label >= 0).id' "$work/files/$PREDICTIONS" | head -n 1)
jq -c --arg id "$item" 'select(.id == $id) | {id, "label": .label, prediction}' "$work/files/$PREDICTIONS"
grep -n "\"id\": \"$item\"" "$work/files/$UPSTREAM"
jq -c --arg id "$item" '.[] | select(.id == $id) | {id, "label": .label, steps}' "$work/files/$UPSTREAM"
jq '.processbench | {location, revision, licence, sha256: .files["gsm8k.json"].sha256}' "$work/files/artifacts/raw/manifest.json"
sha256sum "$work/files/$UPSTREAM"

## 10. Remove what the steps made.
git worktree remove --force "$work/tree"
rm -r "$work"
