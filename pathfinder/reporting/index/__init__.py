"""The index of records: what became of every upstream line and rated step, and what depends on it."""
