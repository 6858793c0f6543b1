"""The history as one page that loads nothing."""
