"""Evidence for a DVC project: record, sign, publish, check and ask. It knows nothing of PRMs."""
