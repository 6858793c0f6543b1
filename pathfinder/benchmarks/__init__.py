"""The benchmarks: their files, their metrics, grading of anyone's predictions, and the paper's numbers."""
