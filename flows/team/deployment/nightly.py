"""The nightly run: it runs the head of a branch in a separate clone and pushes the results as a run branch.

The working folder is never touched. With ``flows.team.deploy up`` the clone in ``.pathfinder/nightly/`` stays between
nights, with its cache, journals and checkpoints, so an interrupted run resumes. On a team's server the worker deletes
it with the folder of the run; then ``pull`` restores published stages, and journals and checkpoints come from the
remote. The run branch holds the lock, ``params.yaml`` and ``metrics/summary.json``. The flow only creates branches, so
no run can lose the work of another run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import yaml
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from evidence.audit.findings import listed
from evidence.dvc.history import MAIN_LOCK
from evidence.dvc.pipeline import leaves, value_at
from flows.endings import held_by_flow
from flows.local import storage
from flows.local.committed import summary_files
from flows.local.dvc import Dvc, DvcError
from flows.local.graph import load_graph, profile_of
from flows.local.storage import DEFAULT, REMOTE, absolute
from flows.parameters import Jobs, Override, Profile, Targets
from flows.team.deployment.git import SHORT, Clone, origin_of
from flows.team.notices.hooks import tell
from flows.terminal import flow_output
from ground.io import DataError, PathfinderError, read_json, write_text
from ground.settings import parse_yaml
from ground.show import counted
from pathfinder.core.commented_yaml import dump_commented, load_commented
from pathfinder.core.params import PARAMS_FILE, load_params
from pathfinder.planning import profiles

HOME = Path(".pathfinder/nightly")
CLONE = HOME / "clone"
_MOST_LINES, _NAMED = 40, 3


class NightlyFailed(PathfinderError, RuntimeError):
    """The pipeline did not succeed; its own flow run and logs say where."""


def run_name() -> str:
    """The name of a nightly run: branch, profile and targets."""
    parameters = flow_run.get_parameters()
    words = [f"nightly of {parameters.get('branch')}:", parameters.get("profile") or "", *parameters.get("targets", ())]
    return " ".join(word for word in words if word).rstrip(":")


@flow(name="nightly", flow_run_name=run_name, persist_result=False, on_failure=[tell], on_crashed=[tell])
def nightly(
    branch: Annotated[str, Field(min_length=1)] = "main",
    repository: str = "",
    targets: Targets = (),
    profile: Profile = "",
    overrides: Sequence[Override] = (),
    force: bool = False,
    pull: bool = False,
    jobs: Jobs = 0,
) -> State[Any]:
    """Run a branch's head in a clone and commit the lock, parameters and metrics to a new run branch.

    Args:
        branch: The branch whose head is run.
        repository: Where to clone from and push to; empty for the origin of the worker's folder.
        targets: Stages or outputs; empty for all that the profile names.
        profile: The profile that replaces params.yaml; empty to keep the committed file.
        overrides: Changes of params.yaml as KEY=VALUE, with dotted keys, as in `dvc exp run -S`.
        force: Run stages even if they are up to date.
        pull: Restore outputs of published runs from the remote instead of running their stages.
        jobs: The number of concurrent stages; 0 for one per GPU or core.

    Raises ``NightlyFailed`` if the pipeline does not succeed.
    """
    root, say = Path.cwd(), flow_output("nightly")
    storage.require_remote()
    with held_by_flow(root / HOME, say):
        clone = Clone.update(root / CLONE, repository or origin_of(root), branch)
        say(f"{branch} is at {clone.head}")
        _change_params(clone.folder, profile, overrides)
        options = [*(["--force"] if force else []), *(["--pull"] if pull else []), "--jobs", str(jobs)]
        modules = os.pathsep.join(filter(None, [str(clone.folder), os.environ.get("PYTHONPATH")]))
        places = {REMOTE: absolute(root, os.environ.get(REMOTE) or str(DEFAULT)), "PYTHONPATH": modules}
        try:  # with the code of the clone
            Dvc(root / HOME, places).call("flows.reproduce", *options, *targets, on_line=say, root=clone.folder)
        except DvcError as error:
            raise NightlyFailed(f"the pipeline did not succeed: {error.last}") from error
        changed = clone.changed((MAIN_LOCK, str(PARAMS_FILE), *summary_files(clone.folder)))
        if known := clone.same_results(changed) if changed else clone.head[:12]:
            say(f"nothing has changed: {known} already holds these results")
            return Completed(message=f"nothing has changed since {known}; no branch was made")
        trailers = {
            "Flow-Run": flow_run.get_id() or "",
            "Flow-Run-Name": flow_run.get_name() or "",
            "Base": clone.head,
            "Remote": os.environ.get(REMOTE) or "the worker's folder",
        }
        name = f"runs/{datetime.now(UTC):%Y-%m-%d}-{clone.head[:SHORT]}"
        made = clone.commit(changed, name, summary_lines(clone.folder, targets), trailers)
        say(f"committed {', '.join(changed)} to {made}")
        return Completed(message=f"results are in branch {made}")


def summary_lines(root: Path, targets: Sequence[str]) -> list[str]:
    """A subject, which says what was run, and one line for each number of the metrics."""
    what = " of ".join(filter(None, [listed([*targets], _NAMED), profile_of(root) or "the pipeline"]))
    lines = [f"Run {what}: {counted(len(load_graph(root).select(targets)), 'current stage')}"]
    for path in summary_files(root):
        found = leaves(read_json(root / path)) if (root / path).is_file() else ()
        lines += [f"{name} {value:.6g}" for name, value in found if isinstance(value, (int, float))]
    return [*lines[:_MOST_LINES], *(["…"] if len(lines) > _MOST_LINES else [])]


def _change_params(folder: Path, profile: str, overrides: Sequence[str]) -> None:
    if profile:
        profiles.write(folder, profile, force=True)
    if not overrides:
        return
    path = folder / PARAMS_FILE
    content = load_commented(path)
    for override in overrides:
        key, separator, value = override.partition("=")
        section, _, last = key.rpartition(".")
        inner = value_at(content, section) if section else content
        try:
            new = parse_yaml(value)
        except yaml.YAMLError:
            separator = ""
        if not separator or not isinstance(inner, dict) or last not in inner:
            raise DataError(f"{override}: expected KEY=VALUE with a key of {PARAMS_FILE}, for example train.seed=2")
        inner[last] = new
    write_text(path, dump_commented(content, 4096))
    load_params(path)
