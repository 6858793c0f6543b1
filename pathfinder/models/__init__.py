"""Models and tokenizers: loading, token ids, shapes, memory, launching several processes."""
