"""Find and forget everything that depends on a record, a licence, a rater or a source."""
