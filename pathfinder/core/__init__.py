"""What every stage speaks: files, parameters, records, labels, prompts and runs."""
