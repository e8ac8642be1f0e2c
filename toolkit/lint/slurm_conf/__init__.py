"""Rules over a slurm.conf: what will lose jobs, nodes or money on a cluster of cloud nodes.

`parser` reads the file, `rules_*` are the rules, `check` runs them.
"""
