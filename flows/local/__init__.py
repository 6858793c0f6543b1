"""The project in this folder, without a server: stages, DVC, storage, one run at a time, nothing left behind by it."""
