"""The rehearsal: every stage of every GPU profile, at full shape and tiny size, on a CPU (README.md).

Run: make rehearse, or python -m tests.campaigns.rehearsal [PROFILE …]
"""
