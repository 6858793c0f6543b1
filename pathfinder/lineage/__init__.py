"""The audit: what was made from what, one record's life, and checks of every digest."""
