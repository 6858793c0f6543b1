"""The method as a library. Imports nothing from the stages, the audit or the flows."""
