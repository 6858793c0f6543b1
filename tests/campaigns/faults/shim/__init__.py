"""One fault at one system call of a run: the n-th write, rename, fsync … fails, is short, or kills the process.

``faults.c`` counts and disturbs the calls, ``library.py`` compiles it, ``server.py`` forks one process per run, so that
a run does not import its modules again, and ``forks.py`` is what tests use.
"""
