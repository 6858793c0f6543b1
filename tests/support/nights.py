"""Nights of a Prefect server on SQLite: the rows of a real run are repeated, time moves on, and the server prunes.

Run     python -m tests.support.nights DATABASE RUNS NIGHTS     with the variables of the server

Prints the size in bytes and the number of flow runs after each night, as a JSON list. What is pruned, and when, is up
to Prefect: its own functions delete what its settings enable.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import sys
import uuid

from prefect.server.database import provide_database_interface
from prefect.server.services import db_vacuum
from prefect.settings import get_current_settings

TABLES = (
    "flow_run",
    "flow_run_state",
    "task_run",
    "task_run_state",
    "log",
    "artifact",
    "events",
    "event_resources",
)
PRUNES = {
    "flow_runs": (db_vacuum.vacuum_old_flow_runs,),
    "events": (db_vacuum.vacuum_events_with_retention_overrides, db_vacuum.vacuum_old_events),
    "orphans": (
        db_vacuum.vacuum_orphaned_logs,
        db_vacuum.vacuum_orphaned_artifacts,
        db_vacuum.vacuum_stale_artifact_collections,
    ),
}
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DAY = "{0} = date(substr({0}, 1, 10), '-1 day') || substr({0}, 11)"
Rows = dict[str, list[tuple[object, ...]]]


def made(database: sqlite3.Connection) -> Rows:
    """The rows of the run in the database."""
    return {table: database.execute(f"select * from {table}").fetchall() for table in TABLES}  # noqa: S608


def repeat(database: sqlite3.Connection, rows: Rows) -> None:
    """Insert the rows as a second run: everything that the run made gets a new id."""
    ids = {row[columns(database, table).index("id")] for table in TABLES for row in rows[table]}
    others = {str(old): str(uuid.uuid4()) for old in ids}

    def renamed(value: object) -> object:
        if not isinstance(value, str):
            return value
        return _ID.sub(lambda found: others.get(found[0], found[0]), value)

    for table in TABLES:
        new = [tuple(map(renamed, row)) for row in rows[table]]
        if new:
            database.executemany(f"insert into {table} values ({', '.join('?' * len(new[0]))})", new)  # noqa: S608


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"pragma table_info({table})")]


def pass_a_day(database: sqlite3.Connection) -> None:
    """Make every time in the rows of runs a day older."""
    for table in TABLES:
        kinds = {row[1]: row[2] for row in database.execute(f"pragma table_info({table})")}
        times = [name for name, kind in kinds.items() if kind == "DATETIME" and name != "total_run_time"]
        database.execute(f"update {table} set {', '.join(map(_DAY.format, times))}")  # noqa: S608


async def prune() -> None:
    """Run what the server runs when it starts and every hour, with its settings."""
    for kind in sorted(get_current_settings().server.services.db_vacuum.enabled_vacuum_types):
        for delete in PRUNES[kind]:
            await delete(db=provide_database_interface())


def main(path: str, runs: int, nights: int) -> None:
    found = []
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = made(database)
        for _ in range(nights):
            with database:
                pass_a_day(database)
                for _ in range(runs):
                    repeat(database, rows)
            asyncio.run(prune())
            size = "select page_count * page_size from pragma_page_count(), pragma_page_size()"
            (one,), (count,) = (database.execute(sql).fetchone() for sql in (size, "select count(*) from flow_run"))
            found.append((one, count))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
