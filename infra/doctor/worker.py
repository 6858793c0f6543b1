"""If infra/resources.yaml sends stages to pools, check that runs on other machines accept this machine's results."""

from __future__ import annotations

from pathlib import Path

from evidence.audit.trust import shared_keys
from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import installed_packages
from evidence.record.identity import LOCKS
from evidence.record.materials import other_versions, unlocked_packages
from evidence.record.signing import TRUSTED, key_id, own_public_keys
from flows.team.pools.table import FILE, needs
from ground.io import DataError
from infra.doctor.finding import Finding


def findings(root: Path) -> list[Finding]:
    """Check that the project trusts this user's key and that the lock pins the installed packages."""
    if not (root / FILE).is_file():
        return []
    try:
        away = [need for need in needs(root, read_pipeline(root)).values() if not need.is_here]
        return [trust(root), packages(root, all(need.packages == "any" for need in away))] if away else []
    except DataError as error:
        return [Finding("worker", str(error), "follow this line")]


def trust(root: Path) -> Finding:
    """Check that the project's trusted keys include this user's key."""
    key = key_id(own_public_keys()[0])
    is_trusted = key in shared_keys(root)
    found = f"{TRUSTED.as_posix()}/ has {'' if is_trusted else 'no '}key {key[:12]}"
    remedy = "commit its public half there (docs/audit.md): runs on other machines refuse what it signs"
    return Finding("trust", found, "" if is_trusted else remedy)


def packages(root: Path, is_free: bool = False) -> Finding:
    """Check the versions of the installed packages; with ``is_free``, pools may have others."""
    others = other_versions(unlocked_packages(installed_packages(), root / LOCKS))
    found = f"{', '.join(others)} (pinned in {LOCKS})" if others else f"as {LOCKS} pins them"
    return Finding(
        "packages", found, "run `make env`: runs on other machines refuse the results" if others and not is_free else ""
    )
