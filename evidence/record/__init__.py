"""Lineage records: the inputs, code and outputs of a stage's run, and the signatures."""
