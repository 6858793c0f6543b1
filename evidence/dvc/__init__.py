"""DVC as evidence reads it: its files, its cache and its remotes."""
