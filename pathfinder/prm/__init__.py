"""Scoring steps with PathFinder-PRM, in process or behind a server."""
