"""Other people's PRMs under one interface: prompts, heads and decision rules as their authors documented them.

``registry`` names the systems, ``scorer`` runs one on the batched engine, ``evaluate`` puts it through a benchmark.
A new system is one file with its prompt and one line in ``registry``.
"""
