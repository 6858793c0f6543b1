"""Stages on other machines: the table that sends them there, the flow that waits for them, and the worker's flow."""
