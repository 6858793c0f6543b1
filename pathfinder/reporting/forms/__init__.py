"""The forms of files that the report reads."""
