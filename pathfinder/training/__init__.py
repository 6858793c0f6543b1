"""Fine-tuning on trees: examples, objective, trainer and adapters."""
