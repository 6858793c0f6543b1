"""The verbs that list, show, compare and repeat what the history holds, and how every verb prints its result."""
