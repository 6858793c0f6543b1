"""examples/verify_figure.sh: a stranger verifies one figure down to a line, with git, openssl, jq and sha256sum."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evidence.dvc.stores import object_file
from evidence.record.reading import read_records
from evidence.record.signing import own_key, public_pem
from evidence.remote.published import VOID_TYPE, signature
from flows.local import storage
from ground.remote import open_store
from tests.evidence.tampering.edits import objects, replace, rewrite
from tests.support.isolated import run_isolated
from tests.support.miniature import GIT, ROOT, dvc
from tests.support.s3 import s3_bucket, s3_environment, s3_server

STEPS = (ROOT / "examples/verify_figure.sh").read_text(encoding="utf-8")
BLOCKS = re.split(r"^(?=## )", STEPS, flags=re.MULTILINE)[1:]
SHELL = ["sh", "-c", "\n".join(f"{block}\necho 'block {n} done'" for n, block in enumerate(BLOCKS, start=1))]
"""The steps, each followed by a line that names it."""
OUTSIDE = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if ".venv" not in part)
"""The search path without this project's environment."""
AWS = ROOT / "infra/requirements-aws.lock"
ITEMS = [
    {"id": f"gsm8k-{number}", "label": label, "steps": ["1 + 1 = 2", "2 + 1 = 4"]}
    for number, label in enumerate((1, -1, 1, 0, -1))
]
SCORE = '''
"""Find the first wrong step."""
import json
from pathlib import Path
from ground.io import write_json, write_jsonl
from evidence.record.stage import stage

@stage
def main(variant: str) -> None:
    items = json.loads(Path("artifacts/raw/processbench/gsm8k.json").read_text())
    assert Path("models", variant, "weights.txt").read_text()
    rows = [{"subset": "gsm8k", "id": i["id"], "label": i["label"], "prediction": i["label"] if n % 4 else 7}
            for n, i in enumerate(items)]
    groups = [[row for row in rows if (row["label"] == -1) == right] for right in (True, False)]
    right, wrong = (100 * sum(r["label"] == r["prediction"] for r in group) / len(group) for group in groups)
    write_jsonl(Path("artifacts/predictions/processbench", f"{variant}.jsonl"), rows)
    figure = {"subsets": {"gsm8k": {"f1": 2 * right * wrong / (right + wrong)}}}
    write_json(Path("metrics/processbench", f"{variant}.json"), figure)

if __name__ == "__main__":
    main()
'''
SCORE_STAGE = """
  processbench:
    matrix: {variant: [full]}
    cmd: python -m stages.processbench ${item.variant}
    deps: [artifacts/raw/processbench, 'models/${item.variant}', stages/processbench.py, ground, infra/locks]
    outs: ['artifacts/predictions/processbench/${item.variant}.jsonl']
    metrics: ['metrics/processbench/${item.variant}.json']
"""


