"""Container images: Dockerfile, and the bill of materials that each image holds."""
