"""``pathfinder bench``: PRMs and chat models on the benchmarks, with one form of result."""
