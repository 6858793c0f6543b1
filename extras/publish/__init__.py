"""Publication of a trained model and its training data on the Hub, with cards, signature and lineage."""
