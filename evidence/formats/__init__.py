"""The recorded history in the formats of other tools, and as a page."""
