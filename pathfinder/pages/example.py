"""A solution in the quickstart's world with a consistency error, for the demo and the server's page."""

from __future__ import annotations

PROBLEM = "Eve has 7 apples.\n1) Eve finds 6.\n2) Eve uses 5.\n3) Eve sells 2.\nHow many apples does Eve have?"
STEPS = (
    "1) finds 6, so 7 + 6 = 13 apples.",
    "2) uses 5, so 13 - 5 = 9 apples.",
    "3) sells 2, so 9 - 2 = 7 pens.",
    r"The answer is \boxed{7}.",
)
