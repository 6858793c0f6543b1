"""The common language of all stages: files, parameters, records, labels, prompts and runs."""
