"""The beginning of the report: the answer in a sentence, a scored solution, and what the flags catch."""
