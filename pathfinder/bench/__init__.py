"""PRMs and chat models on the benchmarks, with one form of result: what the verbs of ``pathfinder.compare`` run."""
