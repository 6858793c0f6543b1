"""What both wings are built on: files, text, settings, remote storage. It knows neither a PRM nor DVC."""
