"""What every verb of the audit shares: printing a result, and reading the project at a git revision."""
