"""The ground of all wings: files, text, settings, remote storage. It knows neither a PRM nor DVC."""
