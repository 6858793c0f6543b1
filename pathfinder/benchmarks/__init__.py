"""The benchmarks: their files, their metrics, grading of any predictions, and the paper's numbers."""
