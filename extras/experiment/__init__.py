"""The experiment on typed errors in the generated world, which knows the truth of every step (docs/experiment.md)."""
