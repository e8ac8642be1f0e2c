"""Rules over a batch script: what will lose work when its nodes go.

`script` and `shell` read it, `*_rules` are the rules, `check` runs them.
"""
