"""What only a machine with a card can show, measured by one command and written to docs/gpu.md (`make gpu-day`)."""
