"""The verb ``publish``: build what would be uploaded to the Hub, check it, and upload it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ground.io import DataError
from ground.show import AsJson, show

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def publish(
    model: Annotated[str, typer.Argument(help="A trained model, such as models/full.")],
    to: Annotated[str | None, typer.Option(help="The repository of the model, ORG/NAME.")] = None,
    data: Annotated[str | None, typer.Option(help="The repository of the training data, ORG/NAME.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build and check everything; upload nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish a trained model, and its training data if --data is given, on the Hub (docs/audit.md).

    Builds the folders below .pathfinder/publish and checks them.
    Refuses a model whose history does not pass the audit.
    A repository that does not exist is made private. The token comes from HF_TOKEN.
    """
    from extras.publish import client
    from extras.publish.checks import check_repository
    from extras.publish.folder import EXPORT, build_data, build_model, require_sound
    from pathfinder.reporting.names import CARDS

    if to is None and not dry_run:
        raise DataError("publish: name the repository with --to ORG/NAME, or add --dry-run")
    for name in (to, data):
        if name is not None and not _NAME.fullmatch(name):
            raise DataError(f"publish: {name!a} is not the name of a repository; use ORG/NAME")
    root, target = Path(), model.rstrip("/")
    checks = require_sound(root, CARDS, EXPORT)
    repositories = {"model": (build_model(root, target), to), "dataset": (build_data(root, target), data)}
    found: dict[str, Any] = {"checks": checks, "repositories": []}
    for kind, (repository, name) in repositories.items():
        checks += check_repository(repository, root)
        files = list(repository.files())
        about = {"kind": kind, "folder": repository.folder.as_posix(), "to": name, "files": files}
        found["repositories"].append(about | {"bytes": sum(file["bytes"] for file in files), "commit": None})
    for about, (repository, name) in zip(found["repositories"], repositories.values(), strict=True):
        if name is not None and not dry_run:
            about["commit"] = client.upload(repository, name)
    show(found, as_json, _lines(found))


def _lines(found: dict[str, Any]) -> list[str]:
    """The result as text: the checks, then every file with bytes and sha256."""
    lines = [f"passed: {check}" for check in found["checks"]]
    for about in found["repositories"]:
        where = f"to {about['to']}" if about["to"] else "not uploaded without a name"
        state = f"uploaded, {about['commit']}" if about["commit"] else where
        lines += ["", f"{about['kind']}, {about['bytes']:,} bytes in {about['folder']} ({state})"]
        lines += [f"  {file['bytes']:>13,}  {file['sha256'][:16]}  {file['file']}" for file in about["files"]]
    if not any(about["commit"] for about in found["repositories"]):
        lines += ["", "nothing was uploaded"]
    return lines
