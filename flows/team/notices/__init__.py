"""Notices of runs that failed, crashed or did not start: what they say, and the automations that send them."""
