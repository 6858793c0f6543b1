"""Defects that were fixed, put back one at a time, and runs under random faults: ``make faults``."""
