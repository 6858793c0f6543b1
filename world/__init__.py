"""The small world: generated stories with known ground truth, and the pretraining of its models."""
