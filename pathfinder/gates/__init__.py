"""Data gates: Great Expectations suites over the labelled data and the training set."""
