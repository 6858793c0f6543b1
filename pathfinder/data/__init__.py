"""The training data: upstream formats into records, overlap with the benchmarks, the training set, exports."""
