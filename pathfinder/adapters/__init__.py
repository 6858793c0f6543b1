"""Step rewards in the form that other libraries expect: TRL, verl, search-and-learn, inspect_ai, its_hub."""
