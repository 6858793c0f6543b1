"""Jobs for Slurm with the sizes that the active profile needs."""
