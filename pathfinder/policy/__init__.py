"""The policy model, reward-guided search, and best of n."""
