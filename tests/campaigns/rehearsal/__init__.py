"""The rehearsal: every stage of every GPU profile, at full shape and tiny size, on a CPU (docs/rehearsal.md).

Run: make rehearse, or python -m tests.campaigns.rehearsal [PROFILE …]
"""
