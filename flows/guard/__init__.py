"""One run at a time in a folder, nothing left behind by a run that was killed, nothing unverified from a remote."""
