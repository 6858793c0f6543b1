"""The index of records: what became of every upstream line and rated step, and what rests on it."""
