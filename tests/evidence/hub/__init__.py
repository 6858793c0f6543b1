"""Tests of what goes to the Hub."""
