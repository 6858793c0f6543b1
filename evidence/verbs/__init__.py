"""The verbs that list, show, compare and repeat parts of the history, and the output of every verb."""
