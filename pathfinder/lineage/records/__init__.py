"""From a record, a licence, a rater or a source to everything that rests on it, and how to forget it."""
