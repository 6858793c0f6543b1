"""Verbs that join the method and the evidence: trace a record, explain a decision, publish a model."""
