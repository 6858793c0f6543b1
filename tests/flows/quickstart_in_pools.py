"""Run the quickstart in pools and in one folder, and compare: python -m tests.flows.quickstart_in_pools [STAGE …].

Three workers (pools cpu, gpu and judge) have clones of their own. They share a git remote, an S3 server and a Prefect
server with the run. Prints the time of each stage in both runs and what the bucket holds. Exits with status 1 if the
two dvc.lock files differ or a stage did not run in its pool.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import boto3

from evidence.dvc.history import read_stages
from tests.support.miniature import GIT, ROOT
from tests.support.pools import POOLS, Site, site
from tests.support.signals import heed_interrupts

_PLACES = {"label": "judge", "train@*": "gpu", "processbench@*": "cpu", "prmbench@*": "cpu"}
_TABLE = "stages:\n" + "".join(f"- {{stage: '{stage}', pool: {pool}}}\n" for stage, pool in _PLACES.items())
_PATIENCE_S = 7200.0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.flows.quickstart_in_pools", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="stages to run with all before them (default: all)")
    targets: list[str] = parser.parse_args().stages
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # the S3 server prints every request
    heed_interrupts()  # Prefect's workers end by SIGINT
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers and workers end with this process
    with tempfile.TemporaryDirectory(prefix="pools-") as name:
        folder = Path(name)
        with site(folder, _project(folder), _PATIENCE_S) as here:
            sys.exit(_compare(here, targets))


def _compare(here: Site, targets: list[str]) -> int:
    many, one = here.clone("many"), here.clone("one")
    with ExitStack() as stack:
        workers = {pool: stack.enter_context(here.worker(pool)) for pool in POOLS.values()}
        start = time.monotonic()
        here.run(many, "-m", "flows.reproduce", *targets)
        in_pools_s = time.monotonic() - start
    (one / "infra/resources.yaml").write_text("stages: []\n")
    start = time.monotonic()
    here.run(one, "-m", "flows.reproduce", *targets, PATHFINDER_REMOTE=str(here.folder / "other"))
    in_one_folder_s = time.monotonic() - start
    wrong = []
    print(f"{'stage':<32}{'pool':<8}{'seconds there':>14}{'in one folder':>14}")
    for stage in read_stages(one / "dvc.lock", "dvc.lock"):
        if not (one / ".pathfinder/lineage" / stage).is_dir():
            continue  # not among the targets
        pool = next((pool for pattern, pool in _PLACES.items() if fnmatch(stage, pattern)), "here")
        # A worker that runs several stages at once has several clones.
        clones = [many] if pool == "here" else workers[pool].iterdir()
        if not any((clone / ".pathfinder/lineage" / stage).is_dir() for clone in clones):
            wrong.append(f"{stage} did not run in pool {pool}")
            continue
        print(f"{stage:<32}{pool:<8}{_seconds(many, stage):>14.1f}{_seconds(one, stage):>14.1f}")
    if (many / "dvc.lock").read_bytes() != (one / "dvc.lock").read_bytes():
        wrong.append("the two dvc.lock files differ")
    objects, size = _bucket(here)
    print(f"{'whole run':<40}{in_pools_s:>14.1f}{in_one_folder_s:>14.1f}")
    print(f"{'; '.join(wrong) or 'the two dvc.lock files are equal'}; bucket: {objects} objects, {size / 1e6:.1f} MB")
    return int(bool(wrong))


def _project(folder: Path) -> Path:
    """A clone of this project whose table of resources sends stages to pools."""
    made = folder / "project"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(made)], check=True)
    (made / "infra/resources.yaml").write_text(_TABLE)
    subprocess.run([*GIT, "commit", "-qam", "Send stages to pools"], cwd=made, check=True)
    subprocess.run(["git", "branch", "-q", "-f", "-M", "main"], cwd=made, check=True)
    return made


def _seconds(clone: Path, stage: str) -> float:
    """The wall time of a stage by its newest lineage record, in seconds."""
    newest = max((clone / ".pathfinder/lineage" / stage).glob("*.json"), key=lambda path: path.stat().st_mtime)
    record: dict[str, Any] = json.loads(newest.read_text(encoding="utf-8"))
    return float(record["times"]["seconds"])


def _bucket(here: Site) -> tuple[int, int]:
    """The number of objects in the bucket and their size in bytes."""
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    session = boto3.session.Session(*(here.environment[key] for key in keys), region_name="us-east-1")
    client = session.client("s3", endpoint_url=here.environment["PATHFINDER_S3_ENDPOINT"])
    name = here.environment["PATHFINDER_REMOTE"].removeprefix("s3://")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=name)
    sizes = [item["Size"] for page in pages for item in page.get("Contents", [])]
    return len(sizes), sum(sizes)


if __name__ == "__main__":
    main()