@pytest.fixture(scope="module")
def finished(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that scores a model on a benchmark, and next to it the bucket and the public key of its runner."""
    folder = tmp_path_factory.mktemp("stranger")
    project = Path(shutil.copytree(made, folder / "project", symlinks=True))
    (project / "data/processbench").mkdir()
    (project / "data/processbench/gsm8k.json").write_text(json.dumps(ITEMS, indent=1))
    (project / "stages/processbench.py").write_text(SCORE)
    with (project / "dvc.yaml").open("a") as pipeline:
        pipeline.write(SCORE_STAGE)
    download = project / "stages/download.py"
    source = download.read_text().replace("corpus", "processbench").replace("*.txt", "*.json")
    body = source[source.index("    origin, target") : source.index("    write_json(")]
    replace(download, "    write_json(", f"    corpus = source\n{body}    write_json(")
    replace(download, '{"corpus": source}', '{"corpus": corpus, "processbench": source}')
    dvc(project, "add", "-q", "data")
    for words in (["add", "-A"], ["commit", "-qm", "score"]):
        subprocess.run([*GIT, *words], cwd=project, check=True)
    dvc(project, "repro", "-q")
    shutil.copytree(project / ".dvc/cache", folder / "bucket")
    storage.publish(project, str(folder / "bucket"))
    storage.publish(project, str(folder / "bucket"), ["download"])
    (folder / "runner.pem").write_bytes(public_pem(own_key().public_key()))
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A clone of the repository without any output, a bucket that the test may change, and the key."""
    shutil.copytree(finished / "bucket", tmp_path / "bucket")
    shutil.copyfile(finished / "runner.pem", tmp_path / "runner.pem")
    subprocess.run(["git", "clone", "-q", str(finished / "project"), str(tmp_path / "clone")], check=True)
    return tmp_path


def follow(folder: Path) -> tuple[int, list[str]]:
    """Run the blocks in one shell, without this project's environment; returns the exit status and its output."""
    environment = {"BUCKET": str(folder / "bucket"), "KEY": str(folder / "runner.pem")}
    own = {"HOME": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(
        SHELL,
        cwd=folder / "clone",
        env={"PATH": OUTSIDE, **own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]


def follow_with_s3(folder: Path) -> tuple[int, list[str]]:
    """The same with the objects in an S3 bucket and the AWS command line, in an environment of its own."""
    with s3_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        credentials = s3_environment(endpoint)
        for name, value in credentials.items():
            patch.setenv(name, value)
        address = f"{s3_bucket(endpoint)}/a/prefix"
        store = open_store(address)
        for path in (path for path in (folder / "bucket").rglob("*") if path.is_file()):
            store.put(path.relative_to(folder / "bucket").as_posix(), path.read_bytes())
        environment = {"BUCKET": address, "KEY": str(folder / "runner.pem"), "AWS_ENDPOINT_URL": endpoint}
        home = ["env", f"HOME={folder}"]  # uv needs the user's
        done = run_isolated(
            AWS, [*home, *SHELL], os.environ | {"PATH": OUTSIDE, **credentials, **environment}, folder / "clone"
        )
    return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]


@pytest.mark.parametrize("way", [follow, follow_with_s3])
def test_a_stranger_verifies_a_figure_down_to_a_line(
    folder: Path, way: Callable[[Path], tuple[int, list[str]]]
) -> None:
    status, lines = way(folder)
    assert status == 0, lines
    assert [line for line in lines if line.endswith("done")] == [f"block {n} done" for n in range(1, len(BLOCKS) + 1)]
    for expected in (
        "the newest of 2 entries is signed",
        "4 statements are signed",
        "F1 on gsm8k is 57.1, as stated",
        '{"id":"gsm8k-0","label":1,"prediction":7}',
    ):
        assert expected in lines
    assert any(re.fullmatch(r'\d+: *"id": "gsm8k-0",', line) for line in lines)
    assert any(re.match(r"3 stages: .* output of a signed stage, 4 x source$", line) for line in lines), lines


def other_figure(bucket: Path, project: Path) -> None:
    path = object_file(bucket, objects(project, "metrics/processbench/full.json")[0])
    rewrite(path, path.read_text().replace("57.", "99."))


def other_predictions(bucket: Path, project: Path) -> None:
    path = object_file(bucket, objects(project, "artifacts/predictions/processbench/full.jsonl")[0])
    rewrite(path, path.read_text().replace('"prediction": 7', '"prediction": -1'))


def other_statement(bucket: Path, project: Path) -> None:
    path = next((bucket / "pathfinder/records/train@full").glob("*.dsse"))
    rewrite(path, next((bucket / "pathfinder/records/train@plain").glob("*.dsse")).read_text())


def other_record(bucket: Path, project: Path) -> None:
    (record,) = read_records(project, "processbench@full")
    path = bucket / f"pathfinder/records/processbench@full/{record.digest}.json"
    rewrite(path, path.read_text().replace('"seconds"', '"second"'))


def other_entry(bucket: Path, project: Path) -> None:
    path = bucket / "pathfinder/log/00000001.json"
    rewrite(path, json.dumps(json.loads(path.read_text())))


def void_entry(bucket: Path, project: Path) -> None:
    entry = (bucket / "pathfinder/log/00000002.json").read_bytes()
    rewrite(bucket / "pathfinder" / signature(entry)[0], signature(entry, VOID_TYPE)[1].decode())


def other_lock(bucket: Path, project: Path) -> None:
    path = next((bucket / "pathfinder/patches").iterdir())
    replace(path, "size: ", "size: 1")


def other_key(bucket: Path, project: Path) -> None:
    (bucket.parent / "runner.pem").write_bytes(public_pem(Ed25519PrivateKey.generate().public_key()))


HARMS: list[tuple[Callable[[Path, Path], None], int]] = [
    (other_figure, 6),
    (other_predictions, 6),
    (other_statement, 5),
    (other_record, 5),
    (other_entry, 3),
    (void_entry, 3),
    (other_lock, 4),
    (other_key, 3),
]


@pytest.mark.parametrize(("harm", "block"), HARMS, ids=[harm.__name__ for harm, _ in HARMS])
def test_the_steps_end_where_something_was_changed(
    folder: Path, finished: Path, harm: Callable[[Path, Path], None], block: int
) -> None:
    harm(folder / "bucket", finished / "project")
    status, lines = follow(folder)
    assert status != 0
    assert [line for line in lines if line.endswith("done")] == [f"block {n} done" for n in range(1, block)]


def test_the_workflow_is_valid_yaml_and_keeps_the_key_out_of_the_commands() -> None:
    (job,) = yaml.safe_load((ROOT / "examples/sign_in_ci.yaml").read_text())["jobs"].values()
    assert job["environment"] == "signing"
    assert not any("secrets." in step.get("run", "") for step in job["steps"])
