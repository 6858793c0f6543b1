"""Who made this from what: a record of every executed stage, the graph behind a file, and the check of it all.

``git commit -> dvc.lock -> md5 and sha256 -> bytes`` is the truth; the records add what DVC does not keep (sha256,
code, environment, times). Works without DVC, Prefect or a network.
"""
