"""The cards of trained models: description, training data, results, licences and limits."""
