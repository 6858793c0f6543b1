"""The modules that all stages share: files, parameters, records, labels, prompts and runs."""
