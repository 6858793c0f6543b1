"""The rewards of steps in the form that other libraries ask for: TRL, verl, search-and-learn, inspect_ai, its_hub."""
