"""The pipeline: one module per DVC stage, the method in ``core``, the audit in ``lineage``."""
