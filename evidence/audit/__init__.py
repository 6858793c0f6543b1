"""What a check compares: claims of files and stores, findings, published runs."""
