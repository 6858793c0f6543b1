"""The promotion as a flow: a run branch becomes the head of its target branch, if nothing else has changed there.

The target is only ever moved forward, from the commit that this flow read to the run branch's commit. If a person or
another promotion pushes in between, the repository refuses the push, and the flow fails with the reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from evidence.dvc.history import MAIN_LOCK, Locked, stages_in
from evidence.dvc.pipeline import value_at
from evidence.dvc.stores import FOLDER, object_key
from flows.endings import held_by_flow
from flows.local import storage
from flows.local.committed import summary_files
from flows.team.deployment import git
from flows.team.notices.hooks import tell
from flows.terminal import flow_output
from ground.hashing import digest_chunks
from ground.io import DataError, PathfinderError, TransientError, sha256_of
from ground.remote import Store
from pathfinder.core.params import PARAMS_FILE

HOME = Path(".pathfinder/promote")
RUNS = "runs/"
_MOVED = re.compile("stale info|non-fast-forward|fetch first|cannot lock ref|failed to update ref|but expected")


class PromotionRefused(PathfinderError, RuntimeError):
    """A gate is closed or the target has moved; the message has every reason."""


def run_name() -> str:
    """The name of a promotion: its run branch and its target."""
    parameters = flow_run.get_parameters()
    return f"promote {parameters.get('branch') or 'the newest run'} to {parameters.get('target')}"


@flow(name="promote", flow_run_name=run_name, persist_result=False, on_failure=[tell], on_crashed=[tell])
def promote(
    branch: Annotated[str, Field(pattern=r"^(runs/[\w.-]+)?$")] = "",
    target: Annotated[str, Field(min_length=1)] = "main",
    largest_drop: Annotated[float, Field(ge=0, le=100)] = 5.0,
    repository: str = "",
) -> State[Any]:
    """Move a branch forward to a run branch if the gates pass; otherwise the run fails with the reasons.

    The gates: only results differ from the target, the remote has a published run with this lock, every
    expectation of the validation stages was met, and no benchmark falls too far.

    Args:
        branch: The run branch; empty for the newest one that follows the target's head.
        target: The branch that is moved forward.
        largest_drop: The points by which a benchmark of the summary may be below the target's.
        repository: The repository with both branches; empty for the origin of the worker's folder.
    """
    root, say = Path.cwd(), flow_output("promote")
    storage.require_remote()
    folder = root / HOME
    with held_by_flow(folder, say):
        store = storage.opened(root, storage.configure(root))
        done = promoted(
            folder, repository or git.origin_of(root), branch, target, largest_drop, store, summary_files(root)
        )
    say(done)
    return Completed(message=done)


def promoted(
    folder: Path, repository: str, branch: str, target: str, largest_drop: float, store: Store, summaries: list[str]
) -> str:
    """Check the gates and push; returns what was done. Raises ``PromotionRefused``, ``DataError``, and store errors."""
    mirror = git.mirror(folder / "mirror.git", repository)
    before = git.commit_of(mirror, f"refs/heads/{target}")
    if not before:
        raise DataError(f"the repository has no branch {target}; name another one in the deployment's parameters")
    newest = ["--sort=-committerdate", "--count=1", f"--contains={before}", "--format=%(refname:lstrip=2)"]
    name = branch or git.text(mirror, "for-each-ref", *newest, f"refs/heads/{RUNS}")
    after = git.commit_of(mirror, f"refs/heads/{name}")
    if not after:
        raise PromotionRefused(f"no run branch {branch or f'{RUNS}* follows the head of {target}'}; run the nightly")
    if after == before:
        return f"{target} is already at {name}"
    if git.tried(mirror, "merge-base", "--is-ancestor", before, after).returncode:
        raise PromotionRefused(f"{name} does not follow {target}, which is at {before[:12]} now; run the nightly again")
    if reasons := list(refusals(mirror, before, after, store, largest_drop, summaries)):
        raise PromotionRefused(f"{name} is not promoted to {target}: {'; '.join(reasons)}")
    lease = f"--force-with-lease=refs/heads/{target}:{before}"
    done = git.tried(mirror, "push", "-q", lease, "origin", f"{after}:refs/heads/{target}")
    if not done.returncode:
        return f"{target} is at {name} ({after[:12]})"
    if _MOVED.search(why := git.cause(done)):
        raise PromotionRefused(f"{target} has moved while {name} was checked: {why}; run the nightly again")
    if b"currently checked out" in done.stderr:
        raise DataError(f"{target} is checked out in the repository; run `git merge --ff-only {after[:12]}` there")
    raise TransientError(f"{target}: cannot be pushed ({why})")


def refusals(
    mirror: Path, before: str, after: str, store: Store, largest_drop: float, summaries: list[str]
) -> Iterator[str]:
    """The reasons why a run branch at ``after`` must not become the head of its target, which is at ``before``."""
    allowed = {MAIN_LOCK, str(PARAMS_FILE), *summaries}
    changed = git.run(mirror, "diff", "--name-only", "--no-renames", "-z", before, after)
    if others := [path for path in changed.decode(errors="surrogateescape").split("\0") if path not in {"", *allowed}]:
        yield f"it changes {', '.join(others[:3])}, and a run changes only {', '.join(sorted(allowed))}"
    lock = _read(mirror, after, MAIN_LOCK)
    if lock is None:
        yield f"it has no {MAIN_LOCK}"
        return
    if (key := f"{FOLDER}/locks/{sha256_of(lock)}.lock") not in store.keys(key):
        yield f"{store.url} has no published run with its {MAIN_LOCK}"
    yield from _gates(stages_in(lock.decode(), MAIN_LOCK), store)
    for path in summaries:
        old, new = (_figures(_read(mirror, commit, path)) for commit in (before, after))
        for name, value in old.items():
            if new.get(name, -math.inf) < value - largest_drop:
                yield f"{path}: {name} is {f'{new[name]:.1f}' if name in new else 'missing'}, before {value:.1f}"


def _read(mirror: Path, commit: str, path: str) -> bytes | None:
    """A file at a commit; ``None`` if it does not exist there."""
    found = git.tried(mirror, "cat-file", "blob", f"{commit}:{path}")
    return found.stdout if found.returncode == 0 else None


def _gates(stages: dict[str, Locked], store: Store) -> Iterator[str]:
    """The validation stages whose expectations were not all met, according to their metrics on the remote."""
    outs = {path: md5 for stage in stages.values() for path, md5 in stage.outs.items()}
    gates = {path: md5 for path, md5 in outs.items() if path.startswith("metrics/validate") and path.endswith(".json")}
    if not gates:
        yield f"its {MAIN_LOCK} has no validation stage"
    for path, md5 in gates.items():
        if (key := object_key(md5)) not in store.keys(key):
            yield f"{store.url} has no {path} of it; run the nightly without targets"
            continue
        content = store.read(key)
        if digest_chunks([content]).md5 != md5:
            raise DataError(f"{store.url}/{key}: was edited; it is {path}")
        failed = json.loads(content).get("gates_failed")
        if failed != 0:
            yield f"{path}: {failed} expectations were not met"


def _figures(summary: bytes | None) -> dict[str, float]:
    """The scores of the benchmarks in a summary, in percent."""
    content = value_at(json.loads(summary), "benchmarks", {}) if summary else {}
    return {name: value for name, value in content.items() if isinstance(value, (int, float))}
