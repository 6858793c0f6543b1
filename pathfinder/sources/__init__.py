"""Fetching: the source catalogue, HTTP downloads and remote stores."""
