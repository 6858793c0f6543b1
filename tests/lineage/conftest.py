"""The fixtures of the provenance tests: the miniature project after its run, and copies of it."""

from __future__ import annotations

from tests.provenance.conftest import made, project

__all__ = ["made", "project"]
