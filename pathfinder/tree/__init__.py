"""The one-pass engine: shared-prefix trees, their layout, attention and passes."""
