"""The base of all rooms: files, text, settings, remote storage. It depends on neither PRMs nor DVC."""
