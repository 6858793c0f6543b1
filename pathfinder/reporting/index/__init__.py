"""The index of records: the fate of every upstream line and rated step, and what depends on it."""
