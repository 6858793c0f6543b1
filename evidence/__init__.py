"""The audit: lineage of every result, the trace of one record, and verification of every digest."""
