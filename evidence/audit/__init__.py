"""The parts of a check: claims of files and stores, findings, published runs."""
