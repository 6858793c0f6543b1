"""The database of a Prefect server before its first run, made once per machine and copied.

A server makes its tables step by step when it first starts, which takes 12 of its 20 seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
import tempfile
from importlib import metadata
from pathlib import Path

from flows import server
from tests.support import warm


def give_database(root: Path) -> None:
    """Put the database into the Prefect folder of the project in ``root``."""
    server.home(root).mkdir(parents=True, exist_ok=True)
    shutil.copy(_made(), server.home(root) / "prefect.db")


def _made() -> Path:
    folder = Path(tempfile.gettempdir(), f"pathfinder-tests-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"prefect-{metadata.version('prefect')}.db"
    with (folder / "prefect.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                root = Path(scratch)
                with warm.starts():
                    server.start_server(root)
                server.stop(root, "server")
                whole = root / "whole.db"
                with contextlib.ExitStack() as stack:
                    files = (server.home(root) / "prefect.db", whole)
                    database, copy = (stack.enter_context(contextlib.closing(sqlite3.connect(file))) for file in files)
                    database.backup(copy)
                whole.replace(made)
    return made
