"""Prefect's command line, for a server on SQLite that does not refuse simultaneous writers.

Run     python -m flows.database server start --port 4200

Prefect begins its transactions DEFERRED. A transaction that reads and then writes fails at once, whatever the time
limit, if another connection has written in between: "database is locked" (SQLITE_BUSY_SNAPSHOT,
https://sqlite.org/rescode.html). An IMMEDIATE transaction waits for the others at its beginning.
"""

from __future__ import annotations

from typing import Any

from prefect.cli import app
from sqlalchemy import Engine, event


@event.listens_for(Engine, "before_cursor_execute", retval=True)
def _immediate(*arguments: Any) -> tuple[str, Any]:
    """The statement and its parameters, the third and fourth of SQLAlchemy's arguments."""
    statement, parameters = arguments[2:4]
    return "BEGIN IMMEDIATE" if statement == "BEGIN DEFERRED" else statement, parameters


if __name__ == "__main__":
    app()
