"""Published PRMs behind one interface: prompts, heads and decision rules as their authors document them.

``registry`` lists the systems, ``scorer`` runs one on the batched engine, ``evaluate`` evaluates it on a benchmark.
A new system is one file with its prompt and one line in ``registry``.
"""
