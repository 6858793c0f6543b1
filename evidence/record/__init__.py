"""Lineage records: what a run of a stage read, ran and made, and who signed it."""
