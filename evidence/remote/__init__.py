"""Remotes on other machines: their evidence, their objects, and the guard before anything is taken from a remote."""
