"""The page of the report, section by section."""
