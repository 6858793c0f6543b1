"""Checks of the disks and vLLM servers that a profile needs; ``models.footprint`` checks the memory of GPUs."""
