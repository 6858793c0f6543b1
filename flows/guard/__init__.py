"""One run at a time in a folder, and nothing left behind by a run that was killed."""
