"""What a profile needs of a machine beside the memory of its GPUs."""
