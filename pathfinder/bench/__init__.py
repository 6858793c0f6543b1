"""PRMs and chat models on the benchmarks, with one form of result, for the verbs of ``pathfinder.compare``."""
