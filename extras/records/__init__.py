"""From a record, a licence, a rater or a source to everything that depends on it, and how to forget it."""
