"""Profiles, and what each needs on a machine with GPUs: memory, hours, tokens, cost and disk."""
