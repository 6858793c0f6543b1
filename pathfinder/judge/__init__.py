"""LLM judges: labelling steps, parsing answers, and critics of whole solutions."""
