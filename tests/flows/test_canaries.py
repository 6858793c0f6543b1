"""Secrets of the environment appear in nothing that a run writes or prints: canaries, searched everywhere."""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from flows.local.storage import REMOTE
from tests.flows.conftest import Project

NAMES = (
    "OPENAI_API_KEY",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "PREFECT_API_KEY",
    "PATHFINDER_NOTIFY_WEBHOOK",
    "SLACK_WEBHOOK_URL",
    "POSTGRES_PASSWORD",
    "MY_PRIVATE_TOKEN",
)
RECORD = """
from evidence.record.environment import describe_environment
pathlib.Path("metrics/environment.json").write_text(json.dumps(describe_environment()))
"""
"""The part of the record that a stage of the pipeline writes."""


@pytest.mark.campaign
def test_no_secret_of_the_environment_is_written_or_printed(project: Project, tmp_path: Path) -> None:
    """A run that succeeds and one that fails, with a Prefect server of their own and a remote."""
    canaries = {name: f"canary-{uuid.uuid4().hex}" for name in NAMES}
    canaries["SLACK_WEBHOOK_URL"] = f"https://hooks.example/{canaries['SLACK_WEBHOOK_URL']}"
    remote = tmp_path / "remote"
    variables = {**project.environment, **canaries, REMOTE: str(remote), "PREFECT_LOGGING_LEVEL": "DEBUG"}
    loud = replace(project, environment=variables)
    loud.trap("numbers", RECORD)
    printed = [loud.reproduce("--verbose")]
    loud.trap("odd", "raise SystemExit('the stage fails')\n")
    (loud.root / "params.yaml").write_text("count: 11\n")
    printed.append(loud.reproduce("--verbose", code=None))
    assert "fails" in printed[1]
    assert "OMP_NUM_THREADS" in (project.root / "metrics/environment.json").read_text()
    secrets = {name: value.rpartition("/")[2].encode() for name, value in canaries.items()}
    for name, secret in secrets.items():
        assert not any(secret.decode() in text for text in printed), f"{name} is printed"
    files = [path for place in (project.root, remote) for path in place.rglob("*") if path.is_file()]
    databases = [path for path in files if path.suffix == ".db"]
    assert databases
    assert any(path.is_relative_to(remote) for path in files)
    for database in databases:
        with sqlite3.connect(database) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")  # what is only in the log of the database
    leaks = [
        f"{name} in {path}"
        for path in files
        if path.is_file()
        for name, secret in secrets.items()
        if secret in path.read_bytes()
    ]
    assert leaks == []
