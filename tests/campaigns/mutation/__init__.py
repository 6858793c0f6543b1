"""How many small changes of the code the tests notice (`python -m tests.campaigns.mutation`)."""
