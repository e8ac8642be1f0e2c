"""Rules over a batch script: the ways in which it loses work when its nodes go.

Belongs here: `script` and `shell` read it, `*_rules` are the rules, `check` runs them.
Does not: checks that need Slurm (`toolkit.submit`).
"""
