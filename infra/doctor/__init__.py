"""Check this machine and a team's set-up: one line per check, with its remedy.

Run     python -m infra.doctor   exit status 1 if something is wrong
"""
